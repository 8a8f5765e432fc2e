"""The fields of JSON bodies: their values, and the original bytes of those of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from vtc.json_text import decode_json, encode_json
from vtc.wire.framing import Frame, Framing

INVALID_BODY_ERRORS = (ValueError, UnicodeError, AttributeError, TypeError, KeyError, RecursionError)
"""The errors that decoding raises for an invalid body."""


def describe_body_fault(error: Exception) -> str:
    """Describe why a body is invalid, without quoting any of it."""
    match error:
        case UnicodeError():  # its own text may be the whole body
            return "not UTF-8"
        case json.JSONDecodeError():
            return f"not JSON ({error})"
        case KeyError():
            return f"{error} is missing"
        case AttributeError():
            return "a value has a type that the API does not allow"
        case RecursionError():
            return "nested too deeply"
        case _:
            return str(error)


_NESTED_FIELDS = ("choices", "message", "delta", "response", "item", "part", "usage")
REPLY_FIELDS = ("choices", "message", "delta", "content", "index", "finish_reason")
"""Fields that every reply of chat completions needs."""
CALL_FIELDS = ("tool_calls", "function_call")
"""The fields of a message of chat completions that hold its calls."""

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Matches an escape in JSON; the group matches half of a surrogate pair."""
REPLACED_SURROGATES = "halves of characters (of an emoji that was cut) replaced by U+FFFD"
"""The line in the report about replaced halves of characters."""


def _replace_surrogates(body: bytes) -> bytes:
    """Replace halves of surrogate pairs by U+FFFD; the same bytes if there are none."""
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], body)


def split_body(body: bytes, *, repair: bool = False) -> tuple[dict[str, msgspec.Raw], dict[str, Any], bool]:
    """Split a body into the bytes of each field and the decoded fields. Raises ValueError.

    `repair` replaces halves of characters (an emoji that was cut) by U+FFFD. The last value is True if there were any.
    """
    try:
        raw = _raw_object.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # JavaScript programs that cut text may cut an emoji in two.
        if repair:
            whole = _replace_surrogates(body)
            if whole != body:
                return *split_body(whole)[:2], True
        # Only Python's decoder accepts the body, so there are no original bytes to keep.
        fields: dict[str, Any] = decode_json(body)
        return {key: msgspec.Raw(encode_json(value)) for key, value in fields.items()}, fields, False
    return raw, {key: decode_json(bytes(value)) for key, value in raw.items()}, False


def split_items(raw: bytes, values: Sequence[Any]) -> list[msgspec.Raw]:
    """Split a list into the bytes of its items; `values` is the decoded list."""
    try:
        return _raw_list.decode(raw)
    except msgspec.DecodeError:
        return [msgspec.Raw(encode_json(value)) for value in values]


def split_raw_object(raw: bytes) -> dict[str, msgspec.Raw] | None:
    """Split an object into the bytes of its fields; None if it is none. Raises ValueError."""
    try:
        return _raw_object.decode(raw)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        fields = decode_json(bytes(raw))
    return {key: msgspec.Raw(encode_json(value)) for key, value in fields.items()} if isinstance(fields, dict) else None


def split_raw_list(raw: bytes) -> list[msgspec.Raw] | None:
    """Split a list into the bytes of its items; None if it is none. Raises ValueError."""
    try:
        return _raw_list.decode(raw)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        values = decode_json(bytes(raw))
    return [msgspec.Raw(encode_json(value)) for value in values] if isinstance(values, list) else None


def object_of(data: bytes | None) -> dict[str, Any] | None:
    """Decode the JSON object in the data of a frame; None if the data are anything else."""
    try:
        value = decode_json(data or b"null", "replace")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


_ENVELOPE_CONTENT = ("data", "result", "response")
_ENVELOPE_FIELDS = {
    "success",
    "code",
    "status",
    "message",
    "msg",
    "error",
    "errors",
    "request_id",
    "requestId",
    "timestamp",
}


def unwrap_envelope(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Unwrap the object from a gateway's envelope, `{"data": {…}, "success": true}`; None if there is no envelope."""
    inside = [key for key in _ENVELOPE_CONTENT if value and isinstance(value.get(key), dict)]
    if value is None or len(inside) != 1 or not value.keys() <= {*inside, *_ENVELOPE_FIELDS}:
        return None
    plain = all(not isinstance(value[key], dict | list) or not value[key] for key in value.keys() - {*inside})
    inner: dict[str, Any] = value[inside[0]]
    return inner if plain and not value.get("error") and value.get("success") is not False else None


def unwrap_frame(frame: Frame, framing: Framing) -> Frame | None:
    """Unwrap a frame from the envelopes of gateways, also from nested ones at once; None if there is none."""
    found, inner = None, unwrap_envelope(object_of(frame.data))
    while inner is not None:
        found, inner = inner, unwrap_envelope(inner)
    if found is None:
        return None
    data = encode_json(found)
    return Frame(framing.encode([found], frame)[0], data)


def is_error(value: Mapping[str, Any]) -> bool:
    """Return True for an error frame, in any of the forms that servers use."""
    return bool(value.get("error")) or "error" in (value.get("type"), value.get("object"))


def part_of(value: Any, key: str) -> Mapping[str, Any]:
    """Return the object in a field of an object; empty if there is none."""
    part = value.get(key) if isinstance(value, dict) else None
    return part if isinstance(part, dict) else {}


def split_entries(listed: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """Split a list into its objects and all other entries. A value that is no list is itself an other entry."""
    if not isinstance(listed, list):
        return [], [listed] if listed else []
    objects = [entry for entry in listed if isinstance(entry, dict)]
    return objects, [entry for entry in listed if not isinstance(entry, dict)]


def text_at(value: Mapping[str, Any], key: str) -> str | None:
    """Return the text in a field of an object; None if there is none."""
    text = value.get(key)
    return text if isinstance(text, str) else None


def get_at(value: Any, path: str) -> Any:
    """Return the value at a dotted path in an object; None if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def put_at(value: Mapping[str, Any], path: str, entry: Any) -> dict[str, Any]:
    """Return an object with an entry at a dotted path; objects on the way are made if there are none."""
    key, _, rest = path.partition(".")
    inner = value.get(key)
    return {**value, key: put_at(inner if isinstance(inner, Mapping) else {}, rest, entry) if rest else entry}


def count_of(value: Any, key: str) -> int:
    """Return the whole number in a field of an object; 0 if there is none."""
    count = value.get(key) if isinstance(value, Mapping) else None
    return count if isinstance(count, int) else 0


def remove_fields(value: Any, names: Collection[str]) -> Any:
    """Remove fields by name, at the top of a reply and in the objects that are its parts.

    Fields with calls stay; empty ones are removed even if they are not named. The text of a refusal stays, because it
    is the model's answer.
    """
    if isinstance(value, list):
        return [remove_fields(entry, names) for entry in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: entry
        for key, entry in value.items()
        if (entry if key in CALL_FIELDS else key not in names or (entry and key == "refusal"))
    }
    return {key: remove_fields(value, names) if key in _NESTED_FIELDS else value for key, value in kept.items()}


def drop_frame_fields(
    frame: Frame, value: Any, names: Collection[str], framing: Framing, original: Any = None
) -> tuple[Frame, Any]:
    """Remove fields from a frame; return the re-encoded frame and value, or the same ones if nothing was removed.

    `original` is the value in the frame if `value` already differs.
    """
    clean = remove_fields(value, names) if names else value
    if clean == (value if original is None else original):
        return frame, value
    return Frame(framing.encode([clean], frame)[0], encode_json(clean)), clean
