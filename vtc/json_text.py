"""Decode and encode the JSON of frames (bytes), and parse and serialize the JSON of arguments (text).

`decode_json` and `encode_json` are fast for valid JSON and accept some invalid JSON, as clients do. `parse` and
`serialize_json` keep unchanged numbers exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

import msgspec

_validate = msgspec.json.Decoder(msgspec.Raw).decode
"""Checks that bytes are valid JSON, without building the value."""


def decode_json(data: bytes, errors: Literal["strict", "replace"] = "strict") -> Any:
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
        _validate(data)
        _check_document(data.decode())
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
    # `fold_key` inline: every key of a reply passes here.
    if len(pairs) > 1 and len({*map(str.casefold, map(str.upper, dict(pairs)))}) < len(pairs):
        raise ValueError("a key occurs twice in one object")


_check_document = json.JSONDecoder(object_pairs_hook=_check_keys).decode
"""Runs `_check_keys` on every object of a JSON text; its result is meaningless."""


def encode_json(value: Any) -> bytes:
    """Encode as compact JSON; `msgspec.Raw` values are inserted as they are."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, OverflowError):
        # An unpaired surrogate, or an integer of more than 64 bits.
        return json.dumps(value, default=lambda raw: json.loads(bytes(raw)), separators=(",", ":")).encode()


_SEPARATORS = {text.encode(): b"\\u%04x" % ord(text) for text in "\u2028\u2029\u0085"}
"""Escapes for characters that JSON allows unescaped but Python's `str.splitlines` treats as line ends."""


def encode_line(value: Any) -> bytes:
    """Encode as compact JSON on one line, also for clients that split streams at Unicode line ends."""
    line = encode_json(value)
    for raw, escaped in _SEPARATORS.items():
        line = line.replace(raw, escaped)
    return line


def parse(text: str, parse_number: Callable[[str], Any] = float) -> Any:
    """Parse a JSON text. Raises ValueError, also if the text is nested too deeply.

    `parse_number` converts numbers with a fraction or an exponent; integers are always exact.
    """
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=parse_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_twice(text: str, parse_number: Callable[[str], Any] = float) -> Any:
    """Parse JSON like `parse`, and once more if the value is a string, because some arguments are encoded twice."""
    value = parse(text, parse_number)
    return parse(value, parse_number) if isinstance(value, str) else value


def parse_exact_float(text: str) -> float:
    """Parse a number as a float; raises ValueError if the float has another value."""
    value = parse_float_or_decimal(text)
    if isinstance(value, Decimal):
        raise ValueError(f"a float cannot represent the number {text[:40]}")
    return value


def parse_float_or_decimal(text: str) -> float | Decimal:
    """Parse a number as a float, or as a Decimal if the float would have another value; `serialize` accepts both."""
    value, exact = float(text), Decimal(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == exact else exact


def serialize_json(value: Any) -> str:
    """Serialize a value, including the numbers of `parse_float_or_decimal`, without changing any."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        return _decimal_encoder.encode(value).decode()


def serialize_changed(received: str, arguments: Any) -> str:
    """Serialize changed arguments; raises ValueError if a number in their original text `received` would change."""
    parse(received, parse_exact_float)
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _reject_constant(text: str) -> None:
    raise ValueError(f"JSON has no {text}")


_decimal_encoder = msgspec.json.Encoder(decimal_format="number")
"""Encodes Decimals as numbers, which Python's encoder rejects."""
