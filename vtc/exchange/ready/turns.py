"""The model's turns: all that it said between two messages of others is one, so that its results follow it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted
from vtc.exchange.ready.joining import joined, may_join


def turns(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Join messages of the model that follow each other."""
    return joined_where(asked, lambda role: role == "assistant", " of the model")


def joined_where(asked: Asked, is_one: Callable[[str], bool], of: str = "") -> tuple[Asked, str]:
    """Join neighbours of each such role."""
    out: list[Message] = []
    for role, some in groupby(asked.messages, lambda one: one.role):
        turn = [*some]
        out += [joined(turn, "\n")] if is_one(role) and may_join(turn) else turn
    if not (gone := len(asked.messages) - len(out)):
        return asked, ""
    return replace(asked, messages=tuple(out)), f"{counted(gone, 'message')}{of} joined to the one before"
