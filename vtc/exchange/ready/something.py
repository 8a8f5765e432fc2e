"""Conversations in which nobody says anything: clients ask so whether a server is there, and servers refuse it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given

SOMETHING = "Hello."


def something(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Have the user say something."""
    if any(message.role != "system" for message in asked.messages):
        return asked, ""
    said = Message("user", (SOMETHING,))
    return replace(asked, messages=(*asked.messages, said)), f"nobody said anything: asked {SOMETHING!r}"
