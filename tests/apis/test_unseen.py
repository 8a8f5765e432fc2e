"""Frames that are not passed on where nothing may leave unread."""

from __future__ import annotations

import pytest

from tests.apis import chat, messages, responses
from vtc.apis import APIS
from vtc.apis.base import Codec
from vtc.apis.unseen import Unread, calls, decoded, says_nothing
from vtc.events import ServerError
from vtc.wire.framing import Frame
from vtc.wire.sse import data_of

DEEP = "[" * 5_000 + "]" * 5_000
CODECS = {api.name: api for api in APIS}


def codec(name: str) -> Codec:
    return CODECS[name].codec()


def frame(data: str, before: str = "") -> Frame:
    raw = f"{before}data: {data}\n\n".encode()
    return Frame(raw, data_of(raw))


@pytest.mark.parametrize("name", [name for name in CODECS if name != "ollama-chat"])
@pytest.mark.parametrize(
    "data", ["null", "5", '"x"', "[]", '{"error": {"message": "x"}}', "keep-alive", "<html>", "{}"]
)
def test_what_says_nothing_passes(name: str, data: str) -> None:
    deltas = getattr(decoded(codec(name), frame(data)), "deltas", ())
    assert [*map(type, deltas)] == ([ServerError] if "error" in data else [])
    assert decoded(codec(name), Frame(b": comment\n\n", None)) is None


@pytest.mark.parametrize("name", [name for name in CODECS if name != "ollama-chat"])
@pytest.mark.parametrize(
    "data",
    [
        f'{{"x": {DEEP}}}',
        '{"choices": 5, "item": 5, "content_block": {}, "delta": {"x": 1}, "x": ' + "1" * 5_000 + "}",
        '{"message": {"content"',
        "{",
    ],
)
def test_what_may_say_something_to_others_does_not(name: str, data: str) -> None:
    with pytest.raises(Unread):
        decoded(codec(name), frame(data))


def test_data_in_a_comment_are_no_comment() -> None:
    """Some clients end lines where no server does."""
    with pytest.raises(Unread, match="comment"):
        decoded(codec("openai-chat"), frame("{}", before=": \u2028data: {}\n"))


def test_blocks_without_a_number_and_messages_that_begin_with_content() -> None:
    start = messages.call("read")
    for value in (
        {"type": "content_block_start", "content_block": start},
        {"type": "content_block_delta", "index": "0", "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "message_start", "message": {"content": [start]}},
    ):
        raw = chat.frame(value)
        with pytest.raises(Unread):
            decoded(codec("anthropic-messages"), Frame(raw, data_of(raw)))


@pytest.mark.parametrize("body", [b'{"error": "x"}', b"<html>", b"x", b"null", b"{}"])
def test_whole_bodies_in_which_nobody_finds_a_call(body: bytes) -> None:
    assert says_nothing(body)
    assert calls(body) == 0


@pytest.mark.parametrize("body", [b'{"choices": {"0": 1}}', f'{{"x": {DEEP}}}'.encode(), b"{", '{"a"'.encode("utf-16")])
def test_whole_bodies_that_others_may_read(body: bytes) -> None:
    assert not says_nothing(body)


def test_replies_as_they_should_be_are_read() -> None:
    for name, frames in (
        ("openai-chat", chat.streamed("a")),
        ("anthropic-messages", messages.streamed_text("a")),
        ("openai-responses", responses.streamed_text("a")),
    ):
        one = codec(name)
        assert any(decoded(one, Frame(raw, data_of(raw))) for raw in frames)


def test_call_under_any_key_is_said() -> None:
    """What holds a call is no error and no ping, whatever a server calls the rest."""
    entry = {"type": "function", "function": {"name": "bash", "arguments": "{}"}}
    assert not says_nothing(chat.encoded({"choiices": {"0": {"message": {"tool_calls": [entry]}}}}))
    assert not says_nothing(chat.encoded([{"type": "tool_use", "name": "bash"}]))
    assert not says_nothing(chat.encoded([{"tool_calls": True}]))
    assert says_nothing(chat.encoded({"error": {"message": "no tool_calls for you"}}))
