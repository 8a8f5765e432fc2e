"""Calls whose arguments the server cut, or broke, and ended as if they were whole: no client is told that they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, messages, pairs, responses
from tests.exchange.crossings import STREAM, call_piece, crossing, told
from tests.exchanges import fed

SERVERS = ("openai-chat", "anthropic-messages", "openai-responses")
"""Ollama's arguments are objects: they cannot be cut."""
PAIR = pytest.mark.parametrize(("client", "server"), [one for one in pairs.CROSSED if one[1] in SERVERS])
HALF = '{"filePath": "/a'


def called(server: str, *pieces: str) -> bytes:
    """Stream a call with these arguments, which the server says to be whole."""
    match server:
        case "openai-chat":
            begun = call_piece(0, id="call_0", type="function", name="read", arguments="")
            more = [call_piece(0, arguments=one) for one in pieces]
            return b"".join([chat.ROLE, begun, *more, chat.chunk({}, "tool_calls"), chat.DONE])
        case "anthropic-messages":
            return b"".join(messages.streamed(messages.call_block(0, "read", *pieces), stop_reason="tool_use"))
        case _:
            return b"".join(responses.streamed(responses.call_events("read", *pieces, id="fc_0", call_id="call_0")))


def ends_cut(client: str, body: bytes, *, stream: bool) -> bool:
    """True if a client is told that the reply was cut off, and that the call, if it gets one, is not whole."""
    events = [json.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if line[-1:] == b"}"]
    end: Any = events[-1]
    match client:
        case "openai-chat":
            return any(one["choices"][0]["finish_reason"] == "length" for one in events if one.get("choices"))
        case "anthropic-messages":
            return bool((events[-2]["delta"] if stream else end)["stop_reason"] == "max_tokens")
        case "openai-responses":
            calls = [one for one in end.get("response", end)["output"] if one["type"] == "function_call"]
            done = [one["item"] for one in events if one.get("type") == "response.output_item.done"]
            cut = end.get("type", "response.incomplete") == "response.incomplete"
            return cut and [one["status"] for one in (*calls, *done)] == ["incomplete"] * (1 + stream)
        case "gemini-generate":
            return bool(end["candidates"][0]["finishReason"] == "MAX_TOKENS")
    return bool(end["done_reason"] == "length")


@PAIR
@STREAM
@pytest.mark.parametrize("arguments", [(HALF[:14], HALF[14:]), ('{"filePath": 1', "2"), ('"/a',)], ids=str)
def test_a_cut_call_ends_as_one_that_the_limit_cut(
    client: str, server: str, stream: bool, arguments: tuple[str, ...]
) -> None:
    exchange = crossing(client, server, stream=stream)
    body = called(server, *arguments)
    out = fed(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
    assert ends_cut(client, out, stream=stream), out
    assert "not a whole JSON object" in str(exchange.report.refusals)


@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages", "openai-responses"])
def test_a_cut_call_of_a_tool_that_is_not_offered_ends_so_too(client: str) -> None:
    server = "openai-chat" if client != "openai-chat" else "anthropic-messages"
    body = called(server, HALF).replace(b'"read"', b'"other"')
    out = fed(crossing(client, server, stream=True).stream(), body)
    assert ends_cut(client, out, stream=True), out


@PAIR
@STREAM
@pytest.mark.parametrize("arguments", ["nonsense", '[{"a"', '{"a" 1}'])
def test_arguments_that_are_no_object_are_text_where_a_call_has_an_object(
    client: str, server: str, stream: bool, arguments: str
) -> None:
    """Clients of the others answer the model that its arguments are no JSON, and their agent goes on."""
    exchange = crossing(client, server, stream=stream)
    body = called(server, arguments)
    if client in ("anthropic-messages", "ollama-chat"):
        expected = pairs.said(f"read {arguments}", end="length" if arguments.startswith("[") else "")
        assert told(exchange, client, body, stream=stream) == expected
    else:
        out = fed(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
        assert json.dumps(arguments)[1:-1].encode() in out


def has_whole_call(client: str, body: bytes) -> bool:
    """True if a client is told that a call is complete, upon which some of them run it."""
    events = [json.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if line[-1:] == b"}"]
    match client:
        case "anthropic-messages":
            begun = {one["index"] for one in events if one.get("content_block", {}).get("type") == "tool_use"}
            return any(one["type"] == "content_block_stop" and one["index"] in begun for one in events)
        case "openai-responses":
            done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
            return any(one["type"] == "function_call" for one in done)
        case "openai-chat":
            return any(choice["finish_reason"] for one in events for choice in one.get("choices", ()))
    return b"tool_calls" in body


ERRORS = {
    "openai-chat": chat.frame({"error": {"message": "boom"}}),
    "anthropic-messages": b"event: error\ndata: " + chat.encoded(messages.error("boom")) + b"\n\n",
    "openai-responses": responses.numbered([{"type": "error", "code": "server_error", "message": "boom"}])[0],
}


@PAIR
@pytest.mark.parametrize("error", [True, False], ids=["error", "reset"])
def test_a_call_in_which_the_server_broke_off_is_never_complete(client: str, server: str, error: bool) -> None:
    """What there was of it is seen, and the client is told of the error."""
    frames = called(server, HALF).split(b"\n\n")
    cut = next(place for place, frame in enumerate(frames) if b"/a" in frame)
    stream = crossing(client, server, stream=True).stream()
    out = b"".join(stream.feed(b"\n\n".join([*frames[: cut + 1], b""])))
    out += b"".join([*stream.feed(ERRORS[server]), *stream.finish()] if error else stream.break_off("reset"))
    assert not has_whole_call(client, out), out
    assert b'"done":true' not in out
    assert b"/a" in out
    assert (b"boom" if error else b"broke off") in out


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-chat"])
@pytest.mark.parametrize("error", [True, False], ids=["error", "reset"])
def test_a_call_that_was_held_until_the_server_broke_off_is_text(client: str, error: bool) -> None:
    """Its pieces lack the `type`, so they wait for what is missing."""
    stream = crossing(client, "openai-chat", stream=True).stream()
    out = b"".join(stream.feed(chat.ROLE + call_piece(0, id="a", name="read", arguments=HALF)))
    out += b"".join([*stream.feed(ERRORS["openai-chat"]), *stream.finish()] if error else stream.break_off("reset"))
    assert not has_whole_call(client, out), out
    assert b"read {" in out


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-responses"])
@pytest.mark.parametrize("status", ["failed", "cancelled", "canceled"])
def test_a_whole_reply_that_the_server_gave_up_is_an_error(client: str, status: str) -> None:
    body = chat.encoded({**responses.response(responses.message("Hel")), "status": status, "error": None})
    out = crossing(client, "openai-responses", stream=False).whole.rewrite(body)
    assert json.loads(out)["error"]
    assert status.encode() in out
