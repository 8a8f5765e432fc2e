"""Parts and sequences of them as expressions."""

from __future__ import annotations

import re

from vtc.dialects.syntax.pattern import Chars, Group, Lit, OneOf, whole, whole_of


def test_a_group_has_a_name_only_in_a_token() -> None:
    part = Chars("a-z", 3, "name")
    assert re.compile(whole_of(part)).groupindex == {}
    assert re.compile(whole_of(part, "h1")).groupindex == {"name_h1": 1}


def test_groups_are_named_after_their_token() -> None:
    parts = (Lit("<"), OneOf(("read", "read_all"), "name"), Group((Lit(" "), Lit("x")), "rest"), Chars("0-9", 2))
    found = re.fullmatch(whole(parts, "h3"), "<read_all x12")
    assert found is not None
    assert found.groupdict() == {"name_h3": "read_all", "rest_h3": " x"}


def test_a_literal_is_no_expression() -> None:
    assert re.fullmatch(whole((Lit("a.b*[c]"), OneOf(("x|y", "(z")))), "a.b*[c](z")
    assert not re.fullmatch(whole((Lit("a.b"),)), "axb")
