"""What a tool may be called: a call by another name is refused, and the name is not repeated."""

from __future__ import annotations

import re
from collections.abc import Container

from vtc.events import Call, Denied, Event, Intervention, OnFailure

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
MESSAGE = "A call was not carried out, as its name is none that a tool can have."


def is_name(text: str) -> bool:
    """True for what servers take for the name of a tool."""
    return _NAME.fullmatch(text) is not None


class Names:
    """Refuses calls by names that nobody declared and that are none: markup, several lines, letters that look alike."""

    held = ""
    reads_text = False
    on_failure: OnFailure = "refuse"

    def __init__(self, tools: Container[str]) -> None:
        self._tools = tools

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or event.call.name in self._tools or is_name(event.call.name):
            return [event]
        told = Intervention("unread_calls", "refused", "", "its name is none that a tool can have", event.call.name)
        return [told, Denied(event.raw, event.call, "steer", MESSAGE)]

    def finish(self) -> list[Event]:
        return []
