"""What a state looks for: a token, or the text that may still become one."""

from __future__ import annotations

import pytest

from vtc.dialects.syntax.pattern import Chars, Lit, Space
from vtc.dialects.syntax.scan import Token, expecting, searching


def test_what_begins_with_one_of_many_characters_can_be_expected() -> None:
    scan = expecting([Token("p", (Chars("a-z", 8, "key"), Lit(":"))), Token("tail", (Lit("}"),))])
    found = [scan.while_open.match(text) for text in ("ab:", " }", "ab", " ")]
    assert [one and str(one.lastgroup).rstrip("01_") for one in found] == ["p", "tail", "hold", "hold"]
    assert scan.at_end.match("ab") is None


TAG = Token("tag", (Lit("<tag"), Space(), Lit(">")))
LINE = Token("line", (Lit("#!"),), line_start=True)


@pytest.mark.parametrize(
    ("text", "group", "start"),
    [
        ("some text", None, None),
        ("a <b> c", None, None),
        ("a <ta", "hold", 2),
        ("a <tag \n", "hold", 2),
        ("a <tag >b", "tag", 2),
        ("a <tag><ta", "tag", 2),
        ("<ta <tag>", "tag", 4),
        ("#!", "line", 0),
        ("x #!", None, None),
        ("x\n #!", "line", 3),
        ("x\n> \t#", "hold", 5),
        ("x\n         #!", None, None),
    ],
)
def test_searching(text: str, group: str | None, start: int | None) -> None:
    scan = searching([TAG, LINE])
    found = scan.while_open.search(text)
    assert (found and (found.lastgroup or "").rstrip("0123456789")) == group
    assert (found and found.start()) == start
    final = scan.at_end.search(text)
    assert (final and final.lastgroup) == (None if group == "hold" else group)


def test_some_tokens_count_only_as_the_last_thing() -> None:
    scan = searching([TAG], [Token("end", (Lit("<end>"),))])
    assert not scan.while_open.search("a <end>")
    assert not scan.at_end.search("a <end> b")
    found = scan.at_end.search("a <end> \n")
    assert found is not None
    assert found.lastgroup == "end"


@pytest.mark.parametrize(
    ("text", "group"),
    [("", "hold"), (" \n", "hold"), (" <ta", "hold"), ("\n\n<tag>", "tag"), ("x<tag>", None), (" " * 257, None)],
)
def test_expecting(text: str, group: str | None) -> None:
    found = expecting([TAG]).while_open.match(text)
    assert (found and (found.lastgroup or "").rstrip("0123456789_")) == group


def test_a_state_without_tokens_finds_none() -> None:
    scan = searching([])
    assert not scan.while_open.search("a < b")
    assert not scan.at_end.search("")
