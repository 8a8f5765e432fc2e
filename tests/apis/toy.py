"""A channel with a toy syntax: an API is told what becomes of a text and need not know why.

[name]   a call of `name` without arguments, held back until it is closed
(text)   a thought
~        markup, which leaves as nothing
{text}   leaves as <text>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vtc.events import Call, Event, Markup, Reasoning, Refusal, Rewritten, Text, ToolCall

CLOSERS = {"[": "]", "(": ")", "{": "}"}


@dataclass(slots=True)
class Toy:
    structured: bool = True
    held: str = ""
    released: bool = False
    calls_made: int = 0
    reasoning_seen: bool = False

    def feed(self, text: str) -> list[Event]:
        assert not self.released, "no text is fed after a release"
        self.held += text
        events: list[Event] = []
        while self.held:
            closer = CLOSERS.get(self.held[0])
            end = 1 if closer is None else self.held.find(closer) + 1
            if not end:
                break
            events.append(self._event(self.held[:end]))
            self.held = self.held[end:]
        return events

    def finish(self, *, complete: bool) -> list[Event]:
        return self.release()

    def reasoned(self) -> None:
        self.reasoning_seen = True

    def release(self) -> list[Event]:
        self.released = True
        held, self.held = self.held, ""
        return [Text(held), Refusal("not closed", "toy")] if held else []

    def calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        return [Rewritten("", f"[{call.name} {call.arguments} {call.id}]") for call in calls]

    def _event(self, raw: str) -> Event:
        inner = raw[1:-1]
        match raw[0]:
            case "[" if inner.isalnum() and self.structured:
                self.calls_made += 1
                return Call(raw, ToolCall(inner, "{}", f"id{self.calls_made}"), "toy")
            case "(":
                return Reasoning(raw)
            case "~":
                return Markup(raw)
            case "{":
                return Rewritten(raw, f"<{inner}>")
        return Text(raw)
