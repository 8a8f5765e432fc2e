"""Ids of calls, as a server takes them: each its own, and the same in every turn."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message, ToolCall
from vtc.exchange.ready.given import Given

_SHORT = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NINE = re.compile(r"[A-Za-z0-9]{9}")


def ids(asked: Asked, value: Any, _given: Given) -> tuple[Asked, str]:
    """Give each call an id of its own in this form, and its result the same; those that have one keep it."""
    form = _nine if value == "alphanumeric9" else _short
    if not any(one.calls or one.role == "tool" for one in asked.messages):
        return asked, ""
    messages = tuple(_in_form(one, form) for one in _numbered(asked.messages))
    changed = sum(one is not came for one, came in zip(messages, asked.messages, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, messages=messages), f"ids of calls in {changed} message{'s' * (changed != 1)} made anew"


def _short(id_: str) -> str:
    return id_ if _SHORT.fullmatch(id_) else f"call_{_digest(id_)[:24]}"


def _nine(id_: str) -> str:
    return id_ if _NINE.fullmatch(id_) else _digest(id_)[:9]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _in_form(message: Message, form: Any) -> Message:
    given = [call.id and form(call.id) for call in message.calls]
    call_id = message.call_id and form(message.call_id)
    if call_id == message.call_id and all(id_ == call.id for id_, call in zip(given, message.calls, strict=True)):
        return message
    calls = tuple(with_fields(call, id=id_) for id_, call in zip(given, message.calls, strict=True))
    return replace(message, calls=calls, call_id=call_id)


def _numbered(messages: Iterable[Message]) -> Iterator[Message]:
    """Give calls ids of their own, by their place in the conversation if need be, and results those of their calls."""
    count = 0
    taken: dict[str, str] = {}  # by the id of a call, the one that the last call of this id got
    waiting: list[tuple[str | None, ToolCall]] = []
    before = ""
    for message in messages:
        calls: list[ToolCall] = []
        if message.calls and before != "assistant":
            waiting = [(id_, call) for id_, call in waiting if id_ is None]
        for call in message.calls:
            count += 1
            id_ = call.id or f"call_vtc{count}"
            if id_ in taken:
                id_ = f"{id_[:28]}_vtc{count}"
            taken[call.id or id_] = taken[id_] = id_
            calls.append(call if id_ == call.id else with_fields(call, id=id_))
            waiting.append((call.id, calls[-1]))
        before = message.role
        if message.role != "tool":
            same = all(one is came for one, came in zip(calls, message.calls, strict=True))
            yield message if same else replace(message, calls=tuple(calls))
            continue
        wanted = message.call_id or None
        fits = (
            one for one in waiting if (one[0] or None) == wanted and (one[0] or message.name in (None, one[1].name))
        )
        if found := next(fits, None):
            waiting.remove(found)
            yield _answering(message, found[1].id, found[1].name)
        else:
            yield _answering(message, taken.get(message.call_id or "", message.call_id), message.name)


def _answering(message: Message, call_id: str | None, name: str | None) -> Message:
    """The result of a call; the name is of no moment where the result says another."""
    if call_id == message.call_id and (name == message.name or message.name):
        return message
    return replace(message, call_id=call_id, name=name)
