"""Names that the decoder and the encoder of Anthropic Messages share."""

from __future__ import annotations

from vtc.events import Origin, Reason
from vtc.wire.sse import EventStream

NAME = "anthropic-messages"
FRAMING = EventStream(named_by="type")
REASONS: dict[str, Reason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "other",
    "refusal": "halted",
    "compaction": "other",
}
"""Stop reasons; any other is a stop."""
START, DELTA, STOP = (f"content_block_{what}" for what in ("start", "delta", "stop"))
NO_BLOCK = -2
"""Stands for the number of what is about no block."""


def number_of(one: Origin) -> int:
    """Find upstream's number of the block that an event is about."""
    event = one.value if isinstance(one.value, dict) else {}
    number = event.get("index")
    return number if isinstance(number, int) and event.get("type") in (START, DELTA, STOP) else NO_BLOCK
