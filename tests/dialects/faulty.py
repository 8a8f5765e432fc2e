"""Rules with which the reader does not get on, by name: each is put into its table for one test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vtc.dialects.reading.text import InText
from vtc.dialects.reading.transitions import TABLE, State, StateRow, Step, Tokens

HEAD = 'Look.\n\n<tool_call>\n{"name": "read", "arguments": {'
"""A text that meets them."""


def _opens(patch: pytest.MonkeyPatch, step: Step) -> None:
    """Let the opening tag of a call in plain text lead to this step."""
    row = TABLE[State.TEXT]
    # A token with a number takes the step of its kind when it is first met.
    kinds = {token: step for token, step in row.tokens.items() if not token[-1].isdigit()}
    patch.setitem(TABLE, State.TEXT, row._replace(tokens=Tokens({**kinds, "h": step})))  # type: ignore[arg-type]


def stand_still(patch: pytest.MonkeyPatch) -> None:
    """The tag is found, and found again."""
    _opens(patch, Step(lambda _inside, _found: None, State.TEXT))


def go_round(patch: pytest.MonkeyPatch, back: Callable[[InText], None] = lambda _: None) -> None:
    """It leads to another state, and that back."""
    _opens(patch, Step(lambda _inside, _found: None, State.ANSWER))
    row: StateRow[InText] = StateRow(InText, lambda _: None, Tokens(), otherwise=Step(back, State.TEXT))
    patch.setitem(TABLE, State.ANSWER, row)  # type: ignore[arg-type]


RULES = {"stand still": stand_still, "go round": go_round}
