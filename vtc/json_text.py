"""Decode and encode JSON as servers send it: fast where it is proper, tolerant where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def decode(data: bytes, errors: Literal["strict", "replace"] = "strict") -> Any:
    """Decode the JSON of a server. Raises ValueError.

    `errors` is about bytes that are no UTF-8: clients replace them, so replies are decoded with `replace`. UTF-16 and
    UTF-32 are told by their zero bytes, as clients do.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        pass  # half a surrogate pair, a number beyond any type: Python's own decoder takes them
    except RecursionError as error:
        raise ValueError(str(error)) from None
    try:
        return json.loads(data if errors == "strict" else data.decode(json.detect_encoding(data), errors))
    except RecursionError as error:
        raise ValueError(str(error)) from None


def referred(root: Any, reference: Any) -> Any:
    """Find what a `$ref` of a JSON Schema refers to in its own root; None if there is nothing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    for step in filter(None, reference[1:].split("/")):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def is_proper(data: bytes) -> bool:
    """True if no client reads other JSON in this, or reads JSON where there is none for us."""
    try:
        _skip(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def encode(value: Any) -> bytes:
    """Encode compact JSON; a `msgspec.Raw` inside stands for itself."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, OverflowError):
        # Half a surrogate pair, an integer of more than 64 bits.
        return json.dumps(value, default=lambda raw: json.loads(bytes(raw)), separators=(",", ":")).encode()


_SEPARATORS = re.compile(b"\xe2\x80[\xa8\xa9]|\xc2\x85")
"""U+2028, U+2029 and U+0085, which stand raw in JSON and end a line for Python's `str.splitlines`."""


def encode_line(value: Any) -> bytes:
    """Encode compact JSON that is one line to every client: some cut a stream where only text would be cut."""
    return _SEPARATORS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), encode(value))
