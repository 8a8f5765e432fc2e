"""Reasoning that only its own server can read, sealed for clients of other APIs."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.apis.crossing import opened, origin_of, sealed
from vtc.events import Thought

HERE = origin_of("anthropic-messages", "a", 443)


@given(st.builds(Thought, st.text(), st.text(), st.text()))
def test_a_thought_comes_back_to_its_own_server_alone(thought: Thought) -> None:
    value = sealed(thought, HERE)
    assert opened(value, HERE) == thought
    assert opened(urlsafe_b64encode(b64decode(value, validate=True)).decode(), HERE) == thought
    for other in ("", origin_of("openai-responses", "a", 443), origin_of("anthropic-messages", "b", 443)):
        assert opened(value, other) is None


def test_half_a_surrogate_pair_comes_back() -> None:
    assert opened(sealed(Thought("\ud83d", "s"), HERE), HERE) == Thought("\ud83d", "s")


@pytest.mark.parametrize("rest", ["", "x", "{}", "[]", "[1]", "e30=", "W10=", "é"])
def test_what_is_no_thought_is_none(rest: str) -> None:
    assert opened(rest, HERE) is None
    assert opened(b64encode(f"vtc1.{HERE}.{rest}".encode()).decode(), HERE) in (None, Thought())
