"""What both halves of Anthropic Messages need: the framing and the words for why a message ended."""

from __future__ import annotations

from vtc.events import Reason
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
    "refusal": "other",
    "compaction": "other",
}
"""Stop reasons; any other is a stop."""
START, DELTA, STOP = (f"content_block_{what}" for what in ("start", "delta", "stop"))
