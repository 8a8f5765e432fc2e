"""How the next call begins: after a call that is whole, and after one whose closing tag lacks its slash."""

from __future__ import annotations

import re

import pytest

from tests.dialects.material import DIALECTS
from vtc.dialects.syntax.forms import CallSyntax, call_syntaxes
from vtc.dialects.syntax.grammar import after_unslashed, closers_written, heads_after_unclosed, unslashed
from vtc.dialects.syntax.pattern import whole


def syntax(dialect: str) -> CallSyntax:
    return call_syntaxes(DIALECTS[dialect])[0]


@pytest.mark.parametrize(
    ("dialect", "tag"),
    [("hermes", "<tool_call>"), ("glm-4.7", "<tool_call>"), ("qwen3-coder", ""), ("granite-20b", ""), ("mistral", "")],
)
def test_only_a_single_closing_tag_may_lack_its_slash(dialect: str, tag: str) -> None:
    assert unslashed(syntax(dialect), "bash") == tag


def test_a_head_after_a_tag_without_its_slash_is_known_apart_from_the_tag() -> None:
    heads = [re.compile(whole(parts, "m")) for parts in heads_after_unclosed(syntax("glm-4.7"), "bash")]
    found = [one for head in heads if (one := head.match("<tool_call>\n<tool_call>bash"))]
    assert {one["next_m"] for one in found} == {"<tool_call>bash"}


def test_nothing_is_added_where_no_tag_may_lack_its_slash() -> None:
    heads = heads_after_unclosed(syntax("qwen3-coder"), "bash")
    assert after_unslashed(syntax("qwen3-coder"), "bash", heads) == heads


@pytest.mark.parametrize(
    ("dialect", "tags"),
    [("granite-20b", ["</function_call>"]), ("hermes", ["</tool_call>"]), ("mistral", []), ("gigachat", [])],
)
def test_a_tag_that_its_dialect_never_closes_may_be_closed_all_the_same(dialect: str, tags: list[str]) -> None:
    assert closers_written(syntax(dialect), "bash") == tags
