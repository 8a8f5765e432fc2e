"""The names by which patterns refer to a tool, in rules, lists and exceptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from vtc.events import Call, Denied, Tool, ToolCall
from vtc.guards import Guards, build_chain
from vtc.guards.guard import ToolNames

ALONE = ("mcp__fs.delete", "read")
SHARED = (*ALONE, "mcp__git.delete")
FULL = ("mcp__fs.delete", "mcp__fs__delete", "MCP__fs__*", r"/^mcp__fs\.del/")
SHORT = ("delete", "del*", "/^delete$/")
OTHER = ("delet", "fs.delete", "mcp__git*", "read", "/^fs/")
RM = {"name": "rm", "then": {"refuse": "No."}}


def test_namespace_that_ends_in_underscores_has_the_name_that_servers_receive() -> None:
    assert ToolNames(["mcp__fs__.delete"]).match("mcp__fs__delete", "mcp__fs__.delete")


@pytest.mark.parametrize("declared", [ALONE, SHARED, (*ALONE, "delete"), ()])
def test_denied_names_match_any_alias_and_allowed_ones_only_unique_aliases(declared: tuple[str, ...]) -> None:
    names = ToolNames(declared)
    for pattern in (*FULL, *SHORT):
        assert names.match(pattern, "mcp__fs.delete")
    for pattern in FULL:
        assert names.match_alone(pattern, "mcp__fs.delete")
    for pattern in SHORT:
        assert names.match_alone(pattern, "mcp__fs.delete") == (declared in (ALONE, ()))
    for pattern in OTHER:
        assert not names.match(pattern, "mcp__fs.delete")
        assert not names.match_alone(pattern, "mcp__fs.delete")


def test_tool_is_matched_by_its_own_name_for_any_others() -> None:
    names = ToolNames(["delete", "fs.delete", "git.delete", "a.b__c", "a__b.c"])
    assert names.match_alone("delete", "delete")
    assert not names.match("fs.delete", "delete")
    assert names.match("fs.delete", "fs__delete")
    assert names.match_alone("fs.delete", "fs__delete")
    assert names.match("a.b__c", "a__b__c")
    assert not names.match_alone("a.b__c", "a__b__c"), "it may be the other one"


@pytest.mark.parametrize("name", ["mcp__fs.delete", "mcp__fs__delete", "delete"])
@pytest.mark.parametrize(
    ("guards", "refuses"),
    [
        ({"denied_tools": ["{}"]}, True),
        ({"allowed_tools": ["{}"]}, False),
        ({"reactors": [{**RM, "when": {"tools": "{}"}}]}, True),
        ({"reactors": [{**RM, "when": {"arguments": {"path": "a"}, "tools": ["x", "{}"]}}]}, True),
        ({"reactors": [{**RM, "unless": {"tools": "{}"}}]}, False),
        (
            {
                "reactors": [{"name": "x", "when": {"tools": "x"}, "then": {"rename_tool": "{}"}}],
                "denied_tools": ["{}"],
            },
            True,
        ),
    ],
)
def test_every_policy_takes_every_name(guards: dict[str, Any], refuses: bool, name: str) -> None:
    made = msgspec.convert(_fill_names(guards, name), Guards)
    for tools in (ALONE, SHARED):
        one = build_chain([made], {tool: Tool(tool) for tool in tools})
        called = "x" if "rename_tool" in str(guards) else "mcp__fs.delete"
        *_, event = one.feed(Call("", ToolCall(called, '{"path": "a"}'), "tag"))
        is_shared = name == "delete" and tools is SHARED
        assert isinstance(event, Denied) == (refuses or is_shared), tools


def _fill_names(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _fill_names(one, name) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_names(one, name) for one in value]
    return name if value == "{}" else value
