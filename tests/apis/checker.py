"""Properties of a stream that all clients need: numbers, ids, names, the order of blocks, one end, usage once.

This module uses neither VTC nor the strict parsers: those check one client's view, this the frames.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

type Json = dict[str, Any]

NO_OBJECT = "arguments that are no object"
"""The fault of a call whose arguments are not an object; a server can send such a call, and VTC cannot repair it."""


def list_problems(api: str, body: bytes) -> list[str]:
    """List all faults of a stream."""
    return [*_CHECKS[api](_frames(body, lines=api == "ollama-chat"))]


def _frames(body: bytes, *, lines: bool) -> list[Json]:
    if lines:
        return [json.loads(line) for line in body.splitlines() if line.strip()]
    blocks = body.replace(b"\r\n", b"\n").split(b"\n\n")
    data = [
        b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")) for block in blocks
    ]
    return [json.loads(entry) for entry in data if entry and entry != b"[DONE]"]


def _fails(frames: list[Json]) -> bool:
    """Return True if the stream ends in an error, after which nothing else has to end."""
    last = frames[-1] if frames else {}
    return bool(last.get("error")) or last.get("type") in ("error", "response.failed")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text or "{}"), dict)
    except ValueError:
        return False


def _has_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() not in ("", "null")


def _chat(frames: list[Json]) -> Iterator[str]:
    calls: dict[tuple[int, int], Json] = {}
    arguments: dict[tuple[int, int], str] = {}
    ends: list[int] = []
    for choice in (choice for frame in frames for choice in frame.get("choices") or ()):
        index, delta = choice.get("index", 0), choice.get("delta") or {}
        if index in ends and (delta.get("content") or delta.get("tool_calls")):
            yield "something comes after the end of its choice"
        if "role" in delta and delta["role"] != "assistant":
            yield f"the role is {delta['role']!r}"
        for entry in delta.get("tool_calls") or ():
            function = entry.get("function") or entry.get("custom") or {}
            key = (index, entry.get("index"))
            if key not in calls:
                if entry.get("index") != sum(of == index for of, _ in calls):
                    yield f"the index {entry.get('index')} of a call does not follow the one before"
                if not (_has_text(entry.get("id")) and _has_text(function.get("name"))):
                    yield "a call begins without its id or its name"
                calls[key] = entry
            elif "name" in function or "id" in entry:
                yield "a later piece has a name or an id"
            if "function" in entry:
                arguments[key] = arguments.get(key, "") + (function.get("arguments") or "")
        if (reason := choice.get("finish_reason")) is not None:
            if not _has_text(reason) or index in ends:
                yield f"a second finish reason, or an empty one: {reason!r}"
            ends.append(index)
            if any(of == index for of, _ in calls) and reason == "stop":
                yield "calls were made, and stop is the reason"
            if not any(of == index for of, _ in calls) and reason == "tool_calls":
                yield "no call was made, and calls are the reason"
    if not _fails(frames) and not ({index for index, _ in calls} <= {*ends} and ends):
        yield "no end"
    if ends and "length" not in _reasons(frames) and not all(map(_is_object, arguments.values())):
        yield NO_OBJECT
    ids = [entry.get("id") for entry in calls.values()]
    if len({*ids}) != len(ids):
        yield "two calls of one id"
    if sum(bool(frame.get("usage")) for frame in frames) > 1:
        yield "the usage comes twice"


def _reasons(frames: list[Json]) -> set[Any]:
    return {choice.get("finish_reason") for frame in frames for choice in frame.get("choices") or ()}


_DELTAS = {
    "text_delta": ("text",),
    "input_json_delta": ("tool_use", "server_tool_use"),
    "thinking_delta": ("thinking",),
    "signature_delta": ("thinking",),
}


def _messages(frames: list[Json]) -> Iterator[str]:
    open_: int | None = None
    blocks: list[Json] = []
    inputs: dict[int, str] = {}
    ends = starts = stops = 0
    for event in frames:
        kind = event["type"]
        if ends and kind not in ("ping", "message_stop"):
            yield f"{kind} after the end"
        if kind == "message_start":
            starts += 1
        elif kind == "content_block_start":
            block = event["content_block"]
            if open_ is not None or event["index"] != len(blocks):
                yield f"block {event['index']} begins while {open_} is open"
            if block["type"] == "tool_use" and not (_has_text(block.get("id")) and _has_text(block.get("name"))):
                yield "a call without its id or its name"
            if block["type"] == "tool_use" and block.get("input"):
                yield "arguments in the start of a block"
            blocks.append(block)
            open_ = event["index"]
        elif kind == "content_block_delta":
            if event["index"] != open_:
                yield f"a delta of block {event['index']}, which is not open"
            elif blocks[open_]["type"] not in _DELTAS.get(event["delta"]["type"], (blocks[open_]["type"],)):
                yield f"a {event['delta']['type']} in a block of {blocks[open_]['type']}"
            inputs[event["index"]] = inputs.get(event["index"], "") + event["delta"].get("partial_json", "")
        elif kind == "message_stop":
            stops += 1
        elif kind == "content_block_stop":
            if event["index"] != open_:
                yield f"block {event['index']} ends, which is not open"
            open_ = None
        elif kind == "message_delta":
            ends += 1
            if open_ is not None or not _has_text(event["delta"].get("stop_reason")):
                yield "the end comes in a block, or says nothing"
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    cut = any(event.get("delta", {}).get("stop_reason") == "max_tokens" for event in frames)
    if not cut and not _fails(frames) and not all(map(_is_object, inputs.values())):
        yield NO_OBJECT
    if not _fails(frames) and (open_ is not None or stops != 1 or ends != 1):
        yield f"no end: block {open_} is open, {ends} ends, {stops} stops"
    if starts != 1 or ends > 1 or len({*ids}) != len(ids):
        yield f"{starts} starts, {ends} ends, calls {ids}"


def _responses(frames: list[Json]) -> Iterator[str]:
    items: dict[int, Json] = {}
    done: dict[int, Json] = {}
    arguments: dict[int, str] = {}
    last: list[Json] = []
    numbers = [event["sequence_number"] for event in frames if "sequence_number" in event]
    if numbers != [*range(numbers[0] if numbers else 0, len(numbers) + (numbers[0] if numbers else 0))]:
        yield "the events are not numbered in order"
    for event in frames:
        kind, place = event["type"], event.get("output_index")
        if last:
            yield f"{kind} after the end"
        if kind == "response.output_item.added":
            if place != len(items):
                yield f"item {place} follows {len(items)}"
            items[place] = event["item"]
        elif kind == "response.output_item.done":
            done[place] = event["item"]
            if place not in items:
                yield f"item {place} is done, and never began"
        elif place is not None and place not in items:
            yield f"{kind} of item {place}, which did not begin"
        if kind == "response.function_call_arguments.delta":
            arguments[place] = arguments.get(place, "") + event["delta"]
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            last = event["response"].get("output") or [{}]
    calls = [item for item in (*items.values(), *done.values(), *last) if item.get("type") == "function_call"]
    if not all(_has_text(item.get("name")) and _has_text(item.get("call_id")) for item in calls):
        yield "a call without its id or its name"
    for place, item in done.items():
        begun = items.get(place, item)
        if any(begun.get(key) != item.get(key) for key in ("id", "type", "call_id", "name")):
            yield f"item {place} ends as another one"
        if item.get("type") == "function_call" and arguments.get(place, item.get("arguments")) != item.get("arguments"):
            yield f"the pieces of item {place} are not its arguments"
    if not _fails(frames) and (items.keys() != done.keys() or not last):
        yield "an item is never done, or the response"
    if done and last and [item.get("id") for item in last] != [done[place].get("id") for place in sorted(done)]:
        yield "the response ends with other items"


def _ollama(frames: list[Json]) -> Iterator[str]:
    for line in frames[:-1]:
        if line.get("done"):
            yield "a line after the last one"
    if frames and not (frames[-1].get("done") or _fails(frames)):
        yield "no end"
    for call in (call for line in frames for call in line.get("message", {}).get("tool_calls") or ()):
        if not (_has_text(call["function"].get("name")) and isinstance(call["function"].get("arguments"), dict)):
            yield "a call without its name or an object"


def _gemini(frames: list[Json]) -> Iterator[str]:
    candidates = [candidate for event in frames for candidate in event.get("candidates") or ()]
    for part in (part for candidate in candidates for part in (candidate.get("content") or {}).get("parts") or ()):
        call = part.get("functionCall")
        if call and not (_has_text(call.get("name")) and isinstance(call.get("args", {}), dict)):
            yield "a call without its name or an object"
    ends = sum(bool(candidate.get("finishReason")) for candidate in candidates)
    if ends > 1 or not (ends or _fails(frames) or any("promptFeedback" in event for event in frames)):
        yield f"{ends} ends"


_CHECKS: Mapping[str, Callable[[list[Json]], Iterator[str]]] = {
    "openai-chat": _chat,
    "anthropic-messages": _messages,
    "openai-responses": _responses,
    "ollama-chat": _ollama,
    "gemini-generate": _gemini,
}
