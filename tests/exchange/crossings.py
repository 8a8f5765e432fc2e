"""Exchanges between any two APIs, and the client's view of a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.pairs import CROSSED, Calls
from tests.apis.shapes import make_request_body
from tests.exchanges import agent, feed_stream, planner
from vtc.apis import APIS
from vtc.exchange import Session

BY_NAME = {api.name: api for api in APIS}


TWO: Calls = [("read", {"filePath": "/a"}), ("write", {"filePath": "b", "content": 'x\n"</tool_call>"'})]


IN_TEXT = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'


PAIR = pytest.mark.parametrize(("client", "server"), CROSSED, ids=lambda name: name)


STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def open_bridge(client: str, server: str, *, settings: dict[str, Any] | None = None, **fields: Any) -> Session:
    body = make_request_body(client, **fields)
    return Session.open(
        BY_NAME[client],
        body,
        agent(client, stream=fields.get("stream")),
        planner(upstream_api=(server,), **settings or {}),
        "seed",
    )


def read_client_reply(
    exchange: Session, client: str, body: bytes, *, stream: bool, cuts: int = 0
) -> pairs.ReplyContent:
    """Parse a reply as the client receives it, in pieces of `cuts` bytes if that is set."""
    if not stream:
        return pairs.read(client, exchange.whole.rewrite(body), stream=False)
    pieces = [body[at : at + cuts] for at in range(0, len(body), cuts)] if cuts else [body]
    return pairs.read(client, feed_stream(exchange.stream(), *pieces), stream=True)


HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def call_piece(index: int, **fields: Any) -> bytes:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return chat.chunk({"tool_calls": [{"index": index, **fields, "function": function}]})


def has_whole_call(client: str, body: bytes) -> bool:
    """Return True if a client sees a complete call, which some clients execute at once."""
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
    return b"tool_calls" in body or b"functionCall" in body
