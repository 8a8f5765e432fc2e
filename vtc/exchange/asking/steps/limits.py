"""Steps about the length of the reply and the effort: the model's window, the token limit, streaming."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from vtc.apis.layout import MAX_TOKENS
from vtc.events import CanonicalRequest, Message, ThinkingForm, Tool
from vtc.exchange.asking.steps.messages import StepContext
from vtc.json_text import encode_json

MIN_BYTES_PER_TOKEN = 3
"""Bytes per token of ordinary text, at least."""
MIN_REPLY_SHARE = 8
"""At least the window divided by this remains for the reply, because the estimate of the prompt may be too high."""


def set_context(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Set the window's length and forbid truncation (Ollama), or limit the reply to the remaining window."""
    limits = request.limits
    if "context" in context.server.layout.limits:
        more = {"context": value, "truncate": False}
        if more.keys() <= limits.keys():
            return request, ""
        line = f"num_ctx {value} set" if "context" not in limits else "truncate false set"
        return replace(request, limits={**more, **limits}), line
    left = max(value - count_bytes(request.messages, request.tools) // MIN_BYTES_PER_TOKEN, value // MIN_REPLY_SHARE)
    return _lower_limit(request, left)


def lower_max_tokens(request: CanonicalRequest, value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Lower the token limit to the server's maximum."""
    return _lower_limit(request, value)


def _lower_limit(request: CanonicalRequest, most: int) -> tuple[CanonicalRequest, str]:
    """Lower the token limit of the reply to `most` if it is higher."""
    wanted = request.limits.get(MAX_TOKENS)
    if not isinstance(wanted, int) or wanted <= most:
        return request, ""
    limits = {**request.limits, MAX_TOKENS: most}
    return replace(request, limits=limits), f"{MAX_TOKENS} {most}, the most that the server accepts"


def count_bytes(messages: Iterable[Message], tools: Iterable[Tool]) -> int:
    """Count the bytes of messages and tools, without images."""
    total = 0
    for message in messages:
        total += len(message.reasoning)
        for part in message.content:
            total += len(part) if isinstance(part, str) else 0
        for call in message.calls:
            total += len(call.name) + len(call.arguments)
    return total + sum(len(tool.description) + len(encode_json(tool.parameters)) for tool in tools)


def force_stream(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Request a stream even if the client wants a whole reply, which it gets once the stream is complete."""
    if request.stream:
        return request, ""
    return replace(request, stream=True), "requested as a stream, because the server only streams"


def drop_effort(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Drop the effort for a server that rejects it."""
    if request.effort is None:
        return request, ""
    line = f"reasoning effort left out ({request.effort}), because the server rejects it"
    return replace(request, effort=None, thinking=ThinkingForm()), line
