"""JSON of the OpenAI API: decoding that takes what servers send, and the pieces that replies are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

CUT_OFF = "length"
KEPT_REASONS = (CUT_OFF, "content_filter")
"""Finish reasons that calls in the reply do not change."""


def decode(data: bytes) -> Any:
    """JSON of a server; raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        # Half a surrogate pair, a number beyond any type: Python's own decoder takes them.
        return json.loads(data)


def encode(value: Any) -> bytes:
    """Compact JSON; `msgspec.Raw` inside stands for itself."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, OverflowError):
        # Half a surrogate pair, an integer of more than 64 bits.
        return json.dumps(value, default=lambda raw: json.loads(bytes(raw)), separators=(",", ":")).encode()


def has_calls(message: Mapping[str, Any]) -> bool:
    """Whether a message or delta has calls in their structured form."""
    return bool(message.get("tool_calls") or message.get("function_call"))


def finish_reason(reason: str | None, *, legacy: bool) -> str:
    """What upstream's reason becomes when calls are delivered."""
    if reason in KEPT_REASONS:
        return str(reason)
    return "function_call" if legacy else "tool_calls"
