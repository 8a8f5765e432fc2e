"""Reasoning that only its own server can read, sealed for clients of other APIs."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.apis.seals import SealKey
from vtc.events import Thought

WHOSE = ("anthropic-messages", "a", "443")
KEY = SealKey.of([b"secret"], WHOSE)
OTHERS = [
    SealKey.of([b"other"], WHOSE),
    SealKey.of([b"secret"], ("anthropic-messages", "b", "443")),
    SealKey.of([b""], ()),
]
THOUGHTS = st.builds(Thought, st.text(), st.text(), st.text())


@given(THOUGHTS)
def test_reasoning_returns_only_to_its_server(thought: Thought) -> None:
    value = KEY.seal(thought)
    assert KEY.unseal(value) == thought
    assert KEY.unseal(urlsafe_b64encode(b64decode(value, validate=True)).decode()) == thought
    for other in OTHERS:
        assert other.unseal(value) is None


@given(THOUGHTS)
def test_first_secret_signs_and_all_verify(thought: Thought) -> None:
    """So a secret can be replaced while clients still have values that the old one signed."""
    replaced = SealKey.of([b"new", b"secret"], WHOSE)
    assert replaced.unseal(KEY.seal(thought)) == thought
    assert KEY.unseal(replaced.seal(thought)) is None
    assert SealKey.of([b"new"], WHOSE).unseal(replaced.seal(thought)) == thought


@given(THOUGHTS, st.integers(0), st.integers(1, 255))
def test_changed_text_is_no_seal(thought: Thought, at: int, by: int) -> None:
    data = bytearray(b64decode(KEY.seal(thought)))
    data[at % len(data)] ^= by
    assert KEY.unseal(b64encode(bytes(data)).decode()) is None


def test_lone_surrogate_is_returned() -> None:
    assert KEY.unseal(KEY.seal(Thought("\ud83d", "s"))) == Thought("\ud83d", "s")


@pytest.mark.parametrize("value", ["", "x", "{}", "e30=", "W10=", "é", b64encode(b"vtc2." + b"x" * 40).decode()])
def test_other_text_is_no_seal(value: str) -> None:
    assert KEY.unseal(value) is None
