"""The test parser of Ollama's API agrees with Ollama's SDK, and fails if some client fails."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ollama import ResponseError

from tests.apis import ollama, sdks
from tests.apis.named_events import StreamError
from tests.apis.ollama import (
    HEAD,
    assistant,
    call,
    end,
    error,
    line,
    make_stream,
    make_text_lines,
    make_text_stream,
    make_thinking_lines,
    message,
    piece,
    request,
    result,
    user,
)

READ = call("read", filePath="a.txt")

GOOD = {
    "text": make_text_stream("Hel", "lo"),
    "call": make_stream(piece("", READ)),
    "all-kinds": make_stream(
        *make_thinking_lines("I will ", "look."), *make_text_lines("Looking"), piece("", READ), piece("", READ, READ)
    ),
    "text-behind-a-call": make_stream(piece("", READ), *make_text_lines("Wait")),
    "text-in-the-last-line": [*make_text_lines("Hel"), end(content="lo")],
    "cut": make_text_stream("Hel", done_reason="length"),
    "windows-line-ends": [one.replace(b"\n", b"\r\n") for one in make_text_stream("Hi")],
    "no-last-line-end": [*make_text_lines("Hi"), end().rstrip()],
    "nothing-said": make_stream(),
}


@pytest.mark.parametrize("pieces", GOOD.values(), ids=GOOD)
async def test_a_good_stream_is_read_as_the_sdk_reads_it(pieces: list[bytes]) -> None:
    assert ollama.read(b"".join(pieces)) == await sdks.read_ollama(pieces)


async def test_a_whole_reply_is_read_as_the_sdk_reads_it() -> None:
    body = json.dumps(message("Hi", READ, thinking="Hm")).encode()
    assert ollama.read(body, stream=False) == await sdks.read_ollama([body], stream=False)


def test_stream_and_whole_reply_of_equal_content_are_equal() -> None:
    whole = json.dumps(message("Hi", READ, thinking="Hm")).encode()
    pieces = make_stream(*make_thinking_lines("H", "m"), *make_text_lines("Hi"), piece("", READ))
    assert ollama.read(whole, stream=False) == ollama.read(b"".join(pieces))


def test_parsed_reply_lists_its_parts() -> None:
    found = ollama.read(b"".join(GOOD["all-kinds"]))
    assert (found.content, found.reasoning) == ("Looking", "I will look.")
    assert found.calls == [("read", {"filePath": "a.txt"})] * 3
    assert (found.ids, found.done_reason) == ([None] * 3, "stop")


def without(key: str) -> bytes:
    """Make a line that lacks a field."""
    fields = {**HEAD, "message": assistant("Hi"), "done": False}
    return json.dumps({name: value for name, value in fields.items() if name != key}).encode() + b"\n"


WITH_ID = call("read", "call_1", filePath="a.txt")
BAD = {
    "blank-line": [*make_text_lines("Hi"), b"\n", end()],
    "blanks": [*make_text_lines("Hi"), b"  ", end()],
    "comment": [b": keep-alive\n", *make_text_stream("Hi")],
    "server-sent-event": [b"data: " + one for one in make_text_stream("Hi")],
    "line-without-message": [without("message"), end()],
    "line-without-model": [without("model"), end()],
    "line-without-time": [without("created_at"), end()],
    "line-without-done": [without("done"), end()],
    "arguments-are-a-string": make_stream(piece("", {"function": {"name": "read", "arguments": "{}"}})),
    "call-without-name": make_stream(piece("", {"function": {"arguments": {}}})),
    "call-without-content": make_stream(line(message={"role": "assistant", "tool_calls": [READ]}, done=False)),
    "no-last-line": make_text_lines("Hi"),
    "two-last-lines": [*make_text_stream("Hi"), end()],
    "something-after-the-end": [*make_text_stream("Hi"), *make_text_lines("Ho")],
    "an-id-that-no-one-asked-for": make_stream(piece("", WITH_ID)),
    "calls-in-the-last-line": [line(message=assistant("", READ), done=True, done_reason="stop")],
    "no-reason": [line(message=assistant("Hi"), done=True)],
    "cut-in-a-line": [*make_text_lines("Hi"), end()[:-9]],
}


@pytest.mark.parametrize("pieces", BAD.values(), ids=BAD)
def test_a_stream_that_some_client_fails_at_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)) as raised:
        ollama.read(b"".join(pieces))
    assert not isinstance(raised.value, StreamError)


def test_ids_are_valid_if_the_test_allows_them() -> None:
    assert ollama.read(b"".join(make_stream(piece("", WITH_ID))), ids=True).ids == ["call_1"]


def test_two_calls_of_one_id_are_refused() -> None:
    with pytest.raises(AssertionError):
        ollama.read(b"".join(make_stream(piece("", WITH_ID, WITH_ID))), ids=True)


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_of_the_server_is_raised_as_such(stream: bool) -> None:
    with pytest.raises(StreamError):
        ollama.read(b"".join([*make_text_lines("Hi"), error()] if stream else [error()]), stream=stream)


async def test_an_error_within_a_stream_is_an_error_for_the_sdk_too() -> None:
    with pytest.raises(ResponseError):
        await sdks.read_ollama([*make_text_lines("Hi"), error()])


HISTORY = [user("Read a"), assistant("Yes", READ)]
GOOD_HISTORIES = {
    "text": [user("Hi")],
    "nothing": [],
    "result": [*HISTORY, result("A")],
    "result-without-name": [*HISTORY, result("A", None)],
    "two-results": [user("Read"), assistant("", READ, call("find")), result("A"), result("B", "find")],
}
BAD_HISTORIES = {
    "no-result": HISTORY,
    "result-of-no-call": [user("Hi"), result("A")],
    "result-of-another-tool": [*HISTORY, result("A", "write")],
    "result-too-late": [*HISTORY, user("Hm"), result("A")],
    "arguments-are-a-string": [
        user("Hi"),
        assistant("", {"function": {"name": "read", "arguments": "{}"}}),
        result("A"),
    ],
    "content-in-parts": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    "no-content": [user("Hi"), {"role": "assistant", "tool_calls": [READ]}, result("A")],
}


@pytest.mark.parametrize("history", GOOD_HISTORIES.values(), ids=GOOD_HISTORIES)
def test_a_history_that_ollama_takes_passes(history: list[Any]) -> None:
    ollama.check_request(request(messages=history))


@pytest.mark.parametrize("history", BAD_HISTORIES.values(), ids=BAD_HISTORIES)
def test_a_history_that_ollama_refuses_is_refused(history: list[Any]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        ollama.check_request(request(messages=history))
