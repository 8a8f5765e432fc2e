"""The words of generateContent that decoder and encoder share."""

from __future__ import annotations

from vtc.events import Reason
from vtc.wire.sse import EventStream

NAME = "gemini"
FRAMING = EventStream()
REASONS: dict[str, Reason] = {"MAX_TOKENS": "length"}
"""Finish reasons; any other is `other`, as they do not speak of calls."""
HEAD = ("responseId", "modelVersion", "createTime")
"""The fields of every chunk."""
