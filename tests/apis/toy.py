"""A pipeline with a toy syntax, because an API needs to know only the events of a text.

[name]   a call of `name` without arguments, buffered until it is closed
(text)   reasoning
~        markup, which is removed
{text}   is sent as <text>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from vtc.apis.relay.choice import SentCall
from vtc.events import Call, CallDelta, Event, Markup, Reasoning, Rewritten, Text, ToolCall

CLOSERS = {"[": "]", "(": ")", "{": "}"}


@dataclass(slots=True)
class Toy:
    structured: bool = True
    guarded: bool = False
    """Check native calls: deny one named `bad`, rename one named `old`."""
    held: str = ""
    """Text that is buffered because its construct is not closed."""
    released: bool = False
    calls_made: int = 0
    lates: int = 0
    reasoning_seen: bool = False

    @property
    def plain(self) -> None:
        """Disable the fast path by reading all text."""

    plain_reasoning = plain

    @property
    def takes_calls(self) -> bool:
        return not self.structured or self.guarded

    def process_piece(self, delta: CallDelta) -> CallDelta | None:
        return None

    def end_calls(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        return {}

    @property
    def sent_calls(self) -> Sequence[SentCall]:
        return ()

    def process_calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        return [*map(self._upstreams, calls)]

    def record_late_content(self) -> None:
        self.lates += 1

    def feed(self, text: str) -> list[Event]:
        if self.released:
            return [Text(text)]
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

    def pause(self) -> list[Event]:
        held, self.held = self.held, ""
        return [Text(held)] if held else []

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        return [*self.release(), *map(self._upstreams, calls)]

    def record_reasoning(self, text: str) -> None:
        self.reasoning_seen = True

    def release(self) -> list[Event]:
        self.released = True
        held, self.held = self.held, ""
        return [Text(held)] if held else []

    def _upstreams(self, call: ToolCall) -> Event:
        if not self.structured or call.name == "bad":
            return Rewritten("", f"[{call.name} {call.arguments} {call.id}]")
        return Call("", replace(call, name="new") if call.name == "old" else call, "tool_calls")

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


class White(Toy):
    """A toy that buffers white space, as before a possible call."""

    def feed(self, text: str) -> list[Event]:
        output = "".join(event.raw for event in super().feed(text))
        body = output.rstrip()
        self.held = output[len(body) :]
        return [Text(body)] if body else []
