"""The offered tool for a written name."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from tests.dialects.material import DIALECTS, calls, read
from vtc.events import Tool

OFFERED = ("read_file", "Search", "Read", "read", "ns.tool", "mcp__disk__list")


def find_called_tool(written: str, offered: Iterable[str]) -> str | None:
    """Return the name of the tool that a call in a reply becomes; None if there is no call."""
    text = f"<tool_call>\n{json.dumps({'name': written, 'arguments': {}})}\n</tool_call>"
    made = calls(read([text], [DIALECTS["hermes"]], {name: Tool(name) for name in offered}))
    return made[0][0] if made else None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("read_file", "read_file"),
        ("functions.read_file", "read_file"),
        ("default_api.read_file", "read_file"),
        ("tools.read_file", "read_file"),
        ("tool:read_file", "read_file"),
        ("some.namespace.read_file", "read_file"),
        ("a:b:read_file", "read_file"),
        ("READ_FILE", "read_file"),
        ("functions.search", "Search"),
        ("Read", "Read"),
        ("read", "read"),
        ("ns.tool", "ns.tool"),
        ("ns__tool", "ns.tool"),
        ("functions.ns.tool", "ns.tool"),
        ("mcp__disk__list", "mcp__disk__list"),
        # Names are never guessed
        ("READ", None),
        ("readfile", None),
        ("read-file", None),
        ("read_file_", None),
        ("list", None),
        ("tool", None),
        ("functions.", None),
        ("", None),
        (" read_file\n", "read_file"),
        ("read file", None),
    ],
)
def test_the_tool_that_a_name_means(written: str, name: str | None) -> None:
    assert find_called_tool(written, OFFERED) == name


def test_a_namespace_of_a_client() -> None:
    assert find_called_tool("antml:tool:read_file", OFFERED) == "read_file"


def test_no_tools_no_names() -> None:
    assert find_called_tool("read_file", ()) is None
