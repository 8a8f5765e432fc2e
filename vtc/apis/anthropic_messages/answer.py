"""Whole replies as streams, and replies that no model wrote.

A stream has the order that Anthropic writes: the message without content, each block with one delta of its text or
arguments, the reason with the usage, the stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from vtc.apis.anthropic_messages.words import REASONS
from vtc.apis.base import Json, Request
from vtc.apis.folding import add
from vtc.apis.tool_calls import arguments_text
from vtc.events import Failure, Finish, ToolCall, Usage
from vtc.json_text import decode

_TEXTS = {"text": ("text",), "thinking": ("thinking", "signature")}
"""The fields of blocks that come in deltas of their own."""


_ERRORS = {
    *("invalid_request", "authentication", "billing", "permission", "not_found", "request_too_large"),
    *("rate_limit", "timeout", "overloaded"),
}
"""The types of errors, without their ending."""


def answer(request: Request, text: str, digest: str, _created: int) -> Json:
    """Make a whole reply that says a text."""
    return {
        "id": f"msg_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def unfolded(reply: Any, _: Request | None = None) -> Iterator[Json]:
    """Tell a whole reply by the events of a stream."""
    if not isinstance(reply["content"], list):
        raise TypeError("`content` is no list")
    usage = reply.get("usage") or {}
    used = {"output_tokens": usage.get("output_tokens") or 0}
    open_: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
    began = {"input_tokens": usage.get("input_tokens") or 0, **usage, "output_tokens": 0}
    yield {"type": "message_start", "message": {**reply, **open_, "usage": began}}
    for index, block in enumerate(reply["content"]):
        yield from events_of(block, index)
    how = {"stop_reason": reply.get("stop_reason") or "end_turn", "stop_sequence": reply.get("stop_sequence")}
    yield {"type": "message_delta", "delta": how, "usage": used}
    yield {"type": "message_stop"}


def folded(events: Iterable[Json]) -> dict[str, Any]:
    """Add up the events of a stream to a whole reply."""
    reply: dict[str, Any] = {}
    blocks: dict[int, Any] = {}
    for event in events:
        match event:
            case {"type": "message_start", "message": message}:
                reply = message
            case {"type": "content_block_start", "index": index, "content_block": block}:
                blocks[index] = {**block}
            case {"type": "content_block_delta", "index": index, "delta": {"citation": citation}}:
                add(blocks[index], {"citations": [citation]})
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                add(blocks[index], {key: value for key, value in delta.items() if key != "type"})
            case {"type": "message_delta", "delta": how}:
                reply |= how
                if "usage" in reply:
                    reply["usage"] |= event.get("usage") or {}
    for index, block in [*blocks.items()]:
        if (written := block.pop("partial_json", None)) is not None:
            try:
                block["input"] = decode(written.encode()) if written else {}
            except ValueError:
                if reply.get("stop_reason") != "max_tokens":
                    raise
                blocks[index] = {"type": "text", "text": f"{block.get('name')} {written}"}
    return {**reply, "content": [*blocks.values()]}


def events_of(block: Json, index: int) -> Iterator[Json]:
    """Write the events by which a stream tells of a block; a kind that has no deltas comes whole in its start."""
    start: dict[str, Any] = {**block}
    deltas: list[Json] = []
    for key in _TEXTS.get(block["type"], ()):
        start[key] = ""
        deltas.append({"type": f"{key}_delta", key: block.get(key) or ""})
    if block["type"] == "text":
        deltas += [{"type": "citations_delta", "citation": one} for one in start.pop("citations", None) or ()]
    if block["type"] in ("tool_use", "server_tool_use", "mcp_tool_use"):
        start["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": arguments_text(block.get("input")) or "{}"})
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def block_of(call: ToolCall) -> dict[str, Any]:
    """Write a call as a block, with the fields that VTC does not know (`caller`)."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    source = call.source if isinstance(call.source, dict) else {}
    return {**source, "type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def stopped(end: Finish, delta: Json, *, called: bool, refused: bool, native: bool) -> Json:
    """Write why a message ended, by what was sent: in upstream's own word where that is one of this API and true."""
    is_own = REASONS.get(end.said, "stop" if native else None) == end.reason
    if is_own and called is {"stop": False, "tool_calls": True}.get(end.reason, called):
        return {"stop_reason": end.said, "stop_sequence": delta.get("stop_sequence")}
    word = "tool_use" if called else "refusal" if refused else "end_turn"
    if end.reason == "length":
        word = "max_tokens"
    elif end.reason == "halted":
        word = "refusal"
    return {"stop_reason": word, "stop_sequence": None}


def counts_of(usage: Usage) -> Json:
    """Write the tokens used: those of the prompt without those that were cached."""
    return {
        "input_tokens": max(usage.prompt - usage.cached, 0),
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def error_of(failure: Failure) -> Json:
    """Write an error of a server of another API."""
    kind = failure.kind if failure.kind.removesuffix("_error") in _ERRORS else "api_error"
    return {"type": "error", "error": {"type": kind, "message": failure.message}}
