"""Conversations in which nobody says anything, or the model speaks first: servers refuse them.

Clients ask so whether a server is there, and show the model how it greeted.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given

SOMETHING = "Hello."


def something(asked: Asked, value: Any, _given: Given) -> tuple[Asked, str]:
    """Have the user say something; `first` also ahead of what the model says first."""
    opening = len([*takewhile(lambda one: one.role == "system", asked.messages)])
    head, rest = asked.messages[:opening], asked.messages[opening:]
    if rest and (value != "first" or rest[0].role == "user"):
        return asked, ""
    told = "the model spoke first" if rest else "nobody said anything"
    return replace(asked, messages=(*head, Message("user", (SOMETHING,)), *rest)), f"{told}: asked {SOMETHING!r}"
