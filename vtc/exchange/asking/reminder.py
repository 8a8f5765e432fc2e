"""Remind the model in a turn that ends in silence; its next reply continues the same turn.

The client never sees the reminder. The first reply and the reminder are stored and restored in later requests
(`remembering/reasoning.py`), so that the prompts of later turns begin with the text that the model saw.
"""

from __future__ import annotations

from collections.abc import Mapping

from vtc.apis import Request
from vtc.apis.relay.turn import TurnEncoder
from vtc.events import Message, Silence
from vtc.exchange.asking.request import RequestEncoder
from vtc.exchange.remembering.past import History
from vtc.reporting.report import Report

SILENCE_REASONS: Mapping[Silence, str] = {
    "empty": "the reply was empty",
    "thought": "the model thought, and said nothing",
    "announced": "the reply ended with what the model does next, and without a call",
}
"""Kinds of silence, described for people."""
BOTH_REPLIES_COUNTED = "the reported tokens are those of both replies"


class Reminder:
    """The reminder of one exchange, which is sent at most once."""

    def __init__(self, request: Request, encoder: RequestEncoder, past: History | None, report: Report) -> None:
        self._request = request
        self._encoder = encoder
        self._past = past
        self._report = report
        self._reminded: tuple[str, tuple[Message, ...]] = "", ()
        """The model's text, and the messages that were added."""

    def encode_question(self, turn: TurnEncoder) -> bytes:
        """Encode the request with the first reply of the turn and a reminder."""
        body, messages = self._encoder.encode_reminder(turn.silence or "empty", turn.first_text)
        self._reminded = turn.first_text, messages
        return body

    def mark_answered(self, turn: TurnEncoder) -> None:
        """Record that the model answered the reminder; call it before the turn continues."""
        if self._past:
            self._past.record_prompt(*self._encoder.sent_prompt, self._request)
            if self._past.reasoning:
                self._past.reasoning.store_reminder(*self._reminded)
        self._report.record_intervention(
            "retry", "asked", "", SILENCE_REASONS[turn.silence or "empty"], BOTH_REPLIES_COUNTED
        )

    def mark_failed(self, why: str) -> None:
        """Record that the reminder got no reply."""
        self._report.record_intervention("retry", "failed", "", why)
