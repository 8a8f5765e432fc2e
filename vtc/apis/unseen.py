"""Frames that cannot be read, where nothing may leave that was not: JavaScript reads what is too much for us."""

from __future__ import annotations

import json
import re
from typing import Any

from vtc.apis.base import Codec, Decoded
from vtc.apis.fields import part_of
from vtc.events import CallDelta, ServerError
from vtc.json_text import decode, encode
from vtc.wire import sse
from vtc.wire.framing import Frame

SAYING = ("choices", "message", "delta", "content", "content_block", "output", "item", "response", "tool_calls")
"""Keys of all APIs under which a client may find a call."""

_DATA = re.compile(rb"data:|\{")
_CALLS = (
    "tool_use",
    "input_json_delta",
    "function_call",
    "custom_tool_call",
    "response.function_call_arguments",
    "response.custom_tool_call_input",
)
"""Beginnings of the types of calls, and of pieces of their arguments."""
_CALLING = (b"tool_use", b"input_json", b"function_call", b"tool_call", b"\\u")
"""What stands in the JSON of every call; an escape may stand for any of it."""


class Unread(ValueError):
    """A frame that is not passed on."""


def decoded(codec: Codec, frame: Frame) -> Decoded | None:
    """Decode a frame; None for one in which no client finds a call. Raises `Unread` for any other that is not read."""
    if isinstance(codec.framing, sse.EventStream) and _DATA.search(sse.other_lines(frame.raw)):
        raise Unread("data stand in a comment")  # some clients end lines where no server does, or mind no fields
    came, frame = frame, _without_calls(codec, frame)
    try:
        found = codec.decode(frame)
    except Exception as error:
        raise Unread(type(error).__name__) from error
    if found and frame is not came and found.frame is None:
        found = Decoded(found.deltas, found.alone, frame)
    is_read = any(not isinstance(delta, ServerError) for delta in found.deltas) if found else False
    if not is_read and frame.data and (found is None or found.deltas) and not says_nothing(frame.data):
        raise Unread("it is nothing of this API")
    if calls(frame.data or b"") > _read(found):
        raise Unread("it holds a call where none should be")
    return found


def _without_calls(codec: Codec, frame: Frame) -> Frame:
    """Leave the calls out of a whole response that an event repeats: those that were delivered are put in again."""
    if not codec.framing.end or not any(word in (frame.data or b"") for word in _CALLING):
        return frame
    try:
        event = decode(frame.data or b"", "replace")
    except ValueError:
        return frame
    output = part_of(event, "response").get("output") if isinstance(event, dict) else None
    if not isinstance(output, list) or not output:
        return frame
    kept = [item for item in output if not _count([item])]
    event = {**event, "response": {**event["response"], "output": kept}}
    return Frame(codec.framing.write(event, frame, first=True), encode(event))


def _read(found: Decoded | None) -> int:
    """How many calls were read of a frame."""
    return sum(isinstance(delta, CallDelta) for delta in (found.deltas if found else ()))


def calls(data: bytes) -> int:
    """How many calls, or pieces of them, stand in a frame, wherever that may be."""
    if json.detect_encoding(data).startswith("utf-8") and not any(word in data for word in _CALLING):
        return 0
    try:
        return _count([_with_all(data)])
    except ValueError:
        return 0  # not JSON, which is looked at elsewhere


def _with_all(data: bytes) -> Any:
    """Decode JSON with what stands under a key that is given again: some clients take the first of two. ValueError."""

    def of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        return value if len(value) == len(pairs) else {**value, "": [{key: one} for key, one in pairs]}

    try:
        return json.loads(data.decode(json.detect_encoding(data), "replace"), object_pairs_hook=of)
    except (ValueError, RecursionError):
        return decode(data, "replace")


def _count(rest: list[Any]) -> int:
    count = 0
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        elif isinstance(value, dict):
            count += str(value.get("type")).startswith(_CALLS)
            held = value.get("tool_calls")
            count += len(held) if isinstance(held, list | dict) else bool(held)
            count += isinstance(value.get("function_call"), dict)
            rest += [one for key, one in value.items() if key not in ("input", "arguments")]
    return count


def says_nothing(data: bytes) -> bool:
    """True for a ping, an error and the like."""
    try:
        value = decode(data, "replace")
    except ValueError:
        return b"{" not in data  # a page of HTML, a word
    for one in value if isinstance(value, list) else [value]:
        said = [key for key in SAYING if isinstance(one, dict) and one.get(key)]
        if said and not (said == ["message"] and isinstance(one["message"], str)):  # an error's own text
            return False
    return not calls(data)  # under whatever key
