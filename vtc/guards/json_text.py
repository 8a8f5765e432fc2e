"""Arguments of calls as JSON text, read and written so that what is not touched stays what it was."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from vtc.events import ToolCall


def read(text: str) -> Any:
    """The value of a JSON text; raises ValueError, also for what is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_exactly(text: str) -> Any:
    """As `read`; raises ValueError, too, for a number that would not be written as it was."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_to_change(text: str) -> Any:
    """As `read`, for `write`: a number that would not be written as it was is a Decimal."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_number_to_keep)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decoded(text: str, read: Callable[[str], Any] = read) -> Any:
    """Read arguments by one of these functions; those that are encoded twice are a text that holds JSON."""
    value = read(text)
    return read(value) if isinstance(value, str) else value


def write(value: Any) -> str:
    """A value, of `read_to_change` or made of one, as JSON text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        return _with_decimals.encode(value).decode()


def rewritten(call: ToolCall, arguments: Any) -> str:
    """Changed arguments as text; raises ValueError if a number that they came with would not be the same."""
    read_exactly(call.arguments)
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _no_number(text: str) -> None:
    raise ValueError(f"JSON has no {text}")


def _number(text: str) -> float:
    value = _number_to_keep(text)
    if isinstance(value, Decimal):
        raise ValueError(f"the number {text[:40]} would not survive")
    return value


def _number_to_keep(text: str) -> float | Decimal:
    value = float(text)
    exact = Decimal(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == exact else exact


_with_decimals = msgspec.json.Encoder(decimal_format="number")
