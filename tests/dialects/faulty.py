"""Faulty rules for the reader's table, by name: each is installed for one test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vtc.dialects.reading.reader import SPARE_STEPS, STEPS_PER_CHARACTER, Livelock
from vtc.dialects.reading.text import InText
from vtc.dialects.reading.transitions import TABLE, State, StateRow, Step, Steps
from vtc.dialects.syntax.tokens import TokenKind

__all__ = ["HEAD", "RULES", "SPARE_STEPS", "STEPS_PER_CHARACTER", "InText", "Livelock"]

HEAD = 'Look.\n\n<tool_call>\n{"name": "read", "arguments": {'
"""A text that triggers them."""


def _opens(patch: pytest.MonkeyPatch, step: Step) -> None:
    """Let the opening tag of a call in plain text lead to this step."""
    row = TABLE[State.TEXT]
    # A numbered token gets the step of its kind at its first occurrence.
    kinds = {token: step for token, step in row.steps.items() if isinstance(token, TokenKind)}
    patch.setitem(TABLE, State.TEXT, row._replace(steps=Steps({**kinds, step.token: step})))  # type: ignore[arg-type]


def stand_still(patch: pytest.MonkeyPatch) -> None:
    """Install a rule that finds the same tag again and again."""
    _opens(patch, Step(TokenKind.CALL_OPENER, lambda _inside, _found: None, State.TEXT))


def go_round(patch: pytest.MonkeyPatch, back: Callable[[InText], None] = lambda _: None) -> None:
    """Install a rule that leads to another state, which leads back."""
    _opens(patch, Step(TokenKind.CALL_OPENER, lambda _inside, _found: None, State.ANSWER))
    otherwise = Step(TokenKind.OTHERWISE, back, State.TEXT)
    row: StateRow[InText] = StateRow(InText, lambda _: None, otherwise=otherwise)
    patch.setitem(TABLE, State.ANSWER, row)  # type: ignore[arg-type]


RULES = {"stand still": stand_still, "go round": go_round}
