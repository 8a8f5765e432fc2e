"""One choice of a streamed chat completion: what is held of it, and what upstream's own calls add up to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any

from vtc.apis.base import Channel
from vtc.apis.openai_calls import Gathered
from vtc.apis.openai_json import CALL_FIELDS, said
from vtc.events import Call, Event, Intervention, Refusal, Rewritten, Text


@dataclass(slots=True)
class Held:
    """A frame whose text has not all left. A long call is thousands of them, so there is little in it."""

    text: str
    raw: bytes
    """The frame; it may hold more choices than this one."""
    whole: bool
    """Whether nothing of it has left, so that it may leave as it came."""
    lines: bytes = b""
    """Other lines of its frame (`event:`, `id:`) that have not left."""
    passed: str = ""
    """Text that may leave while white space behind it may not yet. For a client that reads text it waits for that, so
    that a reply which needs no change keeps its frames; for any other it leaves at once."""


@dataclass(slots=True)
class Choice:
    """One choice of the reply."""

    index: int
    channel: Channel
    held: deque[Held] = field(default_factory=deque)
    calls: int = 0
    role_sent: bool = False
    native: bool = False  # upstream sends tool_calls itself: its text is not read any more
    finished: bool = False
    gathered: Gathered = field(default_factory=Gathered)
    """Upstream's own calls, where the channel takes them."""
    frames: list[tuple[bytes, dict[str, Any]]] = field(default_factory=list)
    """The frames that those came in, and what else each says: calls that nobody changes leave in them."""
    apart: bool = False  # such a frame has left already, without its calls
    settled: bool = False
    """Upstream's own calls have left, or what was made of them."""

    def is_released(self, events: Sequence[Event], text: str) -> bool:
        """Whether what the client sees now is all of the frames that are held, and `text`."""
        if not events:
            return not self.held and not text
        if not self.held and not (len(events) == 1 and isinstance(events[0], Text)):
            return says(events, text)
        waited = -len(text)
        for event in events:
            if not isinstance(event, Text):
                return False
            waited += len(event.raw)
        for held in self.held:
            waited -= len(held.text)
        return not waited and (self.channel.structured or all(held.whole for held in self.held))

    def end(self, *, complete: bool) -> list[Event]:
        """The end of the choice: what the channel still holds, then what it makes of upstream's own calls."""
        calls = self.gathered.numbered()
        events = self.channel.finish(complete=complete, calls=calls)
        made = [event.call for event in events if isinstance(event, Call)]
        self.apart = self.apart or made != calls or any(isinstance(event, Rewritten) for event in events)
        return events


@dataclass(slots=True)
class Part:
    """One choice's part of a chunk, and what its channel made of the text (`read` if it went there at all)."""

    choice: Choice
    entry: dict[str, Any]
    delta: dict[str, Any]
    text: str
    changed: bool = False
    read: bool = False
    gathered: bool = False
    ended: bool = False
    events: list[Event] = field(default_factory=list)

    def late(self) -> Part:
        """What comes behind the end of a choice, without what a policy would have to see."""
        structured = self.choice.channel.structured
        gone = CALL_FIELDS if structured else (*CALL_FIELDS, "content")
        self.choice.channel.late()
        self.delta = {key: value for key, value in self.delta.items() if key not in gone}
        self.entry = {**self.entry, "delta": self.delta, "finish_reason": None}
        self.text = self.text if structured else ""
        self.changed = True
        return self


def says(events: Sequence[Event], text: str) -> bool:
    """Whether what the client sees of some events is just this text."""
    if len(events) == 1:
        return said(events[0]) == text
    return "".join(map(said, events)) == text


def apart_from_calls(events: Sequence[Event]) -> list[Event]:
    """What else there is, where calls leave in the frames that they came in."""
    return [event for event in events if not isinstance(event, Call)]


def joined(events: Iterable[Event]) -> Iterator[Event]:
    """The events that stand for characters, neighbouring text in one: a frame that leaves whole leaves as it came."""
    present = (event for event in events if not isinstance(event, Refusal | Intervention))
    for is_text, group in groupby(present, key=lambda event: isinstance(event, Text)):
        if is_text:
            yield Text("".join(event.raw for event in group))
        else:
            yield from group


class Untouched(list[bytes]):
    """Frames that say just what came."""


class Mark:
    """What a choice holds before a frame is read and written: if that fails, none of it has left."""

    __slots__ = ("_apart", "_calls", "_choice", "_counts", "_gathered", "_held", "_lists")

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._lists = choice.held, choice.frames
        self._counts = len(choice.held), len(choice.frames)
        self._apart, self._calls, self._gathered = choice.apart, choice.calls, choice.gathered.state()
        self._held: list[Held] | None = None

    def read(self, events: Sequence[Event]) -> None:
        """The frame was read. Without events nothing of what is held leaves, so that it need not be copied then, which
        would be for every piece of a long call."""
        if events:
            self._held = [replace(one) for one in self._lists[0]]

    def undo(self) -> None:
        """Have the choice hold again what it did."""
        choice, (held, frames) = self._choice, self._lists
        choice.held = deque(islice(held if self._held is None else self._held, self._counts[0]))
        choice.frames = frames[: self._counts[1]]
        choice.apart, choice.calls = self._apart, self._calls
        choice.gathered.restore(self._gathered)
