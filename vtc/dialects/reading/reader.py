"""Text in, events out: the streaming reader for a set of dialects.

`transitions.py` says what a token does in a state, the classes beside it do it, and this turns the crank. Text is
consumed strictly forward. Outside a call only what may still become markup is held back; inside a call everything is,
so that a call that does not complete can be given back as the text it was.

Each step changes the state or the place in the text, and there are not many more steps than characters. A rule that
breaks this would hold up every exchange for ever, so it is a fault: `Livelock`, at which a reply fails open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    ReasoningTarget,
    StateHandler,
    StepOutcome,
    UnknownTools,
    Verdict,
    extract_from_reasoning,
)
from vtc.dialects.reading.text import REASONING_EVENTS, InReasoning, InText
from vtc.dialects.reading.transitions import TABLE, State, StateRow, Step
from vtc.dialects.reading.value import InValue
from vtc.dialects.syntax.grammar import Grammar
from vtc.dialects.syntax.scan import PlainRule
from vtc.events import Event, Reasoning, Text, Tool

__all__ = ["Begins", "ModelFacts", "NotCompared", "Reader", "ReasoningTarget", "UnknownTools"]

MAX_CHUNK_CHARACTERS = 1 << 16
"""Characters that are searched at once."""
INDENT_CHARACTERS = " \t\r>"
"""What may stand before markup that must start its line."""

STEPS_PER_CHARACTER = 4
"""Steps that a character may take: of most texts none does, and of those that are read twice two."""
SPARE_STEPS = 64
"""Steps that a text of any length may take."""

_TEXT = Last.TEXT


class HeldCall(msgspec.Struct, frozen=True, gc=False):
    """Tells which text of a call that is held the reader may be told later."""

    find_structure: Callable[[str], object] | None
    """Finds what is more than text of the call; None if all text is to be read."""
    room_bytes: int
    """Bytes of such text that it may yet have."""


class Livelock(RuntimeError):
    """The reader makes steps and does not get on: a fault of its rules."""


class Reader:
    """Reads one message. `feed` and `finish` return events whose `raw` joined is the text that was fed.

    `tools` are the offered tools by name; `think` says where text between reasoning tags goes, if the grammar
    has them, and `begins` whether the reply begins inside. `own` is what is known of
    the model and its request. With `incremental` calls leave in pieces, where that is
    possible: `CallPiece`s, and a `Call` with a `rest`. For a client that reads calls out of the text only those of
    its own `client_dialect` do, as what they are written with.
    """

    __slots__ = (
        "_context",
        "_cursor",
        "_find_token_start",
        "_handler",
        "_last_at",
        "_last_seek",
        "_recounted",
        "_row",
        "_scan",
        "_speech",
        "_state",
        "_steps_left",
    )

    _handler: StateHandler
    _row: StateRow[Any]

    def __init__(
        self,
        grammar: Grammar,
        tools: Mapping[str, Tool],
        *,
        lenient: bool = True,
        unknown_tools: UnknownTools = "text",
        max_call_bytes: int = 1 << 20,
        think: ReasoningTarget = "reasoning_content",
        begins: Begins = "text",
        incremental: bool = False,
        own: ModelFacts = NO_MODEL_FACTS,
        client_dialect: str | None = None,
    ) -> None:
        self._context = context = Context(
            grammar,
            tools,
            lenient=lenient,
            unknown_tools=unknown_tools,
            most_held=max_call_bytes,
            think=think,
            begins=begins,
            incremental=incremental,
            own=own,
            client_dialect=client_dialect,
        )
        self._cursor = context.cursor
        self._speech = context.output
        self._find_token_start: Callable[[str], object] | None = None
        """Finds where a token may begin in text that is still to come; None if all text is to be read."""
        self._steps_left = SPARE_STEPS
        """Steps that the text which is held may still take."""
        self._recounted = 0
        """Characters of it that were counted as they were read again."""
        self._last_at = self._last_seek = -1
        """The place after the last step."""
        self._begin()

    def feed(self, text: str) -> list[Event]:
        """Read on; everything that can be told by now is returned. Raises `Livelock`."""
        if len(text) > MAX_CHUNK_CHARACTERS:
            return self._feed_in_chunks(text)
        cursor, first = self._cursor, self._find_token_start
        if (forgotten := cursor.at - LOOKBEHIND_CHARACTERS) > 0:  # no token can need that any more
            cursor.text = cursor.text[forgotten:]
            cursor.at -= forgotten
            cursor.seek -= forgotten
        cursor.text += text
        if first is not None and first(text) is None:
            # No token begins in it, and nothing is held: the text itself is all there is to know.
            cursor.at = cursor.seek = len(cursor.text)
            speech = self._speech
            if speech.last is _TEXT and self._row.is_visible:
                if speech.whitespace or text[-1:] in WHITESPACE:
                    return speech.pass_through(text)
                return [Text(text)]
            return self._handler.feed_plain(text)
        self._steps_left += STEPS_PER_CHARACTER * len(text)
        self._advance()
        return [] if self._context.beginning.undecided else self._speech.take()

    def _feed_in_chunks(self, text: str) -> list[Event]:
        """Read a text that is long piece by piece: no one else gets on while an expression searches it."""
        pieces = (text[at : at + MAX_CHUNK_CHARACTERS] for at in range(0, len(text), MAX_CHUNK_CHARACTERS))
        events: list[Event] = []
        for event in (event for piece in pieces for event in self.feed(piece)):
            if isinstance(event, Text | Reasoning) and events and type(events[-1]) is type(event):
                event = type(event)(events.pop().raw + event.raw)
            events.append(event)
        return events

    def finish(self, *, complete: bool = True) -> list[Event]:
        """End the message, which is not `complete` if it was cut off (`finish_reason: length`). Raises `Livelock`."""
        self._cursor.final, self._context.complete = True, complete
        self._steps_left += SPARE_STEPS
        self._advance()
        while (end := self._row.end) is not None:
            self._transition(end, end.action(self._handler))
            self._advance()
        beginning = self._context.beginning
        if beginning.prompted:
            self._decide_prompted(complete=complete)
        beginning.undecided = beginning.prompted = False
        if complete and self._speech.is_silent:  # as where reasoning came by another way
            for call in extract_from_reasoning(beginning.calls_in_reasoning):
                self._speech.add_call(call)
        beginning.calls_in_reasoning = []
        self._speech.flush_whitespace()
        return self._speech.take()

    def _decide_prompted(self, *, complete: bool) -> None:
        """End a reply that begins with a call, where the prompt may have opened the reasoning.

        It is what it was read as. But if it was cut off the model may have been thinking still.
        """
        context = self._context
        if not context.beginning.undecided:
            return
        if complete:
            context.beginning.began_inside = False
            return
        if thoughts := self._speech.retract()[0]:
            self._speech.emit(REASONING_EVENTS[context.think](thoughts))
        self._enter(State.REASONING)

    def skip_passed(self, text: str) -> None:
        """Take note of the end of what left unread; nothing of it leaves again."""
        cursor, rule = self._cursor, self._scan.plain if self._scan else None
        if rule and rule.later and rule.later in text:
            self.feed(text)
            self._speech.whitespace.clear()
            text = ""
        cursor.text = (cursor.text + text)[-LOOKBEHIND_CHARACTERS:]
        cursor.at = cursor.seek = len(cursor.text)

    def release_whitespace(self) -> str:
        """Take note that the white space which waited has left as text; return it."""
        return self._speech.take_whitespace() if self._speech.whitespace else ""

    def read_whole(self, text: str) -> list[Event]:
        """Read a text that is complete."""
        return [*self.feed(text), *self.finish()]

    def pause(self) -> list[Event]:
        """End one block of text of a message that has several: what is held is decided as at its end.

        The next block is read from the start, and does not begin inside the reasoning.
        """
        events = self.finish()
        self._restart()
        return events

    def restart(self) -> list[Event]:
        """Give back what is held, and parse what follows as the beginning of a text, which is outside of reasoning."""
        events = self.release()
        self._restart()
        return events

    def _restart(self) -> None:
        self._cursor.final = False
        self._cursor.text = ""
        self._cursor.at = self._cursor.seek = 0
        self._begin()

    def release(self) -> list[Event]:
        """Give back what is held as text, and read no more (upstream turned out to send `tool_calls` itself)."""
        handler = self._handler
        handler.release("the reply has native tool calls")
        if isinstance(handler, InReasoning):
            handler.emit_reasoning(len(self._cursor.text))
        else:
            self._speech.add_text(self._cursor.consume_all())
        self._context.beginning.undecided = False
        self._speech.flush_whitespace(as_text=True)
        self._find_token_start = None
        return self._speech.take()

    def record_reasoning(self) -> None:
        """Note that the reasoning came by another way: a reply that was to begin inside of it does not."""
        if self._state in (State.START, State.PROMPTED):
            self._context.beginning.mark_as_text()
            self._context.beginning.record_began_inside(
                began_inside=False
            )  # an earlier block may have shown that it did

    @property
    def in_reasoning(self) -> bool:
        """True if the text so far ends inside of the reasoning."""
        return self._state is State.REASONING

    @property
    def begins(self) -> Begins:
        """Return what the text that follows begins with, if nothing was read yet; else `text`."""
        return self._context.beginning.begins

    @property
    def began_inside(self) -> bool | None:
        """Tell whether the reply began inside of the reasoning; None if that did not show."""
        return self._context.beginning.began_inside

    @property
    def shows_beginning(self) -> bool:
        """True if that counts for other replies, too; a closing tag amid a line may be one that the reply speaks of."""
        beginning = self._context.beginning
        return beginning.is_certain and beginning.began_inside is not None

    @property
    def held_characters(self) -> int:
        """Characters that are kept of the text, calls aside."""
        return len(self._cursor.text)

    @property
    def has_pending_whitespace(self) -> bool:
        """True if white space waits."""
        return bool(self._speech.whitespace)

    @property
    def plain_rule(self) -> PlainRule | None:
        """Tell which text may leave unread once the white space that waits has left (`spaced`); None if none may."""
        speech, cursor = self._speech, self._cursor
        if not self._row.is_visible or self._find_token_start is None or speech.last is not _TEXT:
            return None
        line = cursor.text.rpartition("\n")[2]
        if not line.strip(INDENT_CHARACTERS) or ": |" in line or ": >" in line:
            return None  # at the beginning of a line, where more is markup than within it, or after a key of YAML
        return self._scan.plain if self._scan else None

    @property
    def held_call(self) -> HeldCall | None:
        """Tell which text only makes the call longer that is held; None if no call is, or not as a whole."""
        handler = self._handler
        if not isinstance(handler, InCall | InJson | InValue) or handler.call.pieces or handler.call.text.spilled:
            return None
        more = FIND_STRING_END if self._find_token_start and isinstance(handler, InJson) else self._find_token_start
        return HeldCall(more, self._context.max_held - handler.call.text.size)

    def _begin(self) -> None:
        self._handler = InText(self._context)
        self._enter(State.START)

    def _advance(self) -> None:
        """Read as far as can be told by now."""
        context, cursor = self._context, self._cursor
        self._last_at = -1
        while True:
            row, scan = self._row, self._scan
            if scan is None:
                assert row.otherwise is not None
                outcome = row.otherwise.action(self._handler)
                if outcome is Verdict.WAIT:
                    break
                self._transition(row.otherwise, outcome)
                continue
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
        # If nothing is held, and no call was made on this line, what follows may be plain.
        if cursor.at == len(cursor.text):
            if row.is_visible:
                self._steps_left, self._recounted = SPARE_STEPS, 0
            if not (context.beginning.undecided or self._speech.line_fate):
                if scan is None:
                    self._find_token_start = self._handler.find_structure if isinstance(self._handler, InJson) else None
                elif row.skips_plain and scan.plain:
                    self._find_token_start = scan.first.search

    def _transition(self, step: Step, outcome: StepOutcome) -> None:
        """Go to the state that follows a step. Raises `Livelock`."""
        data = None
        if isinstance(outcome, tuple):
            outcome, data = outcome
        state = step.next if outcome is None else step.by_verdict[outcome]
        at, seek = self._cursor.at, self._cursor.seek
        self._steps_left -= 1
        if (self._steps_left < 0 and not self._grant_steps()) or (
            at == self._last_at and seek == self._last_seek and state is self._state
        ):
            raise Livelock(f"no progress in state {self._state.value!r}, at {step.action.__qualname__}")
        self._last_at, self._last_seek = at, seek
        if data is not None:
            self._handler = TABLE[state].handler(self._context, data)
        elif state is self._state:
            return
        self._enter(state)

    def _grant_steps(self) -> bool:
        """Allow steps for text that is given back to be read again: as it came, most took none and was not counted."""
        more = len(self._cursor.text) - self._recounted
        if more <= 0:
            return False
        self._steps_left += STEPS_PER_CHARACTER * more
        self._recounted += more
        return True

    def _enter(self, state: State) -> None:
        self._state = state
        self._row = row = TABLE[state]
        if not isinstance(self._handler, row.handler):
            self._handler = row.handler(self._context)
        self._scan = row.scan(self._handler)
        self._find_token_start = None
