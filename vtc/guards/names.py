"""What a tool may be called: a call by another name is refused, and the name is not repeated."""

from __future__ import annotations

import re
from collections.abc import Container

from vtc.events import Call, Denied, Event, Intervention
from vtc.guards.guard import Guard

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
MESSAGE = "A call was not carried out, as its name is none that a tool can have."


def is_name(text: str) -> bool:
    """True for what servers take for the name of a tool."""
    return _NAME.fullmatch(text) is not None


class Names(Guard):
    """Refuses calls by names that nobody declared and that are none: markup, several lines, letters that look alike."""

    def __init__(self, tools: Container[str]) -> None:
        super().__init__(refuses=lambda name: name not in tools and not is_name(name), on_failure="refuse")

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or not self.may_refuse(event.call.name):
            return [event]
        told = Intervention("unread_calls", "refused", "", "its name is none that a tool can have", event.call.name)
        return [told, Denied(event.raw, event.call, "steer", MESSAGE)]
