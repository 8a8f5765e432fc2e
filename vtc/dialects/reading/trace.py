"""Trace the steps of a reader, to find out why a call was not recognized: `vtc parse --trace`.

Tracing is in a subclass, so that other readers do not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from vtc.dialects.reading.context import StepOutcome, Verdict
from vtc.dialects.reading.reader import Reader
from vtc.dialects.reading.text import InCode
from vtc.dialects.reading.transitions import State, Step
from vtc.dialects.syntax.scan import get_token_kind
from vtc.dialects.syntax.tokens import TokenKind
from vtc.events import Event


class TracedStep(NamedTuple):
    """One step of the reader, or text that was consumed without one."""

    state: State
    step: Step
    verdict: Verdict | None
    next: State
    text: str
    """The text that it consumed, including earlier text that no step consumed."""
    pushed_back: int = 0
    """Characters that it pushed back, to be parsed again."""


class PassedOver(NamedTuple):
    """A call that was skipped as an example, because it is in code."""

    dialect: str
    text: str


_NOT_OPENED = (Verdict.CONTENT, Verdict.QUOTED)


class TracedReader(Reader):
    """A reader that records its steps, and the calls in code that it skipped."""

    __slots__ = ("_code", "_unread", "trace")

    def __init__(self, *arguments: Any) -> None:
        self.trace: list[TracedStep | PassedOver] = []
        self._code: list[str] = []
        self._unread = ""
        """The text that was not consumed when the last step was recorded."""
        super().__init__(*arguments)

    def feed(self, text: str) -> list[Event]:
        """Parse more text without the fast path. Raises `Livelock`."""
        self._find_token_start = None
        self._unread += text
        events = super().feed(text)
        self._record_text()
        return events

    def _feed_in_chunks(self, text: str) -> list[Event]:
        self._unread = self._unread.removesuffix(text)  # `feed` adds each chunk again
        return super()._feed_in_chunks(text)

    def finish(self, *, complete: bool = True) -> list[Event]:
        """End the message. Raises `Livelock`."""
        events = super().finish(complete=complete)
        self._record_text()
        self._look_through_code()
        return events

    def _transition(self, step: Step, outcome: StepOutcome) -> None:
        handler, state = self._handler, self._state
        super()._transition(step, outcome)
        verdict = outcome[0] if isinstance(outcome, tuple) else outcome
        text = self._record_step(state, step, verdict)
        begins = step.token is TokenKind.CALL_OPENER and verdict not in _NOT_OPENED
        if isinstance(handler, InCode) and not begins:
            self._code.append(text)
        if not isinstance(self._handler, InCode):
            self._look_through_code()

    def _record_text(self) -> None:
        """Record text that was consumed without a step."""
        step = self._row.text or self._row.otherwise
        if step and self._get_remaining_text() != self._unread:
            text = self._record_step(self._state, step, None)
            if isinstance(self._handler, InCode):
                self._code.append(text)

    def _record_step(self, state: State, step: Step, verdict: Verdict | None) -> str:
        """Record a step from `state` to the current state; return the text that it consumed."""
        unread = self._get_remaining_text()
        consumed = len(self._unread) - len(unread)
        text = self._unread[: max(0, consumed)]
        self.trace.append(TracedStep(state, step, verdict, self._state, text, max(0, -consumed)))
        self._unread = unread
        return text

    def _get_remaining_text(self) -> str:
        return self._cursor.text[self._cursor.at :]

    def _look_through_code(self) -> None:
        """Record the calls in the code that ends here."""
        self.trace += self._find_calls("".join(self._code))
        self._code.clear()

    def _find_calls(self, code: str) -> Iterator[PassedOver]:
        """Find the calls that the text would contain if it were not code."""
        grammar, at = self._context.grammar, 0
        while token := grammar.text.search(code, at, final=True, offers=self._context.offers):
            at = token.end()
            if get_token_kind(token.lastgroup) == TokenKind.CALL_OPENER:
                yield PassedOver(grammar.heads[token.lastgroup or ""].syntax.dialect.name, code[token.start() :])
