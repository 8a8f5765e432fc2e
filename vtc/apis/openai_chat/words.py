"""The words of chat completions that decoder and encoder share."""

from __future__ import annotations

import msgspec

from vtc.events import Reason
from vtc.wire.sse import EventStream

NAME = "openai-chat"


class Form(msgspec.Struct, frozen=True):
    """All of a request that the encoder of its reply must know."""

    legacy: bool = False
    """The older form of tools."""
    usage: bool = True
    """The client asks how many tokens were used, or for a whole reply, which says it."""
    thoughts: tuple[str, ...] = ()
    """The fields in which the client is told what the model thinks; none for those of the server."""
    custom: frozenset[str] = frozenset()
    """Names of custom tools."""


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
