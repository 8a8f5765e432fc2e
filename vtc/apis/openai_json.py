"""JSON of the OpenAI API: decoding that takes what servers send, and the pieces that replies are made of."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from vtc.events import Event, Rewritten, Text, ToolCall

CUT_OFF = "length"
CALL_FIELDS = ("tool_calls", "function_call")
KEPT_REASONS = (CUT_OFF, "content_filter")
"""Finish reasons that calls in the reply do not change."""


def decode(data: bytes, errors: Literal["strict", "replace"] = "strict") -> Any:
    """JSON of a server; raises ValueError. `errors` is about bytes that are no UTF-8; clients replace them."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        pass  # half a surrogate pair, a number beyond any type: Python's own decoder takes them
    except RecursionError as error:
        raise ValueError(str(error)) from None
    return json.loads(data if errors == "strict" else data.decode("utf-8-sig", errors))


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


def has_reasoning(message: Mapping[str, Any]) -> bool:
    """Whether a message or delta has reasoning of its own, beside its text."""
    return bool(message.get("reasoning_content") or message.get("reasoning"))


def call(entry: Mapping[str, Any], default_id: str | None = None) -> ToolCall:
    """One entry of `tool_calls`."""
    function = entry.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some send the object itself
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(str(function.get("name")), arguments or "{}", entry.get("id") or default_id, entry)


def cleaned(reply: Mapping[str, Any], drop: Collection[str]) -> dict[str, Any]:
    """A reply or chunk without the fields named, at its top, in choices, in messages and deltas, and in `usage`.

    Calls stay; where there are none their fields go, named or not.
    """

    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: each for key, each in value.items() if (each if key in CALL_FIELDS else key not in drop)}

    clean: dict[str, Any] = kept(reply)
    if isinstance(clean.get("usage"), dict):
        clean["usage"] = kept(clean["usage"])
    choices = clean.get("choices")
    if isinstance(choices, list):
        clean["choices"] = [
            {key: kept(value) if key in ("message", "delta") else value for key, value in kept(choice).items()}
            if isinstance(choice, dict)
            else choice
            for choice in choices
        ]
    return clean


def said(event: Event) -> str:
    """What of an event the client sees as text."""
    if isinstance(event, Text):
        return event.raw
    return event.text if isinstance(event, Rewritten) else ""


def text_reason(reason: str | None) -> str | None:
    """What upstream's reason becomes for a client that reads its calls as text."""
    return "stop" if reason in ("tool_calls", "function_call") else reason


def finish_reason(reason: str | None, *, legacy: bool) -> str:
    """What upstream's reason becomes when calls are delivered."""
    if reason in KEPT_REASONS:
        return str(reason)
    return "function_call" if legacy else "tool_calls"
