"""The JSON of OpenAI's API: what servers send that is hardly JSON, and the small pieces of a reply."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from vtc.apis.openai_json import call, cleaned, decode, encode, finish_reason, said, text_reason
from vtc.events import Call, Event, Markup, Reasoning, Refusal, Rewritten, Text, ToolCall


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "\\u00e9\xc3\xa9"]}', {"a": [1, 2.5, None, True, "éé"]}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\ud83d"', "\ud83d"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'{"a": Infinity}', {"a": math.inf}),
    ],
)
def test_what_is_decoded(data: bytes, value: Any) -> None:
    assert decode(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"<html>", b"\xff", b"{'a': 1}", b"{} {}"])
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"char \d+|can't decode"):
        decode(data)


def test_bytes_that_are_no_utf8_are_what_a_client_takes_them_for_if_asked() -> None:
    assert decode(b'{"a": "\xe9\xc3\xa9"}', "replace") == {"a": "\ufffdé"}
    with pytest.raises(ValueError, match="can't decode"):
        decode(b'{"a": "\xe9"}')


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, "é", None]}, '{"a":[1,"é",null]}'.encode()),
        ({"a": "\ud83d"}, b'{"a":"\\ud83d"}'),
        ({"a": 2**70}, b'{"a":1180591620717411303424}'),
        ({"a": msgspec.Raw(b"1.0e0"), "b": msgspec.Raw(b'{ "x":1}')}, b'{"a":1.0e0,"b":{ "x":1}}'),
        ({"a": "\ud83d", "b": msgspec.Raw(b'{ "x":"\\ud83d"}')}, b'{"a":"\\ud83d","b":{"x":"\\ud83d"}}'),
    ],
)
def test_what_is_encoded(value: Any, data: bytes) -> None:
    """Compact; raw pieces keep their bytes wherever they can."""
    assert encode(value) == data


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"a": 1}', '{"a": 1}'), ({"a": "é"}, '{"a": "é"}'), ("", "{}"), (None, "{}"), ({}, "{}")]
)
def test_arguments_are_text_whatever_was_sent(arguments: Any, text: str) -> None:
    assert call({"id": "a", "function": {"name": "n", "arguments": arguments}}) == ToolCall("n", text, "a")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Text("a"), "a"),
        (Rewritten("a", "b"), "b"),
        (Reasoning("a"), ""),
        (Markup("a"), ""),
        (Call("a", ToolCall("n", "{}"), "tag"), ""),
        (Refusal("why", "tag"), ""),
    ],
)
def test_what_the_client_sees_of_an_event_as_text(event: Event, text: str) -> None:
    assert said(event) == text


@pytest.mark.parametrize(
    ("reason", "told", "older", "as_text"),
    [
        ("stop", "tool_calls", "function_call", "stop"),
        (None, "tool_calls", "function_call", None),
        ("tool_calls", "tool_calls", "function_call", "stop"),
        ("function_call", "tool_calls", "function_call", "stop"),
        ("length", "length", "length", "length"),
        ("content_filter", "content_filter", "content_filter", "content_filter"),
    ],
)
def test_finish_reasons(reason: str | None, told: str, older: str, as_text: str | None) -> None:
    """C6: what upstream's reason becomes when calls are delivered, for each kind of client."""
    assert finish_reason(reason, legacy=False) == told
    assert finish_reason(reason, legacy=True) == older
    assert text_reason(reason) == as_text


def test_fields_are_dropped_where_a_reply_has_them_and_nowhere_else() -> None:
    message = {"role": "assistant", "x": 1, "content": {"x": 1}, "tool_calls": []}
    choice = {
        "index": 0,
        "x": 1,
        "message": message,
        "delta": {"x": 1, "tool_calls": [{"x": 1}], "function_call": {"name": "n"}},
        "logprobs": {"x": 1},
    }
    reply = {"id": "i", "x": 1, "choices": [choice, 5], "usage": {"x": 1, "total_tokens": 2}}
    before = encode(reply)
    assert cleaned(reply, {"x", "tool_calls", "function_call"}) == {
        "id": "i",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": {"x": 1}},
                "delta": {"tool_calls": [{"x": 1}], "function_call": {"name": "n"}},
                "logprobs": {"x": 1},
            },
            5,
        ],
        "usage": {"total_tokens": 2},
    }
    assert encode(reply) == before
