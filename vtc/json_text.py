"""JSON of servers, decoded fast if it is valid and tolerantly if not; and the JSON text of arguments.

Values of arguments that are not changed survive parsing and serialization exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

import msgspec

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def decode(data: bytes, errors: Literal["strict", "replace"] = "strict") -> Any:
    """Decode the JSON of a server. Raises ValueError.

    `errors` applies to bytes that are not UTF-8: clients replace them, so replies are decoded with `replace`. UTF-16
    and UTF-32 are detected by their zero bytes, as clients do.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        pass  # an unpaired surrogate, a number out of range: Python's own decoder accepts them
    except RecursionError as error:
        raise ValueError(str(error)) from None
    try:
        return json.loads(data if errors == "strict" else data.decode(json.detect_encoding(data), errors))
    except RecursionError as error:
        raise ValueError(str(error)) from None


def is_unambiguous(data: bytes) -> bool:
    """True if all clients parse these bytes as the same JSON.

    If an object repeats a key, some clients use the first value and some the last. Clients in Go and .NET ignore the
    case of keys.
    """
    try:
        _skip(data)
        _read_keys(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def has_distinct_keys(value: Any) -> bool:
    """True if no object in a value has two keys that a client could mistake for the same."""
    rest = [value]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            if len(node) > 1 and len({fold_key(key) for key in node}) < len(node):
                return False
            rest += node.values()
        elif isinstance(node, list | tuple):
            rest += node
    return True


def fold_key(key: str) -> str:
    """Fold the case of a key, so that keys which a client may treat as equal become equal."""
    return key.upper().casefold()


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    """Check that the keys of an object are distinct, without regard to case. Raises ValueError."""
    if len(pairs) > 1 and len({*map(str.casefold, map(str.upper, dict(pairs)))}) < len(pairs):
        raise ValueError("a key is given twice")


_read_keys = json.JSONDecoder(object_pairs_hook=_check_keys).decode


def encode(value: Any) -> bytes:
    """Encode as compact JSON; `msgspec.Raw` values are inserted as they are."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, OverflowError):
        # An unpaired surrogate, or an integer of more than 64 bits.
        return json.dumps(value, default=lambda raw: json.loads(bytes(raw)), separators=(",", ":")).encode()


_SEPARATORS = {text.encode(): b"\\u%04x" % ord(text) for text in "\u2028\u2029\u0085"}
"""Escapes for characters that JSON allows unescaped but Python's `str.splitlines` treats as line ends."""


def encode_line(value: Any) -> bytes:
    """Encode as compact JSON that every client sees as one line, because some split streams at Unicode line ends."""
    line = encode(value)
    for raw, escaped in _SEPARATORS.items():
        line = line.replace(raw, escaped)
    return line


def parse(text: str, number: Callable[[str], Any] = float) -> Any:
    """Parse a JSON text; `number` parses floats. Raises ValueError, also if the text is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_twice(text: str, number: Callable[[str], Any] = float) -> Any:
    """Parse JSON like `parse`, and once more if the value is a string, because some arguments are encoded twice."""
    value = parse(text, number)
    return parse(value, number) if isinstance(value, str) else value


def parse_exact_number(text: str) -> float:
    """Parse a number; raises ValueError if serializing it would change it."""
    value = parse_kept_number(text)
    if isinstance(value, Decimal):
        raise ValueError(f"the number {text[:40]} would not survive")
    return value


def parse_kept_number(text: str) -> float | Decimal:
    """Parse a number for `serialize`, as a Decimal if a float would change it."""
    value, exact = float(text), Decimal(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == exact else exact


def serialize(value: Any) -> str:
    """Serialize a value; numbers from `parse_kept_number` keep their value."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        return _with_decimals.encode(value).decode()


def serialize_changed(received: str, arguments: Any) -> str:
    """Serialize changed arguments; raises ValueError if a number in the received text would change."""
    parse(received, parse_exact_number)
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _reject_constant(text: str) -> None:
    raise ValueError(f"JSON has no {text}")


_with_decimals = msgspec.json.Encoder(decimal_format="number")
