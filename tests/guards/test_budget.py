"""Work that is given up before it holds up everybody."""

from __future__ import annotations

import pytest
import regex

from vtc.guards.patterns import Budget, TakesTooLongError

ENDLESS = r"^(a|a)*$"
LETTERS = "a" * 60 + "!"


def test_steps_are_counted_to_the_last() -> None:
    budget = Budget(steps=3)
    budget.spend()
    budget.spend(2)
    with pytest.raises(TakesTooLongError, match="takes too long"):
        budget.spend()


def test_an_expression_finds_what_is_there() -> None:
    assert Budget().search("b+", "abba")
    assert not Budget().search("^b", "abba")


def test_an_expression_that_takes_for_ever_is_given_up_and_so_is_what_follows() -> None:
    budget = Budget()
    with pytest.raises(TakesTooLongError):
        budget.search(ENDLESS, LETTERS)
    with pytest.raises(TakesTooLongError):
        budget.run(regex.compile("a").sub, "b", "a")


def test_searches_are_steps_too() -> None:
    budget = Budget(steps=2)
    assert budget.search("a", "a")
    assert budget.search("a", "a")
    with pytest.raises(TakesTooLongError):
        budget.search("a", "a")
