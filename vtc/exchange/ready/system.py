"""System messages: one at the beginning, and a place for those amid the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted
from vtc.exchange.ready.joining import joined

REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""How a system message that stands amid a conversation is told, where clients write their own so."""


def system(asked: Asked, value: Any, _given: Given) -> tuple[Asked, str]:
    """Join those at the beginning; the others the user says where they stand, or they join these, or they stay.

    `user`: the user says them all.
    """
    messages = asked.messages
    opening = [*takewhile(_is_system, messages)]
    rest = messages[len(opening) :]
    late = sum(map(_is_system, rest)) if value != "kept" else 0
    if len(opening) < (1 if value == "user" else 2) and not late:
        return asked, ""
    if value == "first":
        opening += filter(_is_system, rest)
        rest = tuple(one for one in rest if not _is_system(one))
    elif value != "kept":
        rest = tuple(map(_spoken, rest))
    if value == "user":
        return replace(asked, messages=_opened(opening, rest)), "what the system says said by the user"
    told = f"{counted(late, 'system message')} {'put first' if value == 'first' else 'said by the user'}"
    head = (joined(opening, "\n\n"),) if opening else ()
    return replace(asked, messages=(*head, *rest)), told if late else "system messages joined"


def _opened(opening: Sequence[Message], rest: Sequence[Message]) -> tuple[Message, ...]:
    """Have the user begin with what opened the conversation, as templates write a system message for such models."""
    if not opening:
        return tuple(rest)
    said = replace(joined(opening, "\n\n"), role="user", source=None)
    if not rest or rest[0].role != "user":
        return (said, *rest)
    return (replace(rest[0], content=joined([said, rest[0]], "\n\n").content), *rest[1:])


def _is_system(message: Message) -> bool:
    """True for one that says something; an item that declares tools is none."""
    return message.role == "system" and bool(message.text or not message.content)


def _spoken(message: Message) -> Message:
    if not _is_system(message):
        return message
    return Message("user", tuple(REMINDER.format(one) if isinstance(one, str) else one for one in message.content))
