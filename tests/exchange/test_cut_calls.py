"""Calls whose arguments the server truncated or broke, but ended as if complete: no client sees them as complete."""

from __future__ import annotations

import json

import pytest

from tests.apis import chat, messages, pairs, responses
from tests.exchange.crossings import STREAM, call_piece, has_whole_call, open_bridge, read_client_reply
from tests.exchanges import feed_stream

SERVERS = ("openai-chat", "anthropic-messages", "openai-responses")
"""Ollama's arguments are objects: they cannot be cut."""
PAIR = pytest.mark.parametrize(("client", "server"), [one for one in pairs.CROSSED if one[1] in SERVERS])
HALF = '{"filePath": "/a'


def stream_call(server: str, *pieces: str) -> bytes:
    """Stream a call with these arguments, which the server reports as complete."""
    match server:
        case "openai-chat":
            begun = call_piece(0, id="call_0", type="function", name="read", arguments="")
            more = [call_piece(0, arguments=one) for one in pieces]
            return b"".join([chat.ROLE, begun, *more, chat.chunk({}, "tool_calls"), chat.DONE])
        case "anthropic-messages":
            return b"".join(messages.make_stream(messages.call_block(0, "read", *pieces), stop_reason="tool_use"))
        case _:
            return b"".join(responses.make_stream(responses.call_events("read", *pieces, id="fc_0", call_id="call_0")))


@PAIR
@STREAM
@pytest.mark.parametrize("arguments", ["nonsense", '{"a" 1}'])
def test_arguments_that_are_no_object_are_text_where_a_call_has_an_object(
    client: str, server: str, stream: bool, arguments: str
) -> None:
    """Clients of the other APIs answer that the arguments are no JSON, and their agent continues."""
    exchange = open_bridge(client, server, stream=stream)
    body = stream_call(server, arguments)
    if client in ("anthropic-messages", "ollama-chat"):
        assert read_client_reply(exchange, client, body, stream=stream) == pairs.make_content(f"read {arguments}")
    else:
        out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
        assert json.dumps(arguments)[1:-1].encode() in out


ERRORS = {
    "openai-chat": chat.frame({"error": {"message": "boom"}}),
    "anthropic-messages": b"event: error\ndata: " + chat.encode_json(messages.error("boom")) + b"\n\n",
    "openai-responses": responses.number_events([{"type": "error", "code": "server_error", "message": "boom"}])[0],
}


@PAIR
@pytest.mark.parametrize("error", [True, False], ids=["error", "reset"])
def test_a_call_in_which_the_server_broke_off_is_never_complete(client: str, server: str, error: bool) -> None:
    """The received part is visible, and the client gets the error."""
    frames = stream_call(server, HALF).split(b"\n\n")
    cut = next(place for place, frame in enumerate(frames) if b"/a" in frame)
    stream = open_bridge(client, server, stream=True).stream()
    out = b"".join(stream.feed(b"\n\n".join([*frames[: cut + 1], b""])))
    out += b"".join([*stream.feed(ERRORS[server]), *stream.finish()] if error else stream.break_off("reset"))
    assert not has_whole_call(client, out), out
    assert b'"done":true' not in out
    assert b"/a" in out
    assert (b"boom" if error else b"broke off") in out


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-chat"])
@pytest.mark.parametrize("error", [True, False], ids=["error", "reset"])
def test_a_call_that_was_held_until_the_server_broke_off_is_text(client: str, error: bool) -> None:
    """Its pieces lack the `type`, so they are buffered until it arrives."""
    stream = open_bridge(client, "openai-chat", stream=True).stream()
    out = b"".join(stream.feed(chat.ROLE + call_piece(0, id="a", name="read", arguments=HALF)))
    out += b"".join([*stream.feed(ERRORS["openai-chat"]), *stream.finish()] if error else stream.break_off("reset"))
    assert not has_whole_call(client, out), out
    assert b"read {" in out


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-responses"])
@pytest.mark.parametrize("status", ["failed", "cancelled", "canceled"])
def test_a_whole_reply_that_the_server_gave_up_is_an_error(client: str, status: str) -> None:
    body = chat.encode_json({**responses.response(responses.message("Hel")), "status": status, "error": None})
    out = open_bridge(client, "openai-responses", stream=False).whole.rewrite(body)
    assert json.loads(out)["error"]
    assert status.encode() in out
