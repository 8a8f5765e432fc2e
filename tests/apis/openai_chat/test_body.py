"""Whole chat completions, decoded and encoded as the equivalent stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat
from tests.apis.rewriting import rewrite_reply as through
from tests.apis.toy import Toy
from vtc.apis.openai_chat import API, ChatForm, Decoder, Encoder
from vtc.apis.relay import Relay
from vtc.wire import EventReader

CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"x": 1}'}}


def relay_body(body: bytes, toy: Toy | None = None, *, structured: bool = True) -> bytes:
    return through(API, body, lambda: toy or Toy(structured), ChatForm())


def rewrite_body(body: Any, **how: bool) -> Any:
    return json.loads(relay_body(chat.encode_json(body), **how))


@pytest.mark.parametrize("content", ["", None, "Hello", "a [", "[ x] é", 5])
def test_a_reply_without_calls_keeps_its_bytes(content: Any) -> None:
    body = json.dumps(chat.completion(content), indent=3).encode()
    assert relay_body(body) == body


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"choices": null}', b'{"choices": [{}]}', b'{"choices": [{"message": []}]}', b'"x"']
)
def test_body_that_is_no_completion_keeps_its_bytes(body: bytes) -> None:
    assert relay_body(body) == body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a[x]", chat.Read("a", calls=[("x", {})], finish_reason="tool_calls")),
        ("[x][y]", chat.Read(calls=[("x", {}), ("y", {})], finish_reason="tool_calls")),
        ("a~b", chat.Read("ab", finish_reason="stop")),
        ("(a)b", chat.Read("b", "(a)", finish_reason="stop")),
        ("{a}", chat.Read("<a>", finish_reason="stop")),
    ],
)
def test_content_read_from_a_reply(content: str, message: chat.Read) -> None:
    found = rewrite_body(chat.completion(content, message={"refusal": None, "x": 1}, y=2))
    assert chat.read(chat.encode_json(found)) == message
    assert (found["usage"], found["y"], found["choices"][0]["message"]["x"]) == (chat.USAGE, 2, 1)


def test_content_is_null_if_only_calls_remain() -> None:
    """The API specifies it, and some clients treat an empty text next to calls as an answer."""
    assert rewrite_body(chat.completion("[x]"))["choices"][0]["message"]["content"] is None
    assert rewrite_body(chat.completion("~"))["choices"][0]["message"]["content"] == ""


def test_thoughts_join_those_that_were_there() -> None:
    found = rewrite_body(chat.completion("(b)", message={"reasoning_content": "a"}))
    assert found["choices"][0]["message"]["reasoning_content"] == "a(b)"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_reason_to_stop_early_stays(reason: str) -> None:
    assert rewrite_body(chat.completion("[x]", reason))["choices"][0]["finish_reason"] == reason


def test_every_choice_is_read_apart() -> None:
    reply = chat.completion("[x]")
    reply["choices"] += [{**reply["choices"][0], "index": 1, "message": {"role": "assistant", "content": "a["}}]
    found = chat.encode_json(rewrite_body(reply))
    assert chat.read(found, 0).calls == [("x", {})]
    assert chat.read(found, 1) == chat.Read("a[", finish_reason="stop")


def test_own_calls_switch_the_reading_off() -> None:
    body = chat.encode_json(chat.completion("[x]", "tool_calls", message={"tool_calls": [CALL]}))
    assert relay_body(body) == body


@pytest.mark.parametrize("content", [None, "", "Hi"])
def test_own_calls_are_text_for_a_client_of_text(content: str | None) -> None:
    message = {"tool_calls": [CALL]}
    (choice,) = rewrite_body(chat.completion(content, "tool_calls", message=message), structured=False)["choices"]
    assert choice["message"] == {"role": "assistant", "content": f'{content or ""}[read {{"x": 1}} a]'}
    assert choice["finish_reason"] == "stop"


@given(st.text("ab[]x(){}~ é", max_size=30), st.sampled_from(["stop", "length", None]))
def test_whole_and_streamed_replies_are_equal(content: str, reason: str | None) -> None:
    whole = chat.read(chat.encode_json(rewrite_body(chat.completion(content, reason))))
    relay = Relay(Decoder(), Encoder(), Toy)
    body = b"".join([*chat.make_text_chunks(content), *[chat.chunk({}, reason)] * bool(reason)])
    out = [piece for frame in EventReader().feed(body) for piece in relay.feed(frame)]
    streamed = chat.read(b"".join([*out, *relay.finish()]))
    if reason is None and not whole.calls:  # a whole reply has ended, and a stream without a reason was cut off
        whole.finish_reason = None
    if reason is None and whole.calls:
        assert streamed.finish_reason == whole.finish_reason == "tool_calls"
    assert streamed == whole


def test_separate_reasoning_disables_the_search_in_the_text() -> None:
    toy = Toy()
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "so"}
    body = chat.encode_json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert relay_body(body, toy) == body
    assert toy.reasoning_seen


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "[no]"}], "closed": True}
REFERENCE = {"type": "reference", "reference_ids": [7]}


def test_text_in_parts_is_read_as_other_text() -> None:
    """Mistral's servers send it. It becomes one text, and its thinking reasoning; other parts are kept."""
    parts = [THOUGHT, {"type": "text", "text": "a[x]"}, {"type": "text", "text": "b"}, "c", REFERENCE]
    message = rewrite_body(chat.completion(parts))["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ([REFERENCE, {"type": "text", "text": "abc"}], "[no]")
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["x"]
    message = rewrite_body(chat.completion(["a[x]", {"type": "text", "text": "b"}]))["choices"][0]["message"]
    assert message["content"] == "ab"


def test_thinking_in_parts_is_reasoning_that_upstream_parted_off() -> None:
    toy = Toy()
    body = chat.encode_json(chat.completion([THOUGHT, {"type": "text", "text": "Hi"}]))
    message = json.loads(relay_body(body, toy))["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hi", "[no]")
    assert toy.reasoning_seen


def test_thinking_in_parts_is_reasoning_in_a_stream() -> None:
    """It can be next to text or before it, with or without the role, even if no text remains."""
    relay = Relay(Decoder(), Encoder(), Toy)
    contents = [[THOUGHT], [THOUGHT, {"type": "text", "text": "a[x]"}], [THOUGHT, "[y]"], "b"]
    body = b"".join(chat.chunk({"role": "assistant", "content": content}) for content in contents) + chat.STOP
    out = b"".join([piece for frame in EventReader().feed(body) for piece in relay.feed(frame)] + relay.finish())
    assert "".join(delta.get("content") or "" for delta in chat.deltas(out)) == "ab"
    assert "".join(delta.get("reasoning_content") or "" for delta in chat.deltas(out)) == "[no]" * 3
    called = [call["function"].get("name") for delta in chat.deltas(out) for call in delta.get("tool_calls", ())]
    assert [name for name in called if name] == ["x", "y"]
