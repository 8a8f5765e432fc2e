"""What a step may look at besides the request that it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vtc.apis import Api, Request
from vtc.apis.crossing import WireNames
from vtc.events import CanonicalRequest, Message, Opaque


class StepContext(NamedTuple):
    """The client's request, which knows its own parts; the server's API; the names of tools there and back."""

    request: Request
    server: Api
    names: WireNames


type Step = Callable[[CanonicalRequest, Any, StepContext], tuple[CanonicalRequest, str]]
"""Takes the value of its key; returns what is asked instead, and one line for people: what changed, or why nothing did
where they would wonder."""


def counted(count: int, what: str) -> str:
    """`1 message`, `2 messages`"""
    return f"{count} {what}{'s' * (count != 1)}"


def said_in(message: Message, between: str) -> tuple[str | Opaque, ...]:
    """Join the texts of a message that stand side by side; the same parts if none do."""
    if sum(isinstance(part, str) for part in message.content) < 2:
        return message.content
    parts: list[str | Opaque] = []
    for part in message.content:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += between + part
        else:
            parts.append(part)
    return tuple(parts) if len(parts) < len(message.content) else message.content
