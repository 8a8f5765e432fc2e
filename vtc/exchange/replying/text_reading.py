"""Read one choice's text: the reader, the reader of its reasoning, and leftover markup next to native calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile

from msgspec.structs import replace

from vtc.dialects.reading.context import extract_from_reasoning, update_last_calls
from vtc.dialects.reading.reader import Begins, Reader
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.scan import PlainRule
from vtc.events import Call, Event, Markup, Reasoning, Rewritten, Text, ToolCall, UnreadCall
from vtc.exchange.replying.repeats import RepeatGuard
from vtc.profiles.memory import Learned
from vtc.reporting.report import Report

MIN_TAG_CHARACTERS = 5
"""Characters after which the beginning of a tag is unambiguous."""
MAX_TAG_CHARACTERS = 4096
"""Characters of tags that are buffered; more are text, because each part is matched together with all before it."""


class LeftoverMarkup:
    """Buffers the text next to native tool calls as long as it may be only markup that the server's parser left over.

        <tool_call>                       an opening tag, or the beginning of one, before the calls
        </parameter></function>           closing tags after them
        <tool_call>{"name": …             the same call once more

    A client that is shown such tags sends them back with its next turn, and the model writes more of them. All other
    text is sent unchanged.
    """

    def __init__(self, dialects: Sequence[Description], reader: Reader) -> None:
        self._dialects = tuple(dialects)
        self._reader = reader
        self._held: list[Event] = []
        self._outside = ""  # text outside of calls
        self._calls: list[ToolCall] = []
        self.decided = False
        """True once the text proved to be more than markup; it passes."""

    def feed(self, events: list[Event]) -> list[Event]:
        """Return the events to send now."""
        if self.decided or (not self._held and all(event.raw.isspace() for event in events)):
            return events  # white space alone is no markup
        for event in events:
            self._held.append(event)
            if isinstance(event, Text):
                self._read(self._reader.feed(event.raw))
        return [] if len(self._outside) <= MAX_TAG_CHARACTERS and self._is_markup(1) else self._release()

    def finish(self, calls: Iterable[ToolCall]) -> list[Event]:
        """Return the buffered events: as markup if they are only that, or if they repeat only these calls."""
        self._read(self._reader.finish())
        own = [_parse_call(call) for call in calls] if self._calls else []
        if not self._is_markup(MIN_TAG_CHARACTERS) or any(_parse_call(call) not in own for call in self._calls):
            return self._release()
        held, self._held = self._held, []
        return [Markup(event.raw) if isinstance(event, Text) else event for event in held]

    def _is_markup(self, least: int) -> bool:
        """Return True if the text consists of tags; of the last one, `least` characters suffice."""
        tags, complete = _compile_tags(self._dialects)
        match = complete.match(self._outside)
        rest = self._outside[match.end() if match else 0 :].rstrip()
        return not rest or (len(rest) >= least and any(tag.startswith(rest) for tag in tags))

    def _read(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Call):
                self._calls.append(event.call)
            elif isinstance(event, Text):
                self._outside += event.raw

    def _release(self) -> list[Event]:
        self.decided = True
        held, self._held = self._held, []
        return held


def _parse_call(call: ToolCall) -> tuple[str, object]:
    try:
        return call.name, json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.name, call.arguments


@lru_cache(maxsize=8)
def _compile_tags(dialects: tuple[Description, ...]) -> tuple[list[str], re.Pattern[str]]:
    """List the tags of these dialects, and compile an expression for text of only tags."""
    words: set[str] = set()
    for dialect in dialects:
        for key, patterns in (("call", dialect.calls), ("param", dialect.params), ("section", dialect.sections)):
            for text in patterns:
                literal = (part for part in pattern.parse(text, key) if isinstance(part, str))
                words.update(word for part in literal for word in part.split())
    tags = sorted(
        (word for word in words if len(word) >= MIN_TAG_CHARACTERS and not word[0].isalnum()), key=len, reverse=True
    )
    return tags, re.compile(rf"(?:\s|{'|'.join(map(re.escape, tags))})*+" if tags else r"\s*+")


ANYTHING = PlainRule("")
"""The rule for text that is not parsed."""


def _make_events(kind: type[Reasoning | Markup | Text], text: str) -> list[Event]:
    return [kind(text)] if text else []


@dataclass(slots=True)
class Guess:
    """The beginning of a reply that is taken for reasoning although nothing in it has shown yet that it is.

    It is sent as reasoning up to the first call in it. The rest is buffered, because if the guess is wrong that is a
    call, and its markup belongs neither into the reasoning nor into the text.
    """

    opened: bool = False
    """True if the reply begins with an opening tag, which is text if the guess is wrong."""
    whole: bool = False
    """True for a whole reply, of which nothing is sent before the guess is settled."""
    kind: type[Reasoning | Markup | Text] = Reasoning
    """Its assumed kind: reasoning, or the markup or text that replaces it."""
    sent: list[Event] = field(default_factory=list)
    """The part that was sent, as text events."""
    buffered: list[Event] = field(default_factory=list)
    """Events from the first call on."""
    text: list[str] = field(default_factory=list)
    """Its whole text, in pieces."""
    _sent_characters: int = 0

    def take(self, part: Event, thoughts: ReasoningCalls) -> list[Event]:
        """Process the next part, which `thoughts` parse as text; return the events to send now."""
        self.kind = Markup if isinstance(part, Markup) else Reasoning
        self.buffered += thoughts.feed(part.raw) if self.text or not self.opened else [Text(part.raw)]
        self.text.append(part.raw)
        if self.whole:
            return []
        now = [*takewhile(lambda event: not isinstance(event, Call), self.buffered)]
        del self.buffered[: len(now)]
        # Nested reasoning has separate tags and is not repeated as text.
        self.sent += [Markup(event.raw) if isinstance(event, Reasoning) else event for event in now]
        self._sent_characters += sum(len(event.raw) for event in now)
        return [self.kind(event.raw) for event in now if event.raw]

    @property
    def rest(self) -> str:
        """Return the text that was not sent."""
        return "".join(self.text)[self._sent_characters :]

    def confirm(self) -> list[Event]:
        """Return the part that was not sent, as the assumed kind."""
        tag = self.text[0] if self.opened and not self._sent_characters else ""
        return [*_make_events(Markup, tag), *_make_events(self.kind, self.rest[len(tag) :])]


@dataclass(slots=True)
class ReasoningCalls:
    """Finds calls at the end of the reasoning, for a reply that stops there."""

    reader: Reader
    guess: Guess | None = None
    """The guess about the reply's beginning; None once it is settled."""
    learned: bool = False
    """True if only earlier replies suggest the guess, so that it may be wrong for a truncated reply, too."""
    kept: bool = False
    """True if the guessed reasoning stays text, because it was sent already."""
    calls: list[Call] = field(default_factory=list)
    """All calls in it, if it stays text."""
    last: list[Call] = field(default_factory=list)
    """Calls that no text has followed so far."""
    unread_calls: list[UnreadCall] = field(default_factory=list)
    """Reasons why other texts are no calls."""

    def feed(self, text: str) -> list[Event]:
        """Parse a part of the reasoning; return its events as text."""
        return self._record(self.reader.feed(text))

    def finish(self, *, complete: bool) -> list[Event]:
        """End the reasoning; return the events of its end as text."""
        return self._record(self.reader.finish(complete=complete))

    def list_final_calls(self, *, in_reasoning: bool) -> list[Event]:
        """Return the calls that end the reasoning, or the reasons why they are none; their text stays in it."""
        calls = [*(self.calls if in_reasoning else ())] if self.kept else extract_from_reasoning(self.last)
        return [replace(call, raw="", read_from=call.evidence) for call in calls] or [*self.unread_calls]

    def forget(self) -> None:
        """Discard the calls so far, because they were text."""
        self.reader.restart()
        self.last.clear()
        self.unread_calls.clear()

    def _record(self, events: list[Event]) -> list[Event]:
        if self.kept:
            self.calls += [event for event in events if isinstance(event, Call)]
        self.unread_calls += [replace(event, left_out=False) for event in events if isinstance(event, UnreadCall)]
        update_last_calls(self.last, events)
        return events


@dataclass(slots=True)
class TextReading:
    """Reads the text of one choice; without a reader, text passes as text."""

    read_name: Callable[[str], Call | None] = lambda _: None
    """Reads a call that a server put into the name of a native call."""
    hear: Callable[[str], None] | None = None
    """Receives the text as the model writes it."""
    reader: Reader | None = None
    reasoning: ReasoningCalls | None = None
    learned: Learned | None = None
    make_late_reader: Callable[[Begins], tuple[Reader, LeftoverMarkup]] | None = None
    """Creates the reader of text after native calls."""
    leftovers: LeftoverMarkup | None = None
    """Leftover markup next to native calls."""
    repeats: RepeatGuard = field(default_factory=lambda: RepeatGuard(Report()))
    """Compares the text and the reasoning with themselves."""
    repeated: int = 0
    """Characters of events that were sent as reasoning before and are sent again as text."""
    _native: bool = False
    """True once the server made native calls."""

    def read_more(self, text: str, events: list[Event]) -> list[Event]:
        """Return the events to send for a text, if reasoning or leftover markup must be examined."""
        if self.reasoning and self.reasoning.kept and self.reader and self.reader.began_inside is None:
            self.reasoning.feed(text)  # its end has not arrived
        else:
            events = self._record_heard(events)
        return self.leftovers.feed(events) if self.leftovers else events

    def _record_heard(self, events: list[Event]) -> list[Event]:
        """Look for calls in the reasoning among some events; return the events to send."""
        thoughts, said = self.reasoning, [*events]
        if thoughts is None:
            return said
        if thoughts.guess and events:
            guess = thoughts.guess
            if self._is_guessed:
                return [out for event in events for out in guess.take(event, thoughts)]
            said, thoughts.guess = [*(guess.confirm() if guess.text else ()), *events], None
        for event in events:
            if isinstance(event, Reasoning):
                thoughts.feed(event.raw)
        return said

    @property
    def _is_guessed(self) -> bool:
        """True if the text so far is taken for reasoning but may be text."""
        return self.reader is not None and self.reader.in_unproved_reasoning

    def settle(self) -> tuple[list[Event], list[Event]]:
        """End the guess that the reply began inside its reasoning, because the server makes native calls.

        The text before them is text: return the part sent as reasoning, and the rest. No call in it counts, as in the
        reasoning of a reply that continues, because it may be quoted.
        """
        if not (self.reasoning and self.reasoning.guess and self.reader and self._is_guessed):
            return [], []
        guess, self.reasoning.guess = self.reasoning.guess, None
        for event in self.reader.restart():
            guess.text.append(event.raw)
        self.reasoning.forget()
        if self.learned:
            self.learned.note(inside=False)
            self.learned = None
        return self._repeat_as_text(guess.sent), _make_events(Text, guess.rest)

    def _repeat_as_text(self, events: list[Event]) -> list[Event]:
        """Repeat as text the events that were sent as reasoning."""
        self.repeated += sum(len(event.raw) for event in events)
        return events

    def without_repeated(self, events: Iterable[Event]) -> list[Event]:
        """Remove characters that were sent before from the `raw` of events."""
        out: list[Event] = []
        for event in events:
            count = min(self.repeated, len(event.raw))
            self.repeated -= count
            if count and isinstance(event, Text):
                out += [Rewritten("", event.raw[:count]), *_make_events(Text, event.raw[count:])]
            else:
                out.append(replace(event, raw=event.raw[count:]) if count else event)
        return out

    def record_reasoning(self, text: str) -> None:
        """Process native reasoning."""
        if self.reader:
            self.reader.record_reasoning()
        if self.reasoning:
            self.reasoning.feed(text)

    def pause(self) -> list[Event]:
        """End a block of the text. If it was taken for reasoning and did not end that, it is text."""
        if self.reader is None:
            return []
        again, rest = self.settle()
        events = [*again, *rest, *self._record_heard(self.reader.pause())]
        return self.leftovers.feed(events) if self.leftovers else events

    def release(self) -> list[Event]:
        """Return buffered events, because the server makes native calls."""
        again, rest = self.settle()
        reader, self._native = self.reader, True
        if reader is None or self.make_late_reader is None:
            self.reader = None
            return [*again, *rest, *self._record_heard(reader.release())] if reader else []
        self._learn(reader, complete=False)
        self.reader, self.leftovers = self.make_late_reader(reader.begins)
        return [*again, *self.leftovers.feed([*rest, *self._record_heard(reader.release())])]

    def finish(self, calls: Sequence[ToolCall], *, complete: bool) -> list[Event]:
        """End the text; `calls` are the native calls."""
        events = self.reader.finish(complete=complete) if self.reader else []
        events = self._record_heard(events) if events else events
        return [*self.leftovers.feed(events), *self.leftovers.finish(calls)] if self.leftovers else events

    def end_reasoning(self, *, spoke: bool, complete: bool) -> list[Event]:
        """End the reasoning; return the calls in it, for a reply without other calls or text (`spoke`).

        A reply that was assumed to begin inside its reasoning, and never ended it, is text; but a call at the end
        confirms the opening tag of an unknown model. In a reply that is not `complete` nothing is a call, because the
        model may still have been reasoning.
        """
        thoughts = self.reasoning
        if thoughts is None or self.reader is None:
            return []
        if thoughts.guess and self._is_guessed:
            guess, thoughts.guess = thoughts.guess, None
            if guess.opened and complete:
                thoughts.finish(complete=True)
                calls = thoughts.list_final_calls(in_reasoning=True)
                if any(isinstance(call, Call) for call in calls):
                    return [*guess.confirm(), *calls]
                return [*self._repeat_as_text(guess.sent), *_make_events(Text, guess.rest), *calls]
            if complete:
                return [*self._repeat_as_text(guess.sent), *guess.buffered, *thoughts.finish(complete=True)]
            if thoughts.learned:
                return [*self._repeat_as_text(guess.sent), *_make_events(Text, guess.rest)]
            return guess.confirm()
        if spoke and not thoughts.kept:
            return []
        thoughts.finish(complete=complete)
        return thoughts.list_final_calls(in_reasoning=self.reader.in_reasoning) if complete else []

    def learn(self, *, complete: bool) -> None:
        """Record how the reply began, as shown by its end."""
        if self.reader:
            self._learn(self.reader, complete=complete)

    def _learn(self, reader: Reader, *, complete: bool) -> None:
        """Record whether the reply began inside its reasoning; if several did, the next one will be assumed to."""
        inside = reader.began_inside if reader.shows_beginning else None
        if reader.began_inside is None and complete and reader.in_reasoning and not self._native:
            inside = False  # the assumed reasoning never ended
        if self.learned and inside is not None:
            self.learned.note(inside=inside)
        if reader.began_inside is not None:
            self.learned = None  # text after native calls is no beginning
