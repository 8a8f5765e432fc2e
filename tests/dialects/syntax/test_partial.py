"""A text may have begun what more text can end, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vtc.dialects.syntax.pattern import Chars, Group, Lit, Maybe, OneOf, Part, Space, whole, whole_of
from vtc.dialects.syntax.scan import Partial


@pytest.mark.parametrize(
    ("part", "whole", "beginnings", "neither"),
    [
        (Lit("<a>"), ["<a>"], ["<", "<a"], ["a>", "<b"]),
        (Space(), ["", " \n", "\\n"], ["\n", "\\"], ["x"]),
        (Chars("a-z", 3), ["a", "abc"], ["ab"], ["abcd", "A"]),
        (OneOf(("ab", "cd"), any_case=True), ["ab", "CD"], ["A", "c"], ["b", "ac"]),
        (Maybe((Lit("ab"),)), ["", "ab"], ["a"], ["b"]),
        (Group((Lit("a"), Lit("b")), "g"), ["ab"], ["a"], ["b"]),
    ],
)
def test_what_a_part_is_and_how_it_begins(
    part: Part, whole: list[str], beginnings: list[str], neither: list[str]
) -> None:
    assert all(re.fullmatch(whole_of(part), text) for text in whole)
    assert all(Partial([(part,)]).begins(text, 0) for text in beginnings)
    assert not any(re.fullmatch(whole_of(part), text) or Partial([(part,)]).begins(text, 0) for text in neither)


# Sequences, each with texts that are one


@st.composite
def sequences(draw: st.DrawFn, depth: int = 2) -> tuple[tuple[Part, ...], str]:
    """A sequence of parts, and a text that it matches."""
    parts: list[Part] = []
    text = ""
    for _ in range(draw(st.integers(1, 4))):
        part, piece = draw(_parts(depth))
        parts.append(part)
        text += piece
    return tuple(parts), text


@st.composite
def _parts(draw: st.DrawFn, depth: int) -> tuple[Part, str]:
    kinds = ["lit", "space", "chars", "words", *(["maybe", "group"] if depth else [])]
    match draw(st.sampled_from(kinds)):
        case "lit":
            text = draw(st.text("<>/ab.*", min_size=1, max_size=5))
            return Lit(text), text
        case "space":
            return Space(), draw(st.text(" \n\t", max_size=3))
        case "chars":
            # A run that the next part could go on with would be given back by `re`, as it is in no real pattern.
            return Chars("0-9", 3), draw(st.text("0123456789", min_size=1, max_size=3))
        case "words":
            words = draw(st.lists(st.text("xyzé+", min_size=1, max_size=4), min_size=1, max_size=3))
            word = draw(st.sampled_from(words))
            any_case = draw(st.booleans())
            return OneOf(tuple(words), any_case=any_case), word.upper() if any_case else word
        case "maybe":
            inner, text = draw(sequences(depth - 1))
            return Maybe(inner), draw(st.sampled_from(["", text]))
    inner, text = draw(sequences(depth - 1))
    return Group(inner, "group"), text


@given(sequences())
@example(((Lit("<t>"), Maybe((Space(), Lit("</t>")))), "<t>"))
@example(((OneOf(("read", "read_all")), Lit(">")), "read_all>"))
@example(((Chars("0-9", 3), Lit("</a"), Space(), Lit(">")), "12</a  >"))
def test_every_beginning_of_a_match_is_one(sequence: tuple[tuple[Part, ...], str]) -> None:
    parts, text = sequence
    if not re.fullmatch(whole(parts), text):
        return  # a possessive part took what a later one needs; then there is no match to begin
    for end in range(1, len(text)):
        assert Partial([parts]).begins(f"a{text[:end]}", 1), text[:end]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((Lit("<tool>"),), "<tool>"),
        ((Lit("<tool>"),), "tool"),
        ((Lit("<t>"), Lit("{")), "<t>x"),
        ((OneOf(("ab", "cd")),), "ad"),
        ((OneOf(("ab",)),), "A"),
        ((Chars("a-z", 3),), "abcd"),
        ((Space(), Lit("x")), " " * 257),
    ],
)
def test_what_can_become_no_match_is_no_beginning(parts: tuple[Part, ...], text: str) -> None:
    assert not Partial([parts]).begins(text, 0)
