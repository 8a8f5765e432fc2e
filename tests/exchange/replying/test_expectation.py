"""Calls that violate a grammar of their tool's schema."""

from __future__ import annotations

import pytest

from vtc.events import Tool, ToolCall
from vtc.exchange.replying.expectation import GrammarCheck

SCHEMA = {"properties": {"path": {"type": "string"}, "mode": {"enum": ["r", "w"]}}, "required": ["path"]}
HELD = GrammarCheck(strict={"read": Tool("read", "", SCHEMA, strict=True)})


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("read", '{"path": "a", "mode": "r"}', ""),
        ("read", '{"path": "a", "mode": "x"}', '`mode` is none of ["r", "w"]'),
        ("read", '{"path": "a", "colour": "x"}', "`colour` is no parameter of it"),
        ("read", "{}", "`path` is missing"),
        ("read", "[]", "the arguments are no object"),
        ("read", "{", "the arguments are no JSON"),
        ("other", "{", ""),
    ],
)
def test_violation_of_the_grammar_is_found(name: str, arguments: str, reason: str) -> None:
    found = [why for _, why in HELD.find_violations([ToolCall(name, arguments)])]
    assert [one.endswith(reason) for one in found] == [True] * bool(reason)
