"""Looking for many tokens in two steps finds what one expression for all of them would."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.material import DIALECTS
from vtc.dialects import Grammar
from vtc.dialects.syntax.pattern import Chars, Lit, Maybe, OneOf, Part, Space
from vtc.dialects.syntax.prefilter import ExpectedTokens, FollowingTokens, Prefilter, beginnings
from vtc.dialects.syntax.scan import OFFERED, Finder, Scan, Token, expecting, searching
from vtc.dialects.syntax.tokens import FENCES, TICKS

RESCUED = [one.rescued for one in DIALECTS.values() if one.rescued]
HEADS = [head.token for head in Grammar(RESCUED).heads.values() if not head.syntax.whole_reply]
TOKENS = [*HEADS, *FENCES, TICKS]
ONE, TWO = searching(TOKENS), Prefilter(TOKENS)
WHOLE, SPLIT = expecting(TOKENS), ExpectedTokens(TOKENS)
PIECES = [
    *("<", "<tool_call>", "<tool_calls>", "<function=", "<invoke name=", "<invoke", "<bash>", "<BASH", "<|"),
    *("bash", ">", '"', "{", '{"', "[", "name", "\n", "  ", "`", "```", "~~~", "~", "a", "</", "]", "｜", "▁", "tool"),
    *("<｜tool▁calls▁begin｜>", "<|tool_call_start|>", "[", "<function_calls>", "<tools>", "json", "\\n"),
]


def told(found: re.Match[str] | None) -> object:
    """All that is asked of what was found."""
    if found is None:
        return None
    name = found.lastgroup or ""
    if name.startswith("hold"):
        return found.start()
    groups = {key: found.span(key) for key, value in found.groupdict().items() if key.endswith(f"_{name}") and value}
    return name, found.span(), groups


def same(one: Finder, two: Finder, text: str) -> None:
    for at in range(len(text) + 1):
        assert told(two.search(text, at)) == told(one.search(text, at))
        assert told(two.match(text, at)) == told(one.match(text, at))


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_two_steps_find_what_one_would(text: str) -> None:
    same(ONE.while_open, TWO.while_open, text)
    same(ONE.at_end, TWO.at_end, text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_head_is_found_by_its_beginnings(dialect: str) -> None:
    heads = [head.token for head in Grammar([DIALECTS[dialect]]).heads.values() if head.token.first]
    one, two = searching(heads), Prefilter(heads)
    for token in heads:
        for text, _ in beginnings(token):
            same(one.while_open, two.while_open, f"a {text}")
            same(one.while_open, two.while_open, f'{text}bash>\n{{"name": "bash"')


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ((Lit("<a>"), Space(), Lit("<b>")), ["<a>"]),
        ((Lit("<"), OneOf(("a", "b")), Lit(">")), ["<a>", "<b>"]),
        ((Lit("<"), Maybe((Lit("n:"),)), Lit("a")), ["<a", "<n:a"]),
        ((Lit("<"), Maybe((Chars("a", 2),)), Lit("a")), ["<"]),
        ((Lit("<"), OneOf(("a",), any_case=True)), ["<"]),
        ((Lit("<"), OneOf(("a", "b")), OneOf(("c", "d")), OneOf(("e", "f"))), ["<ac", "<ad", "<bc", "<bd"]),
    ],
)
def test_what_a_token_begins_with(parts: tuple[Part, ...], texts: list[str]) -> None:
    assert beginnings(Token("t", parts, line_start=True)) == [(text, True) for text in texts]


def test_where_a_token_may_begin() -> None:
    assert [bool(TWO.first.search(text)) for text in ("plain text.", "a < b", "`", "a ~ b")] == [
        False,
        True,
        True,
        True,
    ]


@given(text=st.lists(st.sampled_from([*PIECES, " ", "\n", "\\", "\\n"]), max_size=6).map("".join))
def test_what_is_expected_is_found_as_in_one_expression(text: str) -> None:
    for one, other in ((WHOLE.while_open, SPLIT.while_open), (WHOLE.at_end, SPLIT.at_end)):
        found, same = one.match(text), other.match(text)
        held = [match is not None and (match.lastgroup or "").startswith("hold") for match in (found, same)]
        assert held[0] == held[1]
        if found and not held[0]:
            assert same is not None
            assert (found.lastgroup, found.span()) == (same.lastgroup, same.span())
        else:
            assert bool(found) == bool(same)


@pytest.mark.parametrize(
    "scan",
    [TWO, SPLIT, FollowingTokens(TWO, ("h",), HEADS[:9]), Grammar(RESCUED).doubtful],
    ids=["prefilter", "expected", "following", "doubtful"],
)
def test_what_is_looked_for_where_a_tool_is_not_offered_asks_for_no_name(scan: Scan) -> None:
    """Else the search would go on at the same place for ever."""
    unnamed = scan.unnamed
    assert unnamed is not None
    for text in ("<read>", "<read>\n<path>", "[read(", "<tool_call>  "):
        for finder in (unnamed.while_open, unnamed.at_end):
            found = finder.match(text, 0)
            assert found is None or f"{OFFERED}_{found.lastgroup}" not in found.re.groupindex
