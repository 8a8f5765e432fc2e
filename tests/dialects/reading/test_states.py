"""The table of the reader: every token that can be found has a move, and every move is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest

from tests.dialects.material import AGENT, DIALECTS
from vtc.dialects.reading.reader import Reader
from vtc.dialects.reading.states import ANCHORED, INFO, MOVES, OTHERWISE, WHOLE, State
from vtc.dialects.syntax.grammar import ATTRIBUTES_END, Grammar
from vtc.dialects.syntax.pattern import Scan

STATES = get_args(State.__value__)
WITHOUT_TOKENS = {"json"}

# Every dialect there is, each also with calls in code.
GRAMMARS = [
    Grammar([dialect, msgspec.structs.replace(dialect, in_code="call")], AGENT, ("<think>", "</think>"), ["<|end|>"])
    for dialect in DIALECTS.values()
]


def scans(grammar: Grammar) -> Iterator[tuple[State, Scan]]:
    """Every expression that looks for tokens, and the state it does so in."""
    yield "start", grammar.start
    yield "text", grammar.text
    yield "info", INFO
    yield "fence", grammar.closing_fence("```")
    yield "span", grammar.span
    yield "quoted", grammar.span_end
    yield "reasoning", grammar.reasoning
    yield "whole", WHOLE
    yield "attributes", ATTRIBUTES_END
    for form in {head.form for head in grammar.heads.values()}:
        yield "tail", grammar.tail(form, "f")
        yield "after", grammar.after(form)
        yield "damaged", grammar.damaged(form, "f")
        yield "spill", grammar.closer(form, "f")
        if form.body == "params":
            yield "arguments", grammar.arguments(form, "f")
            for index in range(len(form.dialect.params)):
                yield "value", grammar.value(form, "f", index, "key")
                yield "guess", grammar.guess(form, index, "key")
                yield "closing", grammar.closing(form, "f", index, "key")


def tokens(scan: Scan) -> set[str]:
    """The names of its tokens, without the numbers that tell several of a kind apart."""
    # Read from the expressions as written: to compile all of them would take far longer than the test.
    groups = {*re.findall(r"\(\?P<(\w+)>", scan._streaming + scan._final)}
    inner = "(?:name|id|index|json|key|string|type|next|attribute|head)_"
    outer = {name for name in groups if not re.match(inner, name)}
    return {name.rstrip("0123456789") for name in outer if not name.startswith("hold")}


def test_every_token_of_every_state_has_a_move_and_every_move_a_token() -> None:
    found = {(state, token) for grammar in GRAMMARS for state, scan in scans(grammar) for token in tokens(scan)}
    assert found == set(MOVES)


@pytest.mark.parametrize("move", sorted({*MOVES.values(), *OTHERWISE.values()}))
def test_every_move_is_a_method_of_the_reader(move: str) -> None:
    assert callable(getattr(Reader, f"_{move}"))


def test_the_tables_name_only_states() -> None:
    assert {state for state, _ in MOVES} | WITHOUT_TOKENS == set(STATES)
    assert set(OTHERWISE) | ANCHORED <= set(STATES)


def test_where_a_token_must_follow_it_is_said_what_happens_if_none_does() -> None:
    assert set(OTHERWISE) >= ANCHORED


def test_no_call_is_looked_for_in_code_unless_the_dialect_says_so() -> None:
    plain = [dialect for dialect in DIALECTS.values() if dialect.in_code == "text"]
    assert plain
    assert "h" not in tokens(Grammar(plain, AGENT).closing_fence("```"))
