"""The search for the interpretation of Gemma's arguments is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.material import DIALECTS, calls, content, read
from vtc.events import Tool

TOOLS = {"write": Tool("write", "", {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}})}
CLOSER = "<tool_call|>"


def read_gemma(arguments: str) -> tuple[list[tuple[str, Any]], str]:
    """Read a call with these arguments; return the calls, and the visible text."""
    events = read([f"<|tool_call>call:write{arguments}"], [DIALECTS["gemma4"]], TOOLS)
    return calls(events), content(events)


@pytest.mark.parametrize(("length", "is_read"), [(1_000, True), (50_000, True), (300_000, False)])
def test_long_arguments_with_missing_markers_are_not_searched(length: int, is_read: bool) -> None:
    arguments = f'{{path:a.txt<|"|>,content:{"x" * length}}}{CLOSER}'
    found, text = read_gemma(arguments)
    assert found == ([("write", {"path": "a.txt", "content": "x" * length})] if is_read else [])
    assert is_read or text == f"<|tool_call>call:write{arguments}"
