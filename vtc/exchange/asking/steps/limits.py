"""Fit how much a model may say and think: its window, and the effort that is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from vtc.events import MAX_TOKENS, CanonicalRequest, Message, Tool
from vtc.exchange.asking.steps.messages import StepContext
from vtc.json_text import encode

# The window of the model: Ollama's API is told how long it is, others are not asked for more than is left of it.


MIN_BYTES_PER_TOKEN = 3
"""Bytes of a prompt that are a token, at the least, of text that people and programs write."""
MIN_REPLY_SHARE = 8
"""A reply is left at least this part of the window: what is left is only estimated, and the server knows it."""


def context(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Say how long the window is, and that the prompt must not be cut, or else lower the limit to what is left."""
    limits = request.limits
    if "context" in context.server.layout.limits:
        more = {"context": value, "truncate": False}
        if more.keys() <= limits.keys():
            return request, ""
        line = f"num_ctx {value} set" if "context" not in limits else "truncate false set"
        return replace(request, limits={**more, **limits}), line
    left = max(value - count_bytes(request.messages, request.tools) // MIN_BYTES_PER_TOKEN, value // MIN_REPLY_SHARE)
    return _lower_limit(request, left)


def max_tokens(request: CanonicalRequest, value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Lower the limit to the most that the server takes."""
    return _lower_limit(request, value)


def _lower_limit(request: CanonicalRequest, most: int) -> tuple[CanonicalRequest, str]:
    """Lower the limit on the reply to `most` tokens, if it is above."""
    wanted = request.limits.get(MAX_TOKENS)
    if not isinstance(wanted, int) or wanted <= most:
        return request, ""
    limits = {**request.limits, MAX_TOKENS: most}
    return replace(request, limits=limits), f"{MAX_TOKENS} {most}, as the server has room for no more"


def count_bytes(messages: Iterable[Message], tools: Iterable[Tool]) -> int:
    """Count the bytes of a prompt and its tools, images aside."""
    total = 0
    for message in messages:
        total += len(message.reasoning)
        for part in message.content:
            total += len(part) if isinstance(part, str) else 0
        for call in message.calls:
            total += len(call.name) + len(call.arguments)
    return total + sum(len(tool.description) + len(encode(tool.parameters)) for tool in tools)


# How much to think, for a model that cannot.


def force_stream(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Ask in a stream, whatever the client wants: it gets its reply whole, once all of that is there."""
    if request.stream:
        return request, ""
    return replace(request, stream=True), "asked in a stream, as the server answers in no other way"


def thinking(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Say nothing of it to a server of another API."""
    if request.effort is None:
        return request, ""
    return replace(request, effort=None), f"effort of thinking left out ({request.effort}), which the server refuses"
