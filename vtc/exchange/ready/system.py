"""System messages: one at the beginning, and a place for those amid the conversation."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted
from vtc.exchange.ready.joining import joined

REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""How a system message that stands amid a conversation is told, where clients write their own so."""


def system(asked: Asked, value: Any, _given: Given) -> tuple[Asked, str]:
    """Join those at the beginning; the others the user says where they stand, or they join these, or they stay."""
    messages = asked.messages
    opening = [*takewhile(_is_system, messages)]
    rest = messages[len(opening) :]
    late = sum(map(_is_system, rest)) if value != "kept" else 0
    if len(opening) < 2 and not late:
        return asked, ""
    if value == "first":
        opening += filter(_is_system, rest)
        rest = tuple(one for one in rest if not _is_system(one))
    elif value == "folded":
        rest = tuple(map(_spoken, rest))
    told = f"{counted(late, 'system message')} {'put first' if value == 'first' else 'said by the user'}"
    head = (joined(opening, "\n\n"),) if opening else ()
    return replace(asked, messages=(*head, *rest)), told if late else "system messages joined"


def _is_system(message: Message) -> bool:
    """True for one that says something; an item that declares tools is none."""
    return message.role == "system" and bool(message.text or not message.content)


def _spoken(message: Message) -> Message:
    if not _is_system(message):
        return message
    return Message("user", tuple(REMINDER.format(one) if isinstance(one, str) else one for one in message.content))
