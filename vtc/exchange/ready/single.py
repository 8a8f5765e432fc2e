"""Several calls of one message, where a template takes one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted


def single(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Give each call a message of its own, with its result after it."""
    several = sum(len(message.calls) > 1 for message in asked.messages)
    if not several:
        return asked, ""
    messages = tuple(_apart(asked.messages))
    return replace(asked, messages=messages), f"{counted(several, 'message')} with several calls taken apart"


def _apart(messages: Sequence[Message]) -> Iterator[Message]:
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if len(message.calls) < 2:
            yield message
            continue
        after = [*takewhile(lambda one: one.role == "tool", messages[at:])]
        at += len(after)
        for place, call in enumerate(message.calls):
            yield replace(message, calls=(call,)) if not place else Message(message.role, calls=(call,))
            yield from (one for one in after if one.call_id == call.id)
            after = [one for one in after if one.call_id != call.id]
        yield from after
