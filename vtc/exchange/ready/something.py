"""A first message for conversations without any: clients send these to see whether a server is there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given

SOMETHING = "Hello."


def something(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Add a message of the user where there is none."""
    if any(message.role != "system" for message in asked.messages):
        return asked, ""
    said = Message("user", (SOMETHING,))
    return replace(asked, messages=(*asked.messages, said)), f"the request has no message: {SOMETHING!r} added"
