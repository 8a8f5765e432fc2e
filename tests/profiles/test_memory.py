"""Facts about servers: found by all values that they depend on, and few."""

from __future__ import annotations

import pytest

from tests.known import AGREEING
from vtc.profiles import Memory
from vtc.profiles.memory import Learned


def test_a_fact_is_found_again_by_its_whole_key() -> None:
    memory = Memory()
    known = memory.get_learned("a", "b")
    assert memory.get_learned("a", "b") is known
    for other in (("ab",), ("a", "b", ""), ("a",), ("b", "a"), ("a', 'b",)):
        assert memory.get_learned(*other) is not known
    assert Memory().get_learned("a", "b") is not known


def test_half_a_surrogate_pair_is_a_key_like_any_other() -> None:
    memory = Memory()
    assert memory.get_learned("\ud83d") is memory.get_learned("\ud83d")


def test_the_fact_not_asked_for_longest_is_evicted() -> None:
    memory = Memory(2)
    one, two = memory.get_learned("one"), memory.get_learned("two")
    assert memory.get_learned("one") is one
    memory.get_learned("three")
    assert memory.get_learned("one") is one
    assert memory.get_learned("two") is not two


@pytest.mark.parametrize("inside", [True, False])
def test_a_fact_is_believed_when_enough_replies_agree(inside: bool) -> None:
    learned = Learned()
    for _ in range(AGREEING):
        assert learned.begins_inside is None
        learned.note(inside=inside)
    assert learned.begins_inside is inside
    learned.note(inside=not inside)
    assert learned.begins_inside is None
