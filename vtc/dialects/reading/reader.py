"""Parse text into events: the streaming reader for a set of dialects.

`transitions.py` maps a token in a state to an action of a state handler; this module runs the loop. Text is consumed
strictly forward. Outside a call only text that may still become markup is buffered. Inside a call everything is
buffered, so that an incomplete call can be returned as its original text.

Each step changes the state or the position, and the number of steps is bounded by the length of the text. A rule that
breaks this would block the event loop forever, so it raises `Livelock`, and the reply fails open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from vtc.dialects.reading.call import FIND_STRING_END, InCall, InJson
from vtc.dialects.reading.context import (
    LOOKBEHIND_CHARACTERS,
    NO_MODEL_FACTS,
    WHITESPACE,
    Begins,
    Context,
    Last,
    ModelFacts,
    NotCompared,
    ReaderOptions,
    ReasoningTarget,
    StateHandler,
    StepOutcome,
    UnknownTools,
    Verdict,
    extract_from_reasoning,
)
from vtc.dialects.reading.text import REASONING_EVENTS, InReasoning, InText
from vtc.dialects.reading.transitions import TABLE, State, StateRow, Step
from vtc.dialects.syntax.grammar import Grammar
from vtc.dialects.syntax.scan import PlainRule
from vtc.events import Event, Reasoning, Text, Tool

__all__ = ["Begins", "ModelFacts", "NotCompared", "Reader", "ReaderOptions", "ReasoningTarget", "UnknownTools"]

MAX_CHUNK_CHARACTERS = 1 << 16
"""Characters that are searched in one call, since a search blocks the event loop."""
INDENT_CHARACTERS = " \t\r>"
"""Characters that may precede markup that must start its line."""

STEPS_PER_CHARACTER = 4
"""Steps allowed per character. Most characters take none, and text that is parsed twice takes two."""
SPARE_STEPS = 64
"""Steps allowed for a text of any length, in addition to those for its characters."""

DEFAULT_OPTIONS = ReaderOptions()
_TEXT = Last.TEXT


class HeldCall(msgspec.Struct, frozen=True, gc=False):
    """Limits of the text that a caller may collect while a call is buffered, and feed to the reader later."""

    find_structure: Callable[[str], object] | None
    """Finds characters that are more than plain text of the call; None if the reader must see all text."""
    room_bytes: int
    """Bytes of plain text that the call may still contain."""


class Livelock(RuntimeError):
    """Raised if the reader takes steps without progress, which is a bug in its rules."""


class Reader:
    """A parser for one message. `feed` and `finish` return events whose `raw` texts join to the text that was fed.

    `tools` maps names to the offered tools; `facts` are those about the model and its request.
    """

    __slots__ = (
        "_context",
        "_cursor",
        "_find_token_start",
        "_handler",
        "_output",
        "_previous_at",
        "_previous_seek",
        "_recounted",
        "_row",
        "_scan",
        "_state",
        "_steps_left",
    )

    _handler: StateHandler
    _row: StateRow[Any]

    def __init__(
        self,
        grammar: Grammar,
        tools: Mapping[str, Tool],
        options: ReaderOptions = DEFAULT_OPTIONS,
        facts: ModelFacts = NO_MODEL_FACTS,
    ) -> None:
        self._context = context = Context(grammar, tools, options, facts)
        self._cursor = context.cursor
        self._output = context.output
        self._find_token_start: Callable[[str], object] | None = None
        """Finds the first possible start of a token in the next text; None if that text must be parsed in full."""
        self._steps_left = SPARE_STEPS
        """Steps that the buffered text may still take."""
        self._recounted = 0
        """Characters of the buffered text that were counted again when they were pushed back."""
        self._previous_at = self._previous_seek = -1
        """Values of `at` and `seek` after the previous step, to detect a step without progress."""
        self._enter_start()

    def feed(self, text: str) -> list[Event]:
        """Parse more text; return all events that are certain by now. Raises `Livelock`."""
        if len(text) > MAX_CHUNK_CHARACTERS:
            return self._feed_in_chunks(text)
        cursor, find_token_start = self._cursor, self._find_token_start
        if (forgotten := cursor.at - LOOKBEHIND_CHARACTERS) > 0:  # no token needs this text any more
            cursor.text = cursor.text[forgotten:]
            cursor.at -= forgotten
            cursor.seek -= forgotten
        cursor.text += text
        if find_token_start is not None and find_token_start(text) is None:
            # Fast path: no token begins in the text and nothing is buffered, so the text is the event.
            cursor.at = cursor.seek = len(cursor.text)
            output = self._output
            if output.last is _TEXT and self._row.is_visible:
                if output.whitespace or text[-1:] in WHITESPACE:
                    return output.pass_through(text)
                return [Text(text)]
            return self._handler.feed_plain(text)
        self._steps_left += STEPS_PER_CHARACTER * len(text)
        self._advance()
        return [] if self._context.beginning.undecided else self._output.take()

    def _feed_in_chunks(self, text: str) -> list[Event]:
        """Parse a long text in chunks, because a search of all of it would block the event loop."""
        pieces = (text[at : at + MAX_CHUNK_CHARACTERS] for at in range(0, len(text), MAX_CHUNK_CHARACTERS))
        events: list[Event] = []
        for kind, run in groupby((event for piece in pieces for event in self.feed(piece)), type):
            alike = [*run]
            events += [kind("".join(event.raw for event in alike))] if kind in (Text, Reasoning) else alike
        return events

    def finish(self, *, complete: bool = True) -> list[Event]:
        """End the message; `complete` is False if it was cut off (`finish_reason: length`). Raises `Livelock`."""
        # Step 1: Parse the buffered text, knowing that no more follows.
        self._cursor.final, self._context.complete = True, complete
        self._steps_left += SPARE_STEPS
        self._advance()
        # Step 2: End states that are still open. Such a step may push text back and clear `final`, so that this text is
        # first parsed like a stream.
        while (end := self._row.end) is not None:
            self._transition(end, end.action(self._handler))
            self._advance()
            if not self._cursor.final:
                self._cursor.final = True
                self._advance()
        # Step 3: Decide if the text was reasoning. If the whole reply was, its last calls are accepted.
        beginning = self._context.beginning
        if beginning.begins_with_call:
            self._settle_prompted(complete=complete)
        beginning.undecided = beginning.begins_with_call = False
        if complete and self._output.is_silent:
            for call in extract_from_reasoning(beginning.calls_in_reasoning):
                self._output.add_call(call)
        beginning.calls_in_reasoning = []
        self._output.flush_whitespace()
        return self._output.take()

    def _settle_prompted(self, *, complete: bool) -> None:
        """End a reply that begins with a call, and whose reasoning the prompt may have opened, without a closing tag.

        A complete reply stays text and calls. If it was cut off, the model may still have been reasoning, so all of it
        becomes reasoning.
        """
        context = self._context
        if not context.beginning.undecided:
            return
        if complete:
            context.beginning.began_inside = False
            return
        if thoughts := self._output.retract()[0]:
            self._output.emit(REASONING_EVENTS[context.think](thoughts))
        self._enter_state(State.REASONING)

    def record_forwarded(self, text: str) -> None:
        """Record text that the relay's fast path forwarded without feeding it: later tokens may depend on it."""
        cursor, rule = self._cursor, self._scan.plain if self._scan else None
        if rule and rule.later and rule.later in text:
            self.feed(text)
            self._output.whitespace.clear()
            text = ""
        cursor.text = (cursor.text + text)[-LOOKBEHIND_CHARACTERS:]
        cursor.at = cursor.seek = len(cursor.text)

    def release_whitespace(self) -> str:
        """Return the buffered white space, which the caller sends as text."""
        return self._output.take_whitespace() if self._output.whitespace else ""

    def read_whole(self, text: str, *, complete: bool = True) -> list[Event]:
        """Parse a whole reply. Reasoning that an unknown model opens and never closes is text."""
        events = [*self.feed(text), *self.finish(complete=complete)]
        return [Text(text)] if self.in_unproved_reasoning else events

    def pause(self) -> list[Event]:
        """End one of a message's text blocks: decide all buffered text, as `finish` does, and start again."""
        events = self.finish()
        self._restart()
        return events

    def restart(self) -> list[Event]:
        """End a text block without deciding: return all buffered text as text, and start again."""
        events = self.release()
        self._restart()
        return events

    def _restart(self) -> None:
        """Start a block in the initial state, outside the reasoning."""
        self._cursor.final = False
        self._cursor.text = ""
        self._cursor.at = self._cursor.seek = 0
        self._enter_start()

    def release(self) -> list[Event]:
        """Return buffered text as text and stop parsing, because the server sends native tool calls."""
        handler = self._handler
        handler.release("the reply has native tool calls")
        if isinstance(handler, InReasoning):
            handler.emit_reasoning(len(self._cursor.text))
        else:
            self._output.add_text(self._cursor.consume_all())
        self._context.beginning.undecided = False
        self._output.flush_whitespace(as_text=True)
        self._find_token_start = None
        return self._output.take()

    def record_reasoning(self) -> None:
        """Record that reasoning arrived in another field: the text does not begin inside the reasoning."""
        if self._state in (State.START, State.PROMPTED):
            self._context.beginning.mark_as_text()
            self._context.beginning.record_began_inside(began_inside=False)  # an earlier block may prove that it did

    @property
    def in_reasoning(self) -> bool:
        """True if the text so far ends inside the reasoning."""
        return self._state is State.REASONING

    @property
    def in_unproved_reasoning(self) -> bool:
        """True if the text so far is taken for reasoning, but may be text."""
        return self.in_reasoning and self.began_inside is None

    @property
    def begins(self) -> Begins:
        """Return the state in which the reply begins, as long as nothing was parsed; afterwards `text`."""
        return self._context.beginning.begins

    @property
    def began_inside(self) -> bool | None:
        """True if the reply began inside the reasoning; None if that is unknown."""
        return self._context.beginning.began_inside

    @property
    def shows_beginning(self) -> bool:
        """True if `began_inside` is certain enough to apply it to other replies of the model."""
        beginning = self._context.beginning
        return beginning.is_certain and beginning.began_inside is not None

    @property
    def held_characters(self) -> int:
        """Number of characters of text that are retained, outside calls."""
        return len(self._cursor.text)

    @property
    def has_pending_whitespace(self) -> bool:
        """True if white space is buffered."""
        return bool(self._output.whitespace)

    @property
    def plain_rule(self) -> PlainRule | None:
        """Return the rule by which a caller can forward the next text unparsed; None if all text must be parsed."""
        cursor = self._cursor
        if not self._row.is_visible or self._find_token_start is None or self._output.last is not _TEXT:
            return None
        line = cursor.text.rpartition("\n")[2]
        if not line.strip(INDENT_CHARACTERS) or ": |" in line or ": >" in line:
            return None  # more tokens exist at the beginning of a line than within it, and after a YAML key
        return self._scan.plain if self._scan else None

    @property
    def held_call(self) -> HeldCall | None:
        """Return the limits of text that only extends the buffered call; None if no call is buffered whole."""
        handler = self._handler
        if not isinstance(handler, InCall) or handler.call.pieces or handler.call.text.spilled:
            return None
        more = FIND_STRING_END if self._find_token_start and isinstance(handler, InJson) else self._find_token_start
        return HeldCall(more, self._context.max_held - handler.call.text.size)

    def _enter_start(self) -> None:
        self._handler = InText(self._context)
        self._enter_state(State.START)

    def _advance(self) -> None:
        """Run the state machine until it needs more text."""
        context, cursor = self._context, self._cursor
        self._previous_at = -1
        while True:
            row, scan = self._row, self._scan
            # Without a scan, the action itself finds the end of self-delimiting arguments.
            if scan is None:
                assert row.otherwise is not None
                outcome = row.otherwise.action(self._handler)
                if outcome is Verdict.WAIT:
                    break
                self._transition(row.otherwise, outcome)
                continue
            # If text may precede a token, search for one; otherwise one must follow at once. A match of the group
            # `hold` is no token yet, but more text may complete it.
            find = scan.search if row.text else scan.match
            token_match = find(cursor.text, cursor.seek, final=cursor.final, offers=context.offers)
            token = token_match.lastgroup or "" if token_match else ""
            if token_match and not token.startswith("hold"):
                step = row.steps[token]
                self._transition(step, step.action(self._handler, token_match))
            elif not token_match and row.otherwise and (cursor.final or not row.text):
                self._transition(row.otherwise, row.otherwise.action(self._handler))
            elif row.text:
                outcome = row.text.action(self._handler, token_match.start() if token_match else len(cursor.text))
                if outcome is None:
                    break
                self._transition(row.text, outcome)
            else:
                break
        self._find_token_start = None
        # If nothing is buffered and no call is on this line, the next text can take the fast path.
        if cursor.at == len(cursor.text):
            if row.is_visible:
                self._steps_left, self._recounted = SPARE_STEPS, 0
            if not (context.beginning.undecided or self._output.line_fate):
                if scan is None:
                    self._find_token_start = self._handler.find_structure if isinstance(self._handler, InJson) else None
                elif row.skips_plain and scan.plain:
                    self._find_token_start = scan.first.search

    def _transition(self, step: Step, outcome: StepOutcome) -> None:
        """Enter the state that follows a step. Raises `Livelock`."""
        data = None
        if isinstance(outcome, tuple):
            outcome, data = outcome
        state = step.next if outcome is None else step.by_verdict[outcome]
        at, seek = self._cursor.at, self._cursor.seek
        self._steps_left -= 1
        if (self._steps_left < 0 and not self._grant_steps()) or (
            at == self._previous_at and seek == self._previous_seek and state is self._state
        ):
            raise Livelock(f"no progress in state {self._state.value!r}, at {step.action.__qualname__}")
        self._previous_at, self._previous_seek = at, seek
        if data is not None:
            self._handler = TABLE[state].handler(self._context, data)
        elif state is self._state:
            return
        self._enter_state(state)

    def _grant_steps(self) -> bool:
        """Allow more steps for text that was pushed back and is parsed again; return False if there is none."""
        more = len(self._cursor.text) - self._recounted
        if more <= 0:
            return False
        self._steps_left += STEPS_PER_CHARACTER * more
        self._recounted += more
        return True

    def _enter_state(self, state: State) -> None:
        """Enter a state, with a new handler unless the current one has the class of the state."""
        self._state = state
        self._row = row = TABLE[state]
        if not isinstance(self._handler, row.handler):
            self._handler = row.handler(self._context)
        self._scan = row.scan(self._handler)
        self._find_token_start = None
