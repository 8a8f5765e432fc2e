"""JSON as servers send it, decoded fast where it is proper and tolerantly where it is not; and arguments as JSON text.

What is read and written of arguments stays, where it is not touched, what it was.
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


def is_unambiguous(data: bytes) -> bool:
    """True if no client reads other JSON in this, or reads JSON where there is none for us.

    Of a key that an object has twice some clients take the first value, and some the last. Clients in Go and .NET take
    two keys for one that differ only in upper and lower case.
    """
    try:
        _skip(data)
        _read_keys(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def has_distinct_keys(value: Any) -> bool:
    """True if no object in a value has two keys that some client takes for one."""
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
    """Fold a key to the form that all spellings share which a client may take for the same."""
    return key.upper().casefold()


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    """Check the keys of an object. Raises ValueError if it has one twice."""
    if len(pairs) > 1 and len({*map(str.casefold, map(str.upper, dict(pairs)))}) < len(pairs):
        raise ValueError("a key is given twice")


_read_keys = json.JSONDecoder(object_pairs_hook=_check_keys).decode


def encode(value: Any) -> bytes:
    """Encode compact JSON; a `msgspec.Raw` inside stands for itself."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, OverflowError):
        # Half a surrogate pair, an integer of more than 64 bits.
        return json.dumps(value, default=lambda raw: json.loads(bytes(raw)), separators=(",", ":")).encode()


_SEPARATORS = {text.encode(): b"\\u%04x" % ord(text) for text in "\u2028\u2029\u0085"}
"""Characters that may stand raw in JSON and end a line for Python's `str.splitlines`, and their escapes."""


def encode_line(value: Any) -> bytes:
    """Encode compact JSON that is one line to every client: some cut a stream where only text would be cut."""
    line = encode(value)
    for raw, escaped in _SEPARATORS.items():
        line = line.replace(raw, escaped)
    return line


# Arguments of calls


def parse(text: str, number: Callable[[str], Any] = float) -> Any:
    """The value of a JSON text; `number` reads a float. Raises ValueError, also for what is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_twice(text: str, number: Callable[[str], Any] = float) -> Any:
    """Read JSON as `read` does; arguments that are encoded twice are a text that holds JSON."""
    value = parse(text, number)
    return parse(value, number) if isinstance(value, str) else value


def parse_exact_number(text: str) -> float:
    """Read a number; raises ValueError if it would not be written as it was."""
    value = parse_kept_number(text)
    if isinstance(value, Decimal):
        raise ValueError(f"the number {text[:40]} would not survive")
    return value


def parse_kept_number(text: str) -> float | Decimal:
    """Read a number, for `write`: one that would not be written as it was is a Decimal."""
    value, exact = float(text), Decimal(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == exact else exact


def serialize(value: Any) -> str:
    """A value as JSON text, its numbers as they were read by `to_keep`."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        return _with_decimals.encode(value).decode()


def serialize_changed(received: str, arguments: Any) -> str:
    """Changed arguments as text; raises ValueError if a number that they came with would not be the same."""
    parse(received, parse_exact_number)
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _reject_constant(text: str) -> None:
    raise ValueError(f"JSON has no {text}")


_with_decimals = msgspec.json.Encoder(decimal_format="number")
