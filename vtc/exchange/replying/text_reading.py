"""The reading of one choice's text: its reader, that of the reasoning, and what is left beside upstream's own calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec.structs import replace

from vtc.dialects.reading.context import note_last_calls, out_of_reasoning
from vtc.dialects.reading.reader import Begins, Reader
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.scan import PlainRule
from vtc.events import Call, Event, Markup, Refusal, Text, ToolCall
from vtc.profiles.memory import Learned

# Text beside calls that upstream made itself: markup that its parser left over is no speech.
#
#     <tool_call>                       an opening tag, or the beginning of one, before the calls
#     </parameter></function>           closing tags after them
#     <tool_call>{"name": …             the same call once more
#
# A client that is shown them sends them back with its next turn, and the model writes more of them. Text that is
# anything else leaves as it came.


LEAST = 5
"""Characters of a tag's beginning that could be nothing else."""
MOST = 4096
"""Characters of tags that are held. More of them are text: with each part all before it is looked at again."""


class LateCalls:
    """Holds the text of one reply as long as it may be nothing but markup that was left over."""

    def __init__(self, dialects: Sequence[Description], reader: Reader) -> None:
        self._dialects = tuple(dialects)
        self._reader = reader
        self._held: list[Event] = []
        self._outside = ""  # its text that is in no call
        self._calls: list[ToolCall] = []
        self.decided = False
        """The text is more than that: it passes."""

    def feed(self, events: list[Event]) -> list[Event]:
        """Return what may leave of some events."""
        if self.decided or (not self._held and all(event.raw.isspace() for event in events)):
            return events  # white space alone is none
        for event in events:
            self._held.append(event)
            if isinstance(event, Text):
                self._read(self._reader.feed(event.raw))
        return [] if len(self._outside) <= MOST and self._is_markup(1) else self._released()

    def finish(self, calls: Iterable[ToolCall]) -> list[Event]:
        """Return what is held: as markup, if it is nothing else, or if it holds no calls but these."""
        self._read(self._reader.finish())
        own = [_meaning(call) for call in calls] if self._calls else []
        if not self._is_markup(LEAST) or any(_meaning(call) not in own for call in self._calls):
            return self._released()
        held, self._held = self._held, []
        return [Markup(event.raw) if isinstance(event, Text) else event for event in held]

    def _is_markup(self, least: int) -> bool:
        """True if nothing but tags was said; of the last one `least` characters are enough."""
        tags, complete = _tags(self._dialects)
        match = complete.match(self._outside)
        rest = self._outside[match.end() if match else 0 :].rstrip()
        return not rest or (len(rest) >= least and any(tag.startswith(rest) for tag in tags))

    def _read(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Call):
                self._calls.append(event.call)
            elif isinstance(event, Text):
                self._outside += event.raw

    def _released(self) -> list[Event]:
        self.decided = True
        held, self._held = self._held, []
        return held


def _meaning(call: ToolCall) -> tuple[str, object]:
    try:
        return call.name, json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.name, call.arguments


@lru_cache(maxsize=8)
def _tags(dialects: tuple[Description, ...]) -> tuple[list[str], re.Pattern[str]]:
    """List the tags of these dialects, and compile what finds a text of nothing but them."""
    words: set[str] = set()
    for dialect in dialects:
        for key, patterns in (("call", dialect.calls), ("param", dialect.params), ("section", dialect.sections)):
            for text in patterns:
                literal = (part for part in pattern.parse(text, key) if isinstance(part, str))
                words.update(word for part in literal for word in part.split())
    tags = sorted((word for word in words if len(word) >= LEAST and not word[0].isalnum()), key=len, reverse=True)
    return tags, re.compile(rf"(?:\s|{'|'.join(map(re.escape, tags))})*+" if tags else r"\s*+")


ANYTHING = PlainRule("")
"""The rule for what is not read."""


@dataclass(slots=True)
class Thoughts:
    """Looks for calls at the end of the reasoning, for a reply that stops there."""

    reader: Reader
    guessed: bool = False
    """The reply was taken to begin inside of its reasoning; if that never ends, it is the answer."""
    learned: bool = False
    """Only replies before it make that guess, so it may be wrong where the reply was cut off, too."""
    kept: bool = False
    """It was guessed, and stays text: it has left already."""
    events: list[Event] = field(default_factory=list)
    """All of it, if it was guessed."""
    last: list[Call] = field(default_factory=list)
    """The calls after which no text came so far."""
    refusals: list[Refusal] = field(default_factory=list)
    """Why others are none."""

    def feed(self, text: str) -> None:
        """Read a part of the reasoning."""
        self._note(self.reader.feed(text))

    def finish(self, *, in_reasoning: bool, complete: bool) -> list[Event]:
        """Return the calls that the reasoning ends with, or why it makes none; their text stays in it.

        If the guess was wrong, which shows as the reply ends `in_reasoning`, return what the reply says. One that is
        not `complete` has been cut off: it may have been thinking still, so nothing in it is a call.
        """
        self._note(self.reader.finish(complete=complete))
        if not complete:
            is_said = self.guessed and self.learned and in_reasoning and not self.kept
            return [Text("".join(event.raw for event in self.events))] if is_said else []
        if self.guessed and in_reasoning and not self.kept:
            return self.events
        calls = [replace(event, raw="") for event in self.events if in_reasoning and isinstance(event, Call)]
        return [*(calls if self.kept else out_of_reasoning(self.last))] or [*self.refusals]

    def _note(self, events: Sequence[Event]) -> None:
        if self.guessed:
            self.events += events
        self.refusals += [replace(event, left_out=False) for event in events if isinstance(event, Refusal)]
        note_last_calls(self.last, events)


@dataclass(slots=True)
class TextReading:
    """Reads the text of one choice, as long as there is something to read in it. Without a reader text is text."""

    reader: Reader | None = None
    thoughts: Thoughts | None = None
    learned: Learned | None = None
    beside_calls: Callable[[Begins], tuple[Reader, LateCalls]] | None = None
    """Makes what reads the text after upstream made calls itself."""
    leftovers: LateCalls | None = None
    """Of the text beside these calls."""
    _native: bool = False
    """True once upstream made calls itself."""

    def more(self, text: str, events: list[Event]) -> list[Event]:
        """Return what may leave of the events that the reader made of a text."""
        if self.thoughts and self.thoughts.kept and self.reader and self.reader.began_inside is None:
            self.thoughts.feed(text)  # no end of it came yet
        return self.leftovers.feed(events) if self.leftovers else events

    def reasoned(self, text: str) -> None:
        """Take reasoning that upstream parted off."""
        if self.reader:
            self.reader.reasoned()
        if self.thoughts:
            self.thoughts.feed(text)

    def pause(self) -> list[Event]:
        """End one block of the text."""
        events = self.reader.pause() if self.reader else []
        return self.leftovers.feed(events) if self.leftovers else events

    def release(self) -> list[Event]:
        """Give back what is held: upstream makes calls itself."""
        reader, self._native = self.reader, True
        if reader is None or self.beside_calls is None:
            self.reader = None
            return reader.release() if reader else []
        self._learn(reader, complete=False)
        self.reader, self.leftovers = self.beside_calls(reader.begins)
        return self.leftovers.feed(reader.release())

    def finish(self, calls: Sequence[ToolCall], *, complete: bool) -> list[Event]:
        """End the text; `calls` are those that upstream itself made."""
        events = self.reader.finish(complete=complete) if self.reader else []
        return [*self.leftovers.feed(events), *self.leftovers.finish(calls)] if self.leftovers else events

    def in_thoughts(self, *, spoke: bool, complete: bool) -> list[Event]:
        """End the reasoning; return the calls in it, for a reply that made no others, and `spoke` or not."""
        if not self.thoughts or not self.reader or (spoke and not self.thoughts.kept):
            return []
        return self.thoughts.finish(in_reasoning=self.reader.in_reasoning, complete=complete)

    def learn(self, *, complete: bool) -> None:
        """Note what the end of the reply shows of its beginning."""
        if self.reader:
            self._learn(self.reader, complete=complete)

    def _learn(self, reader: Reader, *, complete: bool) -> None:
        """Note whether the reply began inside of the reasoning: if several did, the next one will, too."""
        inside = reader.began_inside if reader.shows_beginning else None
        if reader.began_inside is None and complete and reader.in_reasoning and not self._native:
            inside = False  # what was taken for reasoning never ended
        if self.learned and inside is not None:
            self.learned.note(inside=inside)
        if reader.began_inside is not None:
            self.learned = None  # what comes after upstream's calls is no beginning
