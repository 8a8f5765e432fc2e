"""Text of patterns as parts: what may stand for what is written."""

from __future__ import annotations

import re

import pytest

from tests.dialects.material import described
from vtc.dialects.syntax.markup import by_spelling, literal, loosened, trimmed
from vtc.dialects.syntax.pattern import whole

DIALECT = described("""
    kind: dialect
    name: odd
    call: "<x>{json}</x>"
    namespaces: ["ns:"]
    spellings: [[calls, call], ["<|end|>", "<|eot|>"]]
""")


def fits(text: str, written: str, *, loose: bool = False) -> bool:
    parts = trimmed(literal(written, DIALECT))
    return bool(re.fullmatch(whole(loosened(parts) if loose else parts), text))


@pytest.mark.parametrize("text", ["<|a|>b<|c|>", "<|a|> b <|c|>", "<|a|>\nb\n\n<|c|>"])
def test_white_space_around_markers_is_free(text: str) -> None:
    assert fits(text, "<|a|>b<|c|>")
    assert not fits(f" {text}", "<|a|>b<|c|>")


def test_spellings_count_in_a_marker_and_as_one() -> None:
    assert fits("<|call_begin|>x", "<|calls_begin|>x")
    assert fits("x<|eot|>", "x<|end|>")
    assert not fits("x<|other|>", "x<|end|>")


def test_tags_may_have_a_namespace_and_white_space_where_it_is_loose() -> None:
    assert fits("<ns:a><b>", "<a><b>")
    assert not fits("<other:a>", "<a>")
    assert fits("< a = b >", "<a=b>", loose=True)
    assert not fits("< a>", "<a>")


def test_what_is_searched_for_begins_with_one_text() -> None:
    found = by_spelling(trimmed(literal("calls of it", DIALECT)))
    assert [
        re.fullmatch(whole(parts), text) is not None for parts in found for text in ("calls of it", "call of it")
    ] == [
        True,
        False,
        False,
        True,
    ]
