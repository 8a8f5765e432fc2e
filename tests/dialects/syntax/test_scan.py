"""The scans of a state: a token, or text that may still become one."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.dialects.material import DIALECTS
from vtc.dialects import Grammar
from vtc.dialects.syntax.pattern import Chars, Group, Lit, Maybe, OneOf, Part, Space, make_expression
from vtc.dialects.syntax.scan import (
    INDENT,
    OFFERED_GROUP,
    Scan,
    Token,
    list_prefixes,
    make_expecting_scan,
    make_search_scan,
)
from vtc.dialects.syntax.tokens import FENCES, TICKS

TAG = Token("tag", (Lit("<tag"), Space(), Lit(">")))
LINE = Token("line", (Lit("#!"),), line_start=True)
HEADS = [
    head.token
    for head in Grammar([one.rescued for one in DIALECTS.values() if one.rescued]).heads.values()
    if not head.syntax.whole_reply
]
TOKENS = [*HEADS, *FENCES, TICKS]
PIECES = [
    *("<", "<tool_call>", "<tool_calls>", "<function=", "<invoke name=", "<invoke", "<bash>", "<BASH", "<|"),
    *("bash", ">", '"', "{", '{"', "[", "name", "\n", "  ", "`", "```", "~~~", "~", "a", "</", "]", "｜", "▁", "tool"),
    *("<｜tool▁calls▁begin｜>", "<|tool_call_start|>", "[", "<function_calls>", "<tools>", "json", "\\n"),
]


def matched_name(found: re.Match[str] | None) -> str | None:
    return found.lastgroup if found else None


@pytest.mark.parametrize(
    ("text", "token", "start"),
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
def test_searching(text: str, token: str | None, start: int | None) -> None:
    scan = make_search_scan([TAG, LINE])
    found = scan.search(text)
    assert matched_name(found) == token
    assert (found and found.start()) == start
    assert matched_name(scan.search(text, final=True)) == (None if token == "hold" else token)


@pytest.mark.parametrize(
    ("text", "token"),
    [("", "hold"), (" \n", "hold"), (" <ta", "hold"), ("\n\n<tag>", "tag"), ("x<tag>", None), (" " * 257, None)],
)
def test_expecting(text: str, token: str | None) -> None:
    assert matched_name(make_expecting_scan([TAG]).match(text)) == token


def test_token_that_begins_with_one_of_many_characters_can_be_expected() -> None:
    scan = make_expecting_scan([Token("p", (Chars("a-z", 8, "key"), Lit(":"))), Token("tail", (Lit("}"),))])
    assert [matched_name(scan.match(text)) for text in ("ab:", " }", "ab", " ")] == ["p", "tail", "hold", "hold"]
    assert scan.match("ab", final=True) is None


def test_some_tokens_count_only_as_the_last_thing() -> None:
    scan = make_search_scan([TAG, Token("end", (Lit("<end>"),), at_end=True)])
    assert not scan.search("a <end>")
    assert not scan.search("a <end> b", final=True)
    assert matched_name(scan.search("a <end> \n", final=True)) == "end"


def test_the_end_of_the_text_can_be_expected() -> None:
    scan = make_expecting_scan([TAG], end="end")
    assert [matched_name(scan.match(text, final=True)) for text in (" ", " <tag>", " x")] == ["end", "tag", None]
    assert matched_name(scan.match(" ")) == "hold"


def test_a_state_without_tokens_finds_none() -> None:
    assert not make_search_scan([]).search("a < b")
    assert not make_search_scan([]).search("", final=True)


def test_a_token_that_holds_the_name_of_a_tool_is_none_if_the_tool_is_not_offered() -> None:
    tool = Token("h", (Lit("<"), Group((Group((Chars("a-z", 8),), OFFERED_GROUP),), "name"), Lit(">")))
    scan = make_search_scan([tool, Token("tag", (Lit("<b>"),))])
    text = "<a> <b> <read>"
    assert [matched_name(scan.search(text, at, offers="read".__eq__)) for at in (0, 5)] == ["tag", "h"]
    found = scan.search(text, final=True)
    assert found
    assert (found["name_h"], found.span()) == ("a", (0, 3))


# One expression for each token gives the same result, but takes longer.


EXPRESSIONS = {token: re.compile(token.make_expression()) for token in TOKENS}


def by_expressions(text: str, at: int) -> re.Match[str] | None:
    """Find the first token that matches at a position."""
    before = text[:at].rpartition("\n")[2]
    begins = len(before) <= 8 and not before.strip(" \t>")
    known = (expression for token, expression in EXPRESSIONS.items() if begins or not token.line_start)
    return next(filter(None, (expression.match(text, at) for expression in known)), None)


def summarize_match(found: re.Match[str] | None) -> object:
    """Return everything that callers use of a match."""
    return found and (found.lastgroup, found.span(), {key: one for key, one in found.groupdict().items() if one})


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_scan_finds_the_same_as_one_expression_per_token(text: str) -> None:
    scan = make_search_scan(TOKENS)
    for at in range(len(text)):
        whole, found = by_expressions(text, at), scan.match(text, at)
        assert summarize_match(scan.match(text, at, final=True)) == summarize_match(whole)
        assert matched_name(found) == "hold" or summarize_match(found) == summarize_match(whole)


@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=8))
def test_beginning_of_a_token_is_buffered(pieces: list[str]) -> None:
    text, scan = "".join(pieces), make_search_scan(TOKENS)
    found = scan.search(text, final=True)
    if found:
        for end in range(found.start() + 1, found.end()):
            begun = scan.search(text[:end])
            assert begun
            assert begun.start() <= found.start()


# Sequences, each with texts that match


@st.composite
def sequences(draw: st.DrawFn, depth: int = 2) -> tuple[tuple[Part, ...], str]:
    """Draw a sequence of parts, and a text that it matches."""
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
            # `re` would give back a run that the next part can continue; no real pattern has one.
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


def begins(parts: tuple[Part, ...], text: str) -> bool:
    return matched_name(make_search_scan([Token("t", (Lit("^"), *parts))]).match(f"^{text}")) == "hold"


@given(sequences())
@example(((Lit("<t>"), Maybe((Space(), Lit("</t>")))), "<t>"))
@example(((OneOf(("read", "read_all")), Lit(">")), "read_all>"))
@example(((Chars("0-9", 3), Lit("</a"), Space(), Lit(">")), "12</a  >"))
def test_every_beginning_of_a_match_is_one(sequence: tuple[tuple[Part, ...], str]) -> None:
    parts, text = sequence
    if not re.fullmatch(make_expression(parts), text):
        return  # a possessive part consumed text that a later part needs, so there is no match to begin
    assert all(begins(parts, text[:end]) for end in range(1, len(text)))


@pytest.mark.parametrize(
    ("part", "beginnings", "neither"),
    [
        (Lit("<a>"), ["<", "<a"], ["<a>", "a>", "<b"]),
        (Space(), ["\n", "\\"], ["x"]),
        (Space(), [" " * 256], [" " * 257]),
        (Chars("a-z", 3), ["ab"], ["abcd", "A"]),
        (OneOf(("ab", "cd"), any_case=True), ["A", "c"], ["b", "ac", "ad", "CD"]),
        (OneOf(("ab",)), ["a"], ["A"]),
        (Maybe((Lit("ab"),)), ["a"], ["b"]),
        (Group((Lit("a"), Lit("b")), "g"), ["a"], ["b", "ax"]),
    ],
)
def test_how_a_part_begins(part: Part, beginnings: list[str], neither: list[str]) -> None:
    assert all(begins((part,), text) for text in beginnings)
    assert not any(begins((part, Lit("!")), f"{text}?") or begins((part,), f"{text}?") for text in neither)


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ((Lit("<a>"), Space(), Lit("<b>")), ["<a>"]),
        ((Lit("<"), OneOf(("a", "b")), Lit(">")), ["<a>", "<b>"]),
        ((Lit("<"), Maybe((Lit("n:"),)), Lit("a")), ["<a", "<n:a"]),
        ((Lit("<"), Maybe((Chars("a", 2),)), Lit("a")), ["<"]),
        ((Lit("<"), OneOf(("a",), any_case=True)), ["<"]),
        ((Lit("<"), OneOf(("a", "b")), OneOf(("c", "d")), OneOf(("e", "f", "g"))), ["<ac", "<ad", "<bc", "<bd"]),
    ],
)
def test_first_characters_of_a_token(parts: tuple[Part, ...], texts: list[str]) -> None:
    assert list_prefixes(parts) == texts


def test_possible_places_of_a_token() -> None:
    first = make_search_scan([TAG, *FENCES, TICKS]).first
    assert all(first.search(text) for text in ("a <", "a <t", "`", "~~", "a\n~~", f"a\n{INDENT * '>'}~~"))
    assert not any(first.search(text) for text in ("plain text.", "a < b", "a\n~ b"))
    assert not any(first.search(text) for text in ("a ~~", f"a\n{(INDENT + 1) * ' '}~~"))  # not at a line's start


def test_scans_of_all_grammars_share_compiled_patterns() -> None:
    def pattern(scan: Scan, text: str) -> re.Pattern[str]:
        found = scan.search(text)
        assert found
        return found.re

    assert pattern(make_search_scan([TAG]), "<tag>") is pattern(make_search_scan([LINE, TAG]), "<tag>")
