"""What leaves the reader: events in order, and the white space that waits since a call may follow it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto

from vtc.dialects.reading.cursor import WHITE
from vtc.dialects.repair import Repair
from vtc.events import Call, CallPiece, Event, Markup, Refusal, Text

_INDENTED = re.compile(r"\n[ \t\r]*\n(?: {4}| {0,3}\t)[ \t]*\Z")


class Last(Enum):
    """What the visible reply ended with so far; white space between a call and the first text is dropped."""

    NOTHING = auto()
    CALL = auto()
    """A call or a reasoning tag, and no text was said before it."""
    TEXT = auto()
    CALL_AFTER_TEXT = auto()


class Speech:
    """Collects events until they are taken."""

    __slots__ = ("_events", "_has_called", "_pieces", "has_called_here", "last", "space", "tagged")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._has_called = False
        self._pieces: list[str] = []  # of a text, joined once: a reply read at once is cut at each of its tokens
        self.space: list[str] = []
        """White space after the last text."""
        self.last = Last.NOTHING
        self.tagged = False
        """True if something in the text may be a tag."""
        self.has_called_here = False
        """True if a call was made on the line that the text ends with."""

    @property
    def in_line(self) -> bool:
        """True if text stands before, on the same line."""
        return self.last is Last.TEXT and not any("\n" in text for text in self.space)

    @property
    def is_after_call(self) -> bool:
        """True if nothing was said since a call."""
        return self._has_called and self.last in (Last.CALL, Last.CALL_AFTER_TEXT)

    @property
    def is_silent(self) -> bool:
        """True if neither text nor a call was said."""
        return not self._has_called and self.last in (Last.NOTHING, Last.CALL)

    @property
    def is_indented_code(self) -> bool:
        """True if what follows is indented like code, behind a blank line and text before that."""
        return self.last is Last.TEXT and _INDENTED.search("".join(self.space)) is not None

    def take(self) -> list[Event]:
        """Hand over what was said since the last time."""
        events, pieces = self._events, self._pieces
        if pieces:
            events.append(Text(pieces[0] if len(pieces) == 1 else "".join(pieces)))
            pieces.clear()
        self._events = []
        return events

    def emit(self, event: Event) -> None:
        """Add an event after all that was said."""
        if self._pieces:
            self._events = self.take()
        self._events.append(event)

    def say(self, text: str) -> None:
        """Add visible text; white space at its end waits."""
        if self.has_called_here and "\n" in text:
            self.has_called_here = False
        body = text.rstrip(WHITE)
        if not body:
            if text:
                self.space.append(text)
            return
        self.tagged = self.tagged or "<" in body
        if self.space:
            before = self.take_space()
            if self.last is Last.CALL:
                self.emit(Markup(before))
            else:
                self._pieces.append(before)
        if self.last is Last.CALL and (said := body.lstrip(WHITE)) != body:
            self.emit(Markup(body[: -len(said)]))
            self._pieces.append(said)
        else:
            self._pieces.append(body)
        self.last = Last.TEXT
        if len(body) < len(text):
            self.space.append(text[len(body) :])

    def pass_on(self, text: str) -> list[Event]:
        """What `say` and `take` give for a text after another, in one call: most of a reply comes this way."""
        body = text.rstrip(WHITE)
        space = self.space
        if not body:
            if text:
                space.append(text)
            return []
        said = body
        if space:
            said = "".join(space) + body
            space.clear()
        if len(body) < len(text):
            space.append(text[len(body) :])
        return [Text(said)]

    def mark(self, event: Event) -> None:
        """Add an event that keeps its place: the white space before it waits no longer."""
        self.end()
        self.emit(event)

    def called(self, event: Event) -> None:
        """Add a call, or what is left out like one."""
        self.emit(event)
        self.leave_out()
        if isinstance(event, Call | CallPiece):
            self._has_called = self.has_called_here = True

    def refuse(self, refusal: Refusal) -> None:
        """Say why a call is none; its text follows."""
        self.emit(refusal)

    def leave_out(self) -> None:
        """Note that white space is dropped from here to the next text, if that is the first."""
        texted = self.last in (Last.TEXT, Last.CALL_AFTER_TEXT)
        self.last = Last.CALL_AFTER_TEXT if texted else Last.CALL

    def take_back(self) -> tuple[str, list[Call]]:
        """Forget what nobody has taken yet; return its text, and the calls that it ends with."""
        events, last = self.take(), list[Call]()
        note_last_calls(last, events)
        raw = "".join([*(event.raw for event in events), *self.space])
        self.space.clear()
        self.last, self.tagged, self._has_called, self.has_called_here = Last.NOTHING, False, False, False
        return raw, last

    def keep(self) -> None:
        """Note that white space is kept from here on."""
        texted = self.last in (Last.TEXT, Last.CALL_AFTER_TEXT)
        self.last = Last.TEXT if texted else Last.NOTHING

    def take_space(self) -> str:
        space = self.space.pop() if len(self.space) == 1 else "".join(self.space)
        self.space.clear()
        return space

    def end(self, *, as_text: bool = False) -> None:
        """Let go of white space that waits for more: text, unless it stands after a call."""
        if self.space:
            space = self.take_space()
            after_call = self.last in (Last.CALL, Last.CALL_AFTER_TEXT)
            self.emit(Markup(space) if after_call and not as_text else Text(space))


def note_last_calls(last: list[Call], events: Iterable[Event]) -> None:
    """Keep in `last` the calls after which no text came so far: those before a text were examples."""
    for event in events:
        if isinstance(event, Call):
            last.append(event)
        elif isinstance(event, Text) and not event.raw.isspace():
            last.clear()


def out_of_reasoning(calls: Iterable[Call]) -> list[Call]:
    """Make the calls that reasoning ends with; what they were written with stays in it."""
    return [replace(call, raw="", repairs=(*call.repairs, Repair.CALL_IN_REASONING)) for call in calls]
