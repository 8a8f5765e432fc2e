"""Text after a call stays there on bridges between the APIs that keep the order: Messages, Responses and Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.apis import chat, gemini, messages, pairs, responses
from tests.exchange.crossings import BY_NAME, STREAM, open_bridge
from tests.exchanges import feed_stream

ORDERED = ("anthropic-messages", "openai-responses", "gemini-generate")
ARGUMENTS = json.dumps({"filePath": "/a"})
WANTED = ["Before.", "read", "Between.", "read", "read", "After."]


def make_reply(server: str, *, stream: bool) -> bytes:
    """Render a reply in which texts and calls alternate."""
    places = [*enumerate(WANTED)]
    match server:
        case "anthropic-messages":
            blocks = [
                messages.call_block(at, "read", ARGUMENTS[:5], ARGUMENTS[5:], id=f"toolu_{at}")
                if word == "read"
                else messages.text_block(at, word)
                for at, word in places
            ]
            body = b"".join(messages.make_stream(*blocks, stop_reason="tool_use"))
        case "openai-responses":
            items = [
                responses.call_events("read", ARGUMENTS[:5], ARGUMENTS[5:], id=f"fc_{at}", call_id=f"call_{at}")
                if word == "read"
                else responses.text_events(word, id=f"msg_{at}")
                for at, word in places
            ]
            body = b"".join(responses.make_stream(*items))
        case _:
            parts = [
                gemini.call("read", **json.loads(ARGUMENTS)) if word == "read" else gemini.text(word) for word in WANTED
            ]
            if not stream:
                return chat.encode_json(gemini.reply(*parts))
            return b"".join(gemini.make_stream(*(gemini.frame(gemini.event(part)) for part in parts)))
    return body if stream else chat.encode_json(BY_NAME[server].fold(_list_events(body)))


def _list_events(body: bytes) -> Iterator[dict[str, object]]:
    return (json.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if line.startswith(b"data: {"))


def read_order(client: str, body: bytes) -> list[str]:
    """List the texts and the names of the calls of a reply."""
    match client:
        case "anthropic-messages":
            return [block.get("name") or block["text"] for block in messages.read(body).blocks]
        case "openai-responses":
            return [item.get("name") or item["content"][0]["text"] for item in responses.read(body).items]
    events = [json.loads(body)] if body.startswith(b"{") else chat.events(body)
    parts = [part for event in events for candidate in event["candidates"] for part in candidate["content"]["parts"]]
    found = [part.get("text") or part.get("functionCall", {}).get("name") for part in parts]
    return [word for word in found if word]


@STREAM
@pytest.mark.parametrize(("client", "server"), [pair for pair in pairs.CROSSED if {*pair} < {*ORDERED}])
def test_text_after_a_call_keeps_its_place(client: str, server: str, *, stream: bool) -> None:
    body = make_reply(server, stream=stream)
    for size in (len(body), 7) if stream else (len(body),):
        exchange = open_bridge(client, server, stream=stream)
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        out = feed_stream(exchange.stream(), *pieces) if stream else exchange.whole.rewrite(body)
        assert read_order(client, out) == WANTED
        assert pairs.read(client, out, stream=stream).calls == (("read", ARGUMENTS),) * 3
