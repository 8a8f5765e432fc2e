"""Calls with ambiguous keys are denied if a rule or a schema names one of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from vtc.events import Call, Denied, Event, Intervention, Tool, ToolCall
from vtc.guards import Guards, build_chain

EDIT = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = {
    "bash": Tool("bash", "", {"type": "object", "properties": {"command": {"type": "string"}, "env": {}}}),
    "edit": Tool(
        "edit", "", {"properties": {"edits": {"type": "array", "items": {"$ref": "#/$defs/e"}}}, "$defs": {"e": EDIT}}
    ),
    "grep": Tool("grep", "", {"properties": {"-A": {}, "-a": {}}}),
    "loop": Tool("loop", "", {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
}
RM = {"reactors": [{"name": "rm", "when": {"arguments": {"command": "rm"}}, "then": {"refuse": "No."}}]}
DRY = {"reactors": [{"name": "dry", "then": {"set_arguments": {"dry_run": True}}}]}
PATHS = {"reactors": [{"name": "etc", "when": {"arguments": {"edits[*].path": "^/etc"}}, "then": {"refuse": "No."}}]}
OTHER = {"reactors": [{"name": "etc", "when": {"arguments": {"any[*].key": "."}}, "then": {"refuse": "No."}}]}
MISFIT = {"arguments": {"misfit": "steer"}}


def feed_call(guards: dict[str, Any], name: str, arguments: Any, tools: Any = TOOLS) -> list[Event]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    one = build_chain([msgspec.convert(guards, Guards)], tools)
    return one.feed(Call("raw", ToolCall(name, text), "tag"))


@pytest.mark.parametrize(
    ("guards", "name", "arguments"),
    [
        (RM, "bash", {"command": "ls", "Command": "rm -rf /"}),
        (RM, "bash", {"Command": "rm -rf /"}),
        (RM, "bash", {"COMMAND": "rm -rf /"}),
        (RM, "unknown", {"command": "ls", "Command": "rm -rf /"}),
        (RM, "bash", json.dumps('{"command": "ls", "Command": "rm -rf /"}')),
        (RM, "bash", {"command": "ls", "Env": {}}),
        (DRY, "bash", {"Dry_Run": False}),
        (DRY, "bash", {"dry_run": False, "DRY_RUN": False}),
        ({"reactors": [{"name": "a", "then": {"set_arguments": {"risk": "none"}}}]}, "bash", {"ri\u017fk": "high"}),
        ({"reactors": [{"name": "a", "then": {"set_arguments": {"kind": "none"}}}]}, "bash", {"\u212aind": "high"}),
        (PATHS, "unknown", {"edits": [{"path": "a", "Path": "/etc/x"}]}),
        (PATHS, "unknown", {"Edits": [{"path": "/etc/x"}]}),
        (OTHER, "edit", {"edits": [{"path": "a"}, {"path": "a", "Path": "/etc/x"}]}),
        (OTHER, "edit", {"edits": [{"PATH": "/etc/x"}]}),
        (MISFIT, "bash", {"command": "ls", "Command": "rm -rf /"}),
        ({"reactors": [{"name": "a", "then": {"rename_arguments": {"Command": "command"}}}]}, "bash",
         {"command": "ls", "Command": "rm -rf /"}),
    ],
)  # fmt: skip
def test_a_key_in_another_case_is_refused(guards: dict[str, Any], name: str, arguments: Any) -> None:
    intervention, event = feed_call(guards, name, arguments)
    assert isinstance(intervention, Intervention)
    assert (intervention.policy, intervention.action, intervention.tool) == ("unread_calls", "refused", name)
    assert "only in upper and lower case" in intervention.reason
    assert "rm -rf" not in intervention.reason + intervention.detail
    assert isinstance(event, Denied)


@pytest.mark.parametrize(
    ("guards", "name", "arguments"),
    [
        (RM, "bash", {"command": "ls", "env": {"PATH": "/bin", "Path": "/x", "COMMAND": "c"}}),
        (RM, "bash", {"command": "ls", "more": 1, "More": 2}),
        (OTHER, "grep", {"-A": 1, "-a": 2}),
        ({"denied_tools": ["x"]}, "bash", {"command": "ls", "Command": "x"}),
        ({**RM, "on_failure": "pass"}, "bash", {"command": "ls", "Command": "x"}),
        ({"arguments": {}}, "bash", {"command": "ls", "Command": "x"}),
        (
            {"reactors": [{"name": "a", "then": {"rename_arguments": {"Command": "command"}}}]},
            "bash",
            {"Command": "ls"},
        ),
        (
            {"reactors": [{"name": "a", "when": {"tools": "edit"}, "then": {"refuse": "No."}}]},
            "bash",
            {"Command": "ls"},
        ),
    ],
)
def test_keys_of_which_nothing_is_known_or_that_are_declared_so_pass(
    guards: dict[str, Any], name: str, arguments: Any
) -> None:
    assert isinstance(feed_call(guards, name, arguments)[-1], Call)


def test_a_schema_that_refers_to_itself_is_followed_only_so_far() -> None:
    assert isinstance(feed_call(OTHER, "loop", {"a": 1})[-1], Call)


PATHS_OF_KEYS = ["a", '"b-c"', "d[*].e", "starts_with(f, 'x')", "g[?h=='x'].i", "@.j", "k || l", "m[0].n", "o[].p"]
OUTER = ["a", "b-c", *"dfgjklmo", *"rstuv"]


@pytest.mark.parametrize("key", [*OUTER, *"eihnpq"])
def test_the_keys_that_rules_name(key: str) -> None:
    """Keys at the top level and in nested values."""
    when = {"arguments": dict.fromkeys([*PATHS_OF_KEYS, "*.q"], ".")}
    then = {"rename_arguments": {"r": "s"}, "set_arguments": {"t": 1}, "remove_arguments": ["u"]}
    rule = {"name": "x", "when": when, "unless": {"arguments": {"v": "."}}, "then": then}

    def is_refused(arguments: dict[str, Any]) -> bool:
        *_, event = feed_call({"reactors": [rule]}, "unknown", arguments)
        return isinstance(event, Denied)

    assert is_refused({key.upper(): 1}) is (key in OUTER)
    assert is_refused({"any": {key.upper(): 1}}) is (key not in OUTER)


def test_a_long_list_is_not_looked_through_for_ever() -> None:
    arguments = {"edits": [{"path": "a"}] * 60_000}
    assert isinstance(feed_call(OTHER, "edit", arguments)[-1], Denied)
