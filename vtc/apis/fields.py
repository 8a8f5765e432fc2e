"""The fields of a request's body: what they say, and the bytes in which they came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from vtc.events import Tool
from vtc.json_text import decode, encode

UNFIT = (ValueError, UnicodeError, AttributeError, TypeError, KeyError, RecursionError)
"""What a body raises that is no request."""
_MOST_TOOLS = 256 << 10
"""Bytes of declarations beyond which they are not kept for the next request."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])

type Declared = Callable[[Mapping[str, Any]], Sequence[Tool]]
"""Reads the tools that some fields declare."""


def raws(
    body: bytes, keys: Sequence[str], read: Declared
) -> tuple[dict[str, msgspec.Raw], dict[str, Any], Sequence[Tool]]:
    """Split a body into the bytes of every field, what the fields say, and the tools that those of `keys` declare.

    Raises ValueError.
    """
    try:
        raw = _raw_object.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # It takes Python's own decoder, so there are no bytes to keep: JavaScript cuts emoji in two when it cuts text.
        fields: dict[str, Any] = decode(body)
        return {key: msgspec.Raw(encode(value)) for key, value in fields.items()}, fields, read(fields)
    known = {key: bytes(raw[key]) for key in keys if key in raw}
    if sum(map(len, known.values())) <= _MOST_TOOLS:
        declared, tools = _declared(tuple(known.items()), read)
    else:
        declared, tools = _declared.__wrapped__(tuple(known.items()), read)
    fields = {key: declared[key] if key in declared else decode(bytes(one)) for key, one in raw.items()}
    return raw, fields, tools


@lru_cache(maxsize=64)
def _declared(fields: tuple[tuple[str, bytes], ...], read: Declared) -> tuple[dict[str, Any], Sequence[Tool]]:
    """Declarations of tools, decoded; agents send the same ones with every request, and exchanges share them."""
    declared = {key: decode(raw) for key, raw in fields}
    return declared, read(declared)


def items(raw: bytes, values: Sequence[Any]) -> list[msgspec.Raw]:
    """Split a list into the bytes of its items; `values` is what it says."""
    try:
        return _raw_list.decode(raw)
    except msgspec.DecodeError:
        return [msgspec.Raw(encode(value)) for value in values]


def without(value: Any, path: Sequence[str]) -> Any:
    """Leave out of JSON what stands at a path; `*` is any key or index."""
    key, *rest = path
    if isinstance(value, list):
        is_this = [key in ("*", str(index)) for index in range(len(value))]
        if rest:
            return [without(one, rest) if this else one for this, one in zip(is_this, value, strict=True)]
        return [one for this, one in zip(is_this, value, strict=True) if not this]
    if isinstance(value, dict):
        if rest:
            return {name: without(one, rest) if key in ("*", name) else one for name, one in value.items()}
        return {name: one for name, one in value.items() if key not in ("*", name)}
    return value


def changed(fields: dict[str, Any], drop: Sequence[str], set_: Mapping[str, Any] | None) -> bytes:
    """Encode fields without what stands below them at the dotted paths of `drop`, and with those of `set_`."""
    for path in drop:
        key, _, rest = path.partition(".")
        if rest and key in fields:
            fields[key] = without(decode(encode(fields[key])), rest.split("."))
    return encode({**fields, **(set_ or {})})
