"""Single parts; `test_pattern.py` has sequences of them."""

from __future__ import annotations

import re

import pytest

from vtc.dialects.syntax.parts import Chars, Group, Lit, Maybe, OneOf, Part, Space, beginning, whole_of


@pytest.mark.parametrize(
    ("part", "whole", "beginnings", "neither"),
    [
        (Lit("<a>"), ["<a>"], ["", "<", "<a"], ["a>", "<b"]),
        (Space(), ["", " \n", "\\n"], ["", "\n", "\\"], ["x"]),
        (Chars("a-z", 3), ["a", "abc"], ["", "ab"], ["abcd", "A"]),
        (OneOf(("ab", "cd"), any_case=True), ["ab", "CD"], ["", "A", "c"], ["b", "ac"]),
        (Maybe((Lit("ab"),)), ["", "ab"], ["", "a"], ["b"]),
        (Group((Lit("a"), Lit("b")), "g"), ["ab"], ["", "a"], ["b"]),
    ],
)
def test_what_a_part_is_and_how_it_begins(
    part: Part, whole: list[str], beginnings: list[str], neither: list[str]
) -> None:
    assert all(re.fullmatch(whole_of(part), text) for text in whole)
    assert all(re.fullmatch(beginning((part,)), text) for text in beginnings)
    assert not any(re.fullmatch(f"{whole_of(part)}|{beginning((part,))}", text) for text in neither)


def test_a_group_has_a_name_only_in_a_token() -> None:
    part = Chars("a-z", 3, "name")
    assert re.compile(whole_of(part)).groupindex == {}
    assert re.compile(whole_of(part, "h1")).groupindex == {"name_h1": 1}
