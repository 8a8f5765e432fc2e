"""The check of a shortened value gives the same result as that of the whole value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.material import DIALECTS, calls, content, dump_typed, fill_pattern, find_body_slot, read
from vtc.dialects import Description
from vtc.dialects.writing import write_calls
from vtc.dialects.writing.calls import RoundTrip
from vtc.events import Tool, ToolCall

PARAMS = [name for name, one in DIALECTS.items() if find_body_slot(one.calls[0]) == "params"]
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"enum": ["a", "b"]}, "any": {}},
    "required": ["path", "content"],
}
TOOLS = {"write": Tool("write", "", SCHEMA), "x": Tool("x", "", {}), "read": Tool("read", "", SCHEMA)}
EXAMPLES = settings().max_examples


def pieces(dialect: Description) -> list[str]:
    """Return the material of values: text, and all the dialect's own markup, whole and cut."""
    call = ToolCall("write", json.dumps({"path": "a", "content": "b", "any": 1}))
    text = write_calls([call], dialect, TOOLS)
    markup = [piece for piece in text.replace("<", "\0<").replace(">", ">\0").split("\0") if piece.strip()]
    return [
        *markup,
        *(piece[: len(piece) // 2] for piece in markup),
        *"ab \n<>/\r",
        "plain text, ",
        "x < 3",
        "1",
        "null",
    ]


@pytest.mark.parametrize("name", PARAMS)
@settings(max_examples=max(20, EXAMPLES // 4))
@given(data=st.data())
def test_placeholder_has_the_same_result_as_the_value(name: str, data: st.DataObject) -> None:
    """A value is written raw if, and only if, it can be read back."""
    dialect = DIALECTS[name]
    value = st.lists(st.sampled_from(pieces(dialect)), max_size=5).map("".join)
    arguments: dict[str, Any] = {"path": data.draw(value), "content": data.draw(value)}
    if data.draw(st.booleans()):
        arguments["any"] = data.draw(value)
    holds = RoundTrip(dialect, TOOLS).survives("write", arguments, lambda some: bare(dialect, some))
    whole = bare(dialect, arguments)
    if dialect.section_required:
        whole = fill_pattern(dialect.sections[0], "section", {"calls": whole})
    events = read([whole], [dialect], TOOLS)
    assert holds == (dump_typed(calls(events)) == dump_typed([("write", arguments)]) and not content(events))


def test_equal_calls_are_tried_once() -> None:
    proof, written = RoundTrip(DIALECTS["qwen3-coder"], TOOLS), set[str]()

    def write(arguments: Mapping[str, Any]) -> str:
        written.add(text := bare(DIALECTS["qwen3-coder"], arguments))
        return text

    for number in range(100):
        arguments = {"path": f"src/file_{number}.py", "content": f"if x < {number}:\n    pass\n"}
        assert proof.survives("write", arguments, write)
    (text,) = written
    assert "file" not in text


def bare(dialect: Description, arguments: Mapping[str, Any]) -> str:
    """Render the call without its section, with its values between tags in any case."""
    raw = msgspec.structs.replace(dialect, json_body=False, section=(), section_required=False)
    return write_calls([ToolCall("write", json.dumps(arguments))], raw, TOOLS, for_client=True)
