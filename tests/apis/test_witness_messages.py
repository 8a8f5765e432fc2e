"""The test parser of Messages agrees with Anthropic's SDK, and fails if some client fails."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.apis import messages, sdks
from tests.apis.messages import (
    PING,
    START,
    call,
    call_block,
    delta,
    end,
    error,
    make_block_start,
    make_block_stop,
    make_stream,
    make_text_deltas,
    message,
    request,
    result,
    text,
    text_block,
    thinking,
    thinking_block,
    user,
)
from tests.apis.named_events import StreamError, frame, frames

ARGUMENTS = '{"filePath": "a.txt"}'

GOOD = {
    "text": make_stream(text_block(0, "Hel", "lo")),
    "call": make_stream(call_block(0, "read", ARGUMENTS[:9], ARGUMENTS[9:]), stop_reason="tool_use"),
    "call-without-arguments": make_stream(call_block(0, "now"), stop_reason="tool_use"),
    "all-kinds": make_stream(
        thinking_block(0, "I will ", "look."),
        text_block(1, "Looking"),
        call_block(2, "read", ARGUMENTS),
        call_block(3, "read", ARGUMENTS, id="toolu_2"),
        text_block(4, "Wait"),
        stop_reason="tool_use",
    ),
    "cut": make_stream(text_block(0, "Hel"), stop_reason="max_tokens"),
    "comments-and-pings": [b": a comment\n\n", PING, START, PING, b": more\n\n", *text_block(0, "Hi"), PING, *end()],
    "other-ids": make_stream(call_block(0, "read", ARGUMENTS, id="call_1"), stop_reason="tool_use"),
    "nothing-said": make_stream(),
}


@pytest.mark.parametrize("pieces", GOOD.values(), ids=GOOD)
async def test_a_good_stream_is_read_as_the_sdk_reads_it(pieces: list[bytes]) -> None:
    assert messages.read(b"".join(pieces)) == await sdks.read_messages(pieces)


async def test_a_whole_reply_is_read_as_the_sdk_reads_it() -> None:
    whole = message(thinking("Hm", "sig"), text("Hi"), call("read", filePath="a"), stop_reason="tool_use")
    body = json.dumps(whole).encode()
    assert messages.read(body) == await sdks.read_messages([body], stream=False)


def test_stream_and_whole_reply_of_equal_content_are_equal() -> None:
    whole = message(thinking("Hm"), text("Hi"), call("read", filePath="a.txt"), stop_reason="tool_use")
    blocks = thinking_block(0, "Hm"), text_block(1, "H", "i"), call_block(2, "read", ARGUMENTS, id="toolu_9")
    assert messages.read(json.dumps(whole).encode()) == messages.read(
        b"".join(make_stream(*blocks, stop_reason="tool_use"))
    )


def test_parsed_reply_lists_its_parts() -> None:
    found = messages.read(b"".join(GOOD["all-kinds"]))
    assert (found.content, found.reasoning) == ("LookingWait", "I will look.")
    assert found.calls == [("read", {"filePath": "a.txt"})] * 2
    assert found.ids == ["toolu_1", "toolu_2"]
    assert found.kinds == ["thinking", "text", "tool_use", "tool_use", "text"]


EMPTY = message(stop_reason=None)
NO_NAME = frame({"type": "message_stop"}).partition(b"\n")[2]
CALL = call_block(0, "read", ARGUMENTS)
BAD = {
    "no-event-line": [START, *text_block(0, "Hi"), end()[0], NO_NAME],
    "done-marker": [*make_stream(text_block(0, "Hi")), b"data: [DONE]\n\n"],
    "another-event-line": [START, *text_block(0, "Hi"), end()[0], frame({"type": "message_stop"}, "message_delta")],
    "index-begins-at-1": make_stream(text_block(1, "Hi")),
    "index-gap": make_stream(text_block(0, "Hi"), text_block(2, "Ho")),
    "index-twice": make_stream(text_block(0, "Hi"), text_block(0, "Ho")),
    "delta-of-another-kind": make_stream(
        [*CALL[:-1], *make_text_deltas(0, "Ho"), make_block_stop(0)], stop_reason="tool_use"
    ),
    "delta-without-a-start": make_stream(make_text_deltas(0, "Hi")),
    "delta-after-the-stop": make_stream(text_block(0, "Hi"), make_text_deltas(0, "Ho")),
    "text-start-without-text": make_stream(
        [make_block_start(0, {"type": "text"}), *make_text_deltas(0, "Hi"), make_block_stop(0)]
    ),
    "call-without-input-and-deltas": make_stream(
        [make_block_start(0, {"type": "tool_use", "id": "toolu_1", "name": "now"}), make_block_stop(0)],
        stop_reason="tool_use",
    ),
    "input-at-the-start": make_stream(
        [make_block_start(0, call("read", filePath="a")), make_block_stop(0)], stop_reason="tool_use"
    ),
    "input-at-the-start-and-in-deltas": make_stream(
        [make_block_start(0, call("read", filePath="a")), *CALL[1:]], stop_reason="tool_use"
    ),
    "message-delta-without-usage": [
        START,
        *text_block(0, "Hi"),
        *frames({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}),
    ],
    "message-start-without-usage": [
        frame({"type": "message_start", "message": {k: v for k, v in EMPTY.items() if k != "usage"}}),
        *text_block(0, "Hi"),
        *end(),
    ],
    "message-start-without-input-tokens": [
        frame({"type": "message_start", "message": {**EMPTY, "usage": {"output_tokens": 1}}}),
        *text_block(0, "Hi"),
        *end(),
    ],
    "no-message-start": [*text_block(0, "Hi"), *end()],
    "no-block-stop": make_stream(text_block(0, "Hi")[:-1]),
    "no-message-delta": [START, *text_block(0, "Hi"), end()[1]],
    "no-message-stop": [START, *text_block(0, "Hi"), end()[0]],
    "two-blocks-open": make_stream([*text_block(0, "Hi")[:-1], *call_block(1, "read", ARGUMENTS), make_block_stop(0)]),
    "second-message-start": [START, START, *text_block(0, "Hi"), *end()],
    "broken-arguments": make_stream(call_block(0, "read", ARGUMENTS[:-1]), stop_reason="tool_use"),
    "arguments-are-a-list": make_stream(call_block(0, "read", "[1]"), stop_reason="tool_use"),
    "unknown-event": [START, frame({"type": "news"}), *text_block(0, "Hi"), *end()],
    "unknown-block": make_stream([make_block_start(0, {"type": "news"}), make_block_stop(0)]),
    "unknown-delta": make_stream([make_block_start(0, text("")), delta(0, "news_delta"), make_block_stop(0)]),
    "unknown-stop-reason": make_stream(text_block(0, "Hi"), stop_reason="stop"),
    "ends-in-a-call-and-says-end-turn": make_stream(CALL),
    "says-tool-use-without-a-call": make_stream(text_block(0, "Hi"), stop_reason="tool_use"),
    "empty-text-block": make_stream(text_block(0), call_block(1, "read", ARGUMENTS), stop_reason="tool_use"),
    "blank-text-block": make_stream(text_block(0, "\n\n"), call_block(1, "read", ARGUMENTS), stop_reason="tool_use"),
    "two-calls-of-one-id": make_stream(CALL, call_block(1, "read", ARGUMENTS), stop_reason="tool_use"),
    "something-after-the-end": [*make_stream(text_block(0, "Hi")), PING],
    "block-after-message-delta": [START, end()[0], *text_block(0, "Hi"), end()[1]],
    "cut-in-a-frame": [*make_stream(text_block(0, "Hi"))[:-1], b'event: message_stop\ndata: {"type":'],
}


@pytest.mark.parametrize("pieces", BAD.values(), ids=BAD)
def test_a_stream_that_some_client_fails_at_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)) as raised:
        messages.read(b"".join(pieces))
    assert not isinstance(raised.value, StreamError)


def test_overlapping_blocks_are_valid_if_the_test_allows_them() -> None:
    call = call_block(1, "read", ARGUMENTS)
    pieces = make_stream([*text_block(0, "Hi")[:-1], *call[:-1], make_block_stop(0), call[-1]], stop_reason="tool_use")
    assert messages.read(b"".join(pieces), overlapping=True).kinds == ["text", "tool_use"]


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(error()).encode(),
        b"".join([START, *text_block(0, "Hi")[:-1], frame(error())]),
        frame(error()),
    ],
    ids=["whole", "in-a-block", "at-the-start"],
)
def test_an_error_of_the_server_is_raised_as_such(body: bytes) -> None:
    with pytest.raises(StreamError) as raised:
        messages.read(body)
    assert raised.value.error["type"] == "overloaded_error"


async def test_an_error_within_a_stream_is_an_error_for_the_sdk_too() -> None:
    with pytest.raises(anthropic.APIStatusError):
        await sdks.read_messages([START, *text_block(0, "Hi")[:-1], frame(error())])


HISTORY = [user("Read a"), messages.assistant(text("Yes"), call("read", filePath="a"))]
GOOD_HISTORIES = {
    "text": [user("Hi")],
    "result": [*HISTORY, user([result("A")])],
    "result-ahead-of-text": [*HISTORY, user([result("A"), text("And b?")])],
    "system-within": [user("Hi"), {"role": "system", "content": "Today is Sunday."}],
}
BAD_HISTORIES = {
    "no-result": HISTORY,
    "result-too-late": [*HISTORY, user("Hm"), user([result("A")])],
    "result-behind-text": [*HISTORY, user([text("Here"), result("A")])],
    "result-of-no-call": [user([result("A")])],
    "one-of-two-results": [
        user("Read"),
        messages.assistant(call("read", filePath="a"), call("read", "toolu_2", filePath="b")),
        user([result("A")]),
    ],
    "empty-text": [user("Hi"), messages.assistant(text(""), call("read", filePath="a")), user([result("A")])],
    "blank-text": [user("Hi"), messages.assistant(text(" \n")), user("So?")],
    "empty-message": [user("Hi"), messages.assistant(), user("So?")],
}


@pytest.mark.parametrize("history", GOOD_HISTORIES.values(), ids=GOOD_HISTORIES)
def test_a_history_that_anthropic_takes_passes(history: list[Any]) -> None:
    messages.check_request(request(messages=history))


@pytest.mark.parametrize("history", BAD_HISTORIES.values(), ids=BAD_HISTORIES)
def test_a_history_that_anthropic_refuses_is_refused(history: list[Any]) -> None:
    with pytest.raises(AssertionError):
        messages.check_request(request(messages=history))
