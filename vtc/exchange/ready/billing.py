"""The line with which Claude Code begins its prompt: it differs in each request, and only its own server wants it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.apis.content import BILLING, without_billing
from vtc.events import Asked, Message, Opaque
from vtc.exchange.ready.given import Given


def billing(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
    """Leave the line out; what stands after it in the same text stays."""

    def left(part: str | Opaque) -> str | Opaque | None:
        said = part if isinstance(part, str) else given.request.meaning(part.part) if part.part is not None else None
        if not isinstance(said, str) or not said.startswith(BILLING):
            return part
        return without_billing(said) or None

    def without(message: Message) -> Message:
        if message.role != "system":
            return message
        parts = [left(part) for part in message.content]
        if all(part is came for part, came in zip(parts, message.content, strict=True)):
            return message
        return replace(message, content=tuple(part for part in parts if part is not None))

    messages = tuple(map(without, asked.messages))
    if all(one is came for one, came in zip(messages, asked.messages, strict=True)):
        return asked, ""
    return replace(asked, messages=messages), "the billing line left out"
