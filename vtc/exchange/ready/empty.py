"""Messages that say nothing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted


def empty(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
    """Leave them out; a result without a word is one all the same."""

    def says(message: Message) -> bool:
        said = any(isinstance(part, str) or part.media or part.part is not None for part in message.content)
        return bool(said or message.calls or message.role == "tool" or given.request.beside(message))

    kept = tuple(filter(says, asked.messages))
    if not (gone := len(asked.messages) - len(kept)):
        return asked, ""
    return replace(asked, messages=kept), f"{counted(gone, 'empty message')} left out"
