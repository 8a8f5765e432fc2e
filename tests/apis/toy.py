"""A channel with a toy syntax: an API is told what becomes of a text and need not know why.

[name]   a call of `name` without arguments, held back until it is closed
(text)   a thought
~        markup, which leaves as nothing
{text}   leaves as <text>
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vtc.events import Call, Event, Markup, Reasoning, Refusal, Rewritten, Text, ToolCall

TOKENS = re.compile(r"\[(?P<call>\w+)\]|\((?P<thought>[^()]*)\)|(?P<markup>~)|\{(?P<other>[^{}]*)\}")


@dataclass(slots=True)
class Toy:
    structured: bool = True
    held: str = ""
    released: bool = False
    calls_made: int = 0

    def feed(self, text: str) -> list[Event]:
        assert not self.released, "no text is fed after a release"
        self.held += text
        events: list[Event] = []
        while self.held:
            if found := TOKENS.match(self.held):
                events.append(self._event(found))
                self.held = self.held[found.end() :]
            elif self.held[0] in "[({" and not re.search(r"[])}]", self.held):
                break
            else:
                events.append(Text(self.held[0]))
                self.held = self.held[1:]
        return events

    def finish(self, *, complete: bool) -> list[Event]:
        return self.release()

    def release(self) -> list[Event]:
        self.released = True
        held, self.held = self.held, ""
        return [Text(held), Refusal("not closed", "toy")] if held else []

    def calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        return [Rewritten("", f"[{call.name} {call.arguments} {call.id}]") for call in calls]

    def _event(self, found: re.Match[str]) -> Event:
        match found.lastgroup:
            case "call":
                self.calls_made += 1
                call = ToolCall(found["call"], "{}", f"id{self.calls_made}")
                return Call(found[0], call, "toy") if self.structured else Rewritten(found[0], f"<{call.name}>")
            case "thought":
                return Reasoning(found[0])
            case "markup":
                return Markup(found[0])
        return Rewritten(found[0], f"<{found['other']}>")
