"""Arguments of calls as JSON text, read and written so that what is not touched stays what it was."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

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


def rewritten(call: ToolCall, arguments: Any) -> str:
    """Changed arguments as text; raises ValueError if a number that they came with would not be the same."""
    read_exactly(call.arguments)
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _no_number(text: str) -> None:
    raise ValueError(f"JSON has no {text}")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or Decimal(repr(value)) != Decimal(text):
        raise ValueError(f"the number {text[:40]} would not survive")
    return value
