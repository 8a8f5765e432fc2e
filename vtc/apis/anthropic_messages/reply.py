"""Replies of Anthropic Messages: the names and values of their events; whole replies as events, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from vtc.apis.calls import format_arguments
from vtc.apis.contract import Json
from vtc.apis.errors import INTERNAL, find_kind, find_kind_of_status
from vtc.apis.reasons import ReasonTable
from vtc.apis.request import Request
from vtc.apis.whole import add_piece
from vtc.events import Citation, Failure, Finish, Origin, Reason, Usage
from vtc.json_text import decode_json
from vtc.wire.sse import EventStream

NAME = "anthropic-messages"
FRAMING = EventStream(named_by="type")
STOP_REASONS: dict[str, Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "other",
    "refusal": "halted",
    "compaction": "other",
}
"""Stop reasons of this API, with their canonical ones."""
STOP_REASON_TABLE = ReasonTable(STOP_REASONS)
START, DELTA, STOP = (f"content_block_{part}" for part in ("start", "delta", "stop"))
WEB_CITATION = "web_search_result_location"
NO_BLOCK = -2
"""The number for events that belong to no block."""


def block_number_of(origin: Origin) -> int:
    """Return the server's number of the block that an event belongs to."""
    event = origin.value if isinstance(origin.value, dict) else {}
    number = event.get("index")
    return number if isinstance(number, int) and event.get("type") in (START, DELTA, STOP) else NO_BLOCK


_DELTA_FIELDS = {"text": ("text",), "thinking": ("thinking", "signature")}
"""Fields of blocks that are streamed in deltas."""


def unfold_reply(reply: Any, request: Request | None = None) -> Iterator[Json]:
    """Unfold a whole reply to the events of a stream.

    The order is Anthropic's: the message without content, each block with one delta for its text or arguments, the
    reason with the usage, the stop. With a `request`, a missing stop reason becomes `end_turn`, since its client asked
    for a stream. Raises TypeError if `content` is no list.
    """
    if not isinstance(reply["content"], list):
        raise TypeError("`content` is not a list")
    usage = reply.get("usage") or {}
    first_usage = {"input_tokens": usage.get("input_tokens") or 0, **usage, "output_tokens": 0}
    last_usage = {"output_tokens": usage.get("output_tokens") or 0}
    unfinished: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {**reply, **unfinished, "usage": first_usage}}
    for index, block in enumerate(reply["content"]):
        yield from unfold_block(block, index)
    reason = reply.get("stop_reason") or ("end_turn" if request else None)
    end = {"stop_reason": reason, "stop_sequence": reply.get("stop_sequence")}
    yield {"type": "message_delta", "delta": end, "usage": last_usage}
    yield {"type": "message_stop"}


def fold_events(events: Iterable[Json]) -> dict[str, Any]:
    """Fold the events of a stream to a whole reply."""
    reply: dict[str, Any] = {}
    blocks: dict[int, Any] = {}
    for event in events:
        match event:
            case {"type": "message_start", "message": message}:
                reply = message
            case {"type": "content_block_start", "index": index, "content_block": block}:
                blocks[index] = {**block}
            case {"type": "content_block_delta", "index": index, "delta": {"citation": citation}}:
                add_piece(blocks[index], {"citations": [citation]})
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                add_piece(blocks[index], {key: value for key, value in delta.items() if key != "type"})
            case {"type": "message_delta", "delta": end}:
                reply |= end
                if "usage" in reply:
                    reply["usage"] |= event.get("usage") or {}
    for index, block in [*blocks.items()]:
        if (written := block.pop("partial_json", None)) is not None:
            try:
                block["input"] = decode_json(written.encode()) if written else {}
            except ValueError:
                if reply.get("stop_reason") != "max_tokens":
                    raise
                blocks[index] = {"type": "text", "text": f"{block.get('name')} {written}"}
    return {**reply, "content": [*blocks.values()]}


def unfold_block(block: Json, index: int) -> Iterator[Json]:
    """Unfold a block to the events of a stream; a type without deltas is complete in its start."""
    start: dict[str, Any] = {**block}
    deltas: list[Json] = []
    for key in _DELTA_FIELDS.get(block["type"], ()):
        start[key] = ""
        deltas.append({"type": f"{key}_delta", key: block.get(key) or ""})
    if block["type"] == "text":
        deltas += [{"type": "citations_delta", "citation": citation} for citation in start.pop("citations", None) or ()]
    if block["type"] in ("tool_use", "server_tool_use", "mcp_tool_use"):
        start["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": format_arguments(block.get("input"))})
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def render_stop(end: Finish, delta: Json, *, has_calls: bool, has_refusal: bool, native: bool) -> Json:
    """Render the stop reason; the server's own word if it is one of this API and matches the blocks that were sent."""
    # Step 1: keep the server's word if it has the canonical meaning, and agrees with the presence of calls.
    reason = end.native_reason
    meaning = STOP_REASON_TABLE[reason] if native and reason else STOP_REASONS.get(reason)
    is_own = meaning == end.reason or (native and not (reason or end.is_assumed) and end.reason == "stop")
    if is_own and has_calls is {"stop": False, "tool_calls": True}.get(end.reason, has_calls):
        return {"stop_reason": end.native_reason, "stop_sequence": delta.get("stop_sequence")}
    # Step 2: otherwise choose the word for the canonical reason or, if that is none of these, for the blocks.
    if end.reason == "length":
        word = "max_tokens"
    elif end.reason == "halted":
        word = "refusal"
    elif has_calls:
        word = "tool_use"
    else:
        word = "refusal" if has_refusal else "end_turn"
    return {"stop_reason": word, "stop_sequence": None}


def render_usage(usage: Usage) -> Json:
    """Render the token counts; `input_tokens` excludes tokens read from the cache or written to it."""
    written = {"cache_creation_input_tokens": usage.written} if usage.written else {}
    return {
        "input_tokens": max(usage.prompt - usage.cached - usage.written, 0),
        **written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def render_citation(citation: Citation) -> Json:
    """Render the citation of a web page as a delta."""
    page = {"url": citation.url, "title": citation.title, "cited_text": citation.quote, "encrypted_index": ""}
    return {"type": "citations_delta", "citation": {"type": WEB_CITATION, **page}}


def render_error_event(failure: Failure) -> Json:
    """Render an error of a server of another API as an event."""
    kind = find_kind(failure.kind) or INTERNAL
    return {"type": "error", "error": {"type": kind.messages, "message": failure.message}}


def build_error(failure: Failure, status: int) -> Json:
    """Render an error for an HTTP status."""
    words = re.match(r"(\w+)_error$", failure.kind)
    known = find_kind_of_status(status).messages
    return {
        "type": "error",
        "error": {"type": failure.kind if words and status == 200 else known, "message": failure.message},
    }
