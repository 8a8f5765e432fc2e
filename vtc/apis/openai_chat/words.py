"""The words of chat completions that decoder and encoder share."""

from __future__ import annotations

from vtc.events import Reason
from vtc.wire.sse import EventStream

NAME = "openai-chat"
FRAMING = EventStream(last=b"data: [DONE]\n\n")
REASONS: dict[str, Reason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "halted",
    "error": "halted",  # OpenRouter
    "abort": "halted",  # vLLM, SGLang
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
"""Finish reasons; any other is a stop."""
