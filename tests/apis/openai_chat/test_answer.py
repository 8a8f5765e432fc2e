"""Whole replies as streams, and replies that no model wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat
from vtc.apis import convert_to_stream as streamed_of
from vtc.apis import render_text_reply
from vtc.apis.openai_chat import API

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}, "extra_content": 1}


def stream_body(body: bytes, *, usage: bool) -> bytes:
    asked = {"stream_options": {"include_usage": True}} if usage else {}
    return streamed_of(API, body, API.request(chat.encode_json(chat.request(stream=True, **asked))))


def body(content: Any = "Hi", finish: str = "stop", *, message: Any = None, **fields: Any) -> bytes:
    return chat.encode_json(chat.completion(content, finish, message=message, **fields))


@given(
    content=st.none() | st.text(),
    calls=st.lists(st.dictionaries(st.text(), st.text(), max_size=2), max_size=3),
    cut_off=st.booleans(),
)
def test_stream_equals_whole_reply(content: str | None, calls: list[Any], cut_off: bool) -> None:
    finish = "length" if cut_off else "tool_calls" if calls else "stop"
    entries = [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}
        for i, arguments in enumerate(calls)
    ]
    whole = body(content, finish, message={"tool_calls": entries} if entries else None)
    found, expected = chat.read(stream_body(whole, usage=True)), chat.read(whole)
    assert (found.content or "", found.calls, found.ids) == (expected.content or "", expected.calls, expected.ids)
    assert found.finish_reason == expected.finish_reason == finish


def test_the_order_of_the_chunks() -> None:
    message = {"reasoning_content": "Hm.", "refusal": None, "annotations": [{"a": 1}], "tool_calls": [CALL, CALL]}
    found = stream_body(body("Hi", "tool_calls", message=message, usage=chat.USAGE, system_fingerprint="f"), usage=True)
    chunks = [json.loads(frame[6:]) for frame in found.split(b"\n\n")[:-2]]
    assert {(chunk["object"], chunk["model"], chunk["system_fingerprint"]) for chunk in chunks} == {
        ("chat.completion.chunk", chat.MODEL, "f")
    }
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:-1]] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm."},
        {"content": "Hi"},
        {"annotations": [{"a": 1}]},
        {"tool_calls": [{"index": 0, **CALL}]},
        {"tool_calls": [{"index": 1, **CALL}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 6 + ["tool_calls"]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], chat.USAGE)
    assert found.endswith(b"\n\ndata: [DONE]\n\n")


def test_usage_is_sent_to_those_who_asked_and_choices_keep_their_places() -> None:
    reply = chat.completion("a", usage=chat.USAGE)
    reply["choices"].append({**reply["choices"][0], "index": 1, "message": {"role": "assistant", "content": "b"}})
    found = stream_body(chat.encode_json(reply), usage=False)
    assert b'"usage"' not in found
    assert [chat.read(found, index).content for index in (0, 1)] == ["a", "b"]


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b"{}", b'{"error": {}}', b'{"choices": null}'])
def test_body_that_is_no_chat_completion_is_reported(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        stream_body(body, usage=True)


def test_a_reply_of_our_own() -> None:
    own = render_text_reply(API, API.request(chat.encode_json(chat.request())), "Stopped.", "ab" * 32, 5)
    assert chat.read(own) == chat.read(stream_body(own, usage=False)) == chat.Read("Stopped.", finish_reason="stop")
    assert json.loads(own)["created"] == 5
