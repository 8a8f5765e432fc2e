"""A message of the user, where a conversation has none or the model speaks first: servers refuse that.

Clients send an empty one to see whether a server is there, and show the model how it greeted.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given

SOMETHING = "Hello."


def something(asked: Asked, value: Any, _given: Given) -> tuple[Asked, str]:
    """Add a message of the user where there is none; `first` also ahead of what the model says first."""
    opening = len([*takewhile(lambda one: one.role == "system", asked.messages)])
    head, rest = asked.messages[:opening], asked.messages[opening:]
    if rest and (value != "first" or rest[0].role == "user"):
        return asked, ""
    told = "the model speaks first" if rest else "the request has no message"
    return replace(asked, messages=(*head, Message("user", (SOMETHING,)), *rest)), f"{told}: {SOMETHING!r} added"
