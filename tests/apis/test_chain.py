"""Texts in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vtc.apis.contract import TextChain, join_chain


@given(st.lists(st.text()))
def test_pieces_are_joined_in_their_order(pieces: list[str]) -> None:
    chain: TextChain = None
    for piece in pieces:
        chain = chain, piece
    assert join_chain(chain) == "".join(pieces)
