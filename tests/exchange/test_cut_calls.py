"""Calls whose arguments the server cut, or broke, and ended as if they were whole: no client is told that they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, messages, pairs, responses
from tests.exchange.test_pairs import STREAM, call_piece, crossing, told
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
        case "gemini":
            return any(
                one["finishReason"] == "MAX_TOKENS"
                for each in events
                for one in each.get("candidates", ())
                if "finishReason" in one
            )
    return bool(end["done_reason"] == "length")


@PAIR
@STREAM
@pytest.mark.parametrize("arguments", [(HALF[:14], HALF[14:]), ('{"filePath": 1', "2"), ('"/a',)], ids=str)
def test_a_cut_call_ends_as_one_that_the_limit_cut(
    client: str, server: str, stream: bool, arguments: tuple[str, ...]
) -> None:
    exchange = crossing(client, server, stream=stream)
    body = called(server, *arguments)
    out = fed(exchange.stream(), body) if stream else exchange.body(body)
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
    if client in ("anthropic-messages", "ollama-chat", "gemini"):
        expected = pairs.said(f"read {arguments}", end="length" if arguments.startswith("[") else "")
        assert told(exchange, client, body, stream=stream) == expected
    else:
        out = fed(exchange.stream(), body) if stream else exchange.body(body)
        assert json.dumps(arguments)[1:-1].encode() in out
