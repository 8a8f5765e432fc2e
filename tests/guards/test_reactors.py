"""Reactors: the user's rules on calls."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from vtc.events import Call, Denied, Event, Intervention, OnFailure, Rewritten, Text, Tool, ToolCall
from vtc.guards import GuardChain, Guards, Reactor, build_chain
from vtc.guards.reactors import add_renamed_tools

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = {"read": Tool("read", "", SCHEMA), "bash": Tool("bash")}


def make_reactor(name: str = "mine", **fields: Any) -> Reactor:
    return msgspec.convert({"name": name, **fields}, Reactor)


def build_rules(*reactors: Reactor, on_failure: OnFailure = "refuse") -> GuardChain:
    return build_chain([Guards(reactors=reactors, on_failure=on_failure)], TOOLS)


def feed_call(*reactors: Reactor, name: str = "read", arguments: Any = None) -> list[Event]:
    text = (
        arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {"path": "a"})
    )
    return build_rules(*reactors).feed(Call("raw", ToolCall(name, text, "id"), "tag"))


def feed_under_pass(*reactors: Reactor, arguments: str) -> list[Event]:
    """Feed one call under `on_failure: pass`."""
    return build_rules(*reactors, on_failure="pass").feed(Call("raw", ToolCall("read", arguments, "id"), "tag"))


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({}, True),
        ({"tools": "re*"}, True),
        ({"tools": ["write", "bash"]}, False),
        ({"arguments": {"path": "a"}}, True),
        ({"arguments": {"path": "^b"}}, False),
        ({"arguments": {"none": "."}}, False),
        ({"arguments": {"none": {"exists": False}}}, True),
        ({"arguments": {"path": {"exists": True, "matches": "^a"}}}, True),
        ({"arguments": {"n": {"equals": 3}}}, True),
        ({"arguments": {"n": {"equals": "3"}}}, False),
        ({"arguments": {"n": "^3$"}}, True),
        ({"arguments": {"nothing": {"equals": None}}}, True),
        ({"arguments": {"edits[*].file": "c$"}}, True),
        ({"arguments": {"edits[0].file": "c$"}}, False),
        ({"arguments": {"edits[?file == 'bc']": "bc"}}, True),
        ({"arguments": {'"odd-name"': "x"}}, True),
        ({"arguments": {"path": "a", "n": "4"}}, False),
        ({"fits": True}, True),
        ({"fits": False}, False),
    ],
)
def test_conditions(when: Any, holds: bool) -> None:
    arguments = {"path": "a.py", "n": 3, "edits": [{"file": "ab"}, {"file": "bc"}], "odd-name": "x"}
    events = feed_call(make_reactor(when=when, then={"tag": "t"}), arguments=arguments)
    assert (Intervention("reactors.mine", "tagged", "read", "t") in events) is holds
    assert feed_call(make_reactor(unless=when, then={"tag": "t"}), arguments=arguments)[-1:] == events[-1:]


@pytest.mark.parametrize(
    ("then", "name", "arguments"),
    [
        ({"rename_tool": "bash"}, "bash", {"path": "a", "n": 1}),
        ({"rename_arguments": {"path": "file", "none": "x"}}, "read", {"file": "a", "n": 1}),
        ({"rename_arguments": {"path": "n"}}, "read", {"path": "a", "n": 1}),
        ({"set_arguments": {"n": [2], "m": None}}, "read", {"path": "a", "n": [2], "m": None}),
        ({"remove_arguments": ["n", "none"]}, "read", {"path": "a"}),
        ({"replace": [{"argument": "path", "pattern": "(a)", "replacement": r"\1\1"}]}, "read", {"path": "aa", "n": 1}),
        ({"replace": [{"argument": "n", "pattern": "1"}]}, "read", {"path": "a", "n": 1}),
    ],
)
def test_actions_on_a_call(then: Any, name: str, arguments: Any) -> None:
    before = {"path": "a", "n": 1}
    *interventions, event = feed_call(make_reactor(then=then), arguments=before)
    assert isinstance(event, Call)
    assert (event.call.name, json.loads(event.call.arguments), event.call.id) == (name, arguments, "id")
    assert event.changed is bool(interventions) is ((name, arguments) != ("read", before))
    assert event.raw == "raw"


def test_rules_act_in_order_each_on_the_earlier_result() -> None:
    *interventions, event = feed_call(
        make_reactor("a", when={"tools": "read"}, then={"rename_tool": "bash"}),
        make_reactor("b", when={"tools": "read"}, then={"tag": "no more"}),
        make_reactor("c", when={"tools": "bash"}, then={"steer": "Mind.", "tag": "t"}),
        make_reactor("d", when={"tools": "bash"}, then={"refuse": "No.", "refuse_as": "text"}),
        make_reactor("e", then={"tag": "never"}),
    )
    assert interventions == [
        Intervention("reactors.a", "changed", "read", "renamed to bash"),
        Intervention("reactors.c", "tagged", "bash", "t"),
        Intervention("reactors.c", "steered", "bash", "Mind."),
        Rewritten("", "Mind.\n\n"),
        Intervention("reactors.d", "refused", "bash", "No."),
    ]
    assert event == Denied("raw", ToolCall("bash", '{"path": "a"}', "id"), "text", "No.")


@pytest.mark.parametrize("arguments", ["[1]", "{", '{"n": ' + "1" * 5_000 + "}", '"x"'])
def test_arguments_without_object_cannot_be_changed_and_are_denied(arguments: str) -> None:
    one = make_reactor(then={"set_arguments": {"a": 1}, "rename_tool": "x"})
    intervention, event = feed_call(one, arguments=arguments)
    assert isinstance(intervention, Intervention)
    assert (intervention.action, type(event)) == ("refused", Denied)
    (event,) = feed_under_pass(one, arguments=arguments)
    assert isinstance(event, Call)
    assert event.call.arguments == arguments


def test_the_text_of_a_custom_tool_has_no_arguments_to_change() -> None:
    one = make_reactor(then={"set_arguments": {"a": 1}})
    call = Call("", ToolCall("patch", "*** Begin", "id", {"type": "custom_tool_call"}), "tool_calls")
    assert build_rules(one).feed(call) == [call]


def test_other_events_pass() -> None:
    one = make_reactor(then={"set_arguments": {"a": 1}, "rename_tool": "x"})
    guard = build_rules(one)
    assert (guard.feed(Text("x")), guard.finish()) == ([Text("x")], [])


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"then": {}}, "`then` is empty"),
        ({"when": {"tools": "/(/"}, "then": {"tag": "t"}}, "tools: '/\\(/' is not a regular expression"),
        ({"when": {"arguments": {"a": "("}}, "then": {"tag": "t"}}, "arguments.a: '\\(' is not a regular"),
        ({"when": {"arguments": {"a[": "x"}}, "then": {"tag": "t"}}, "'a\\[' is not a JMESPath"),
        ({"then": {"replace": [{"argument": "a", "pattern": "("}]}}, "pattern: '\\(' is not a regular"),
        ({"then": {"replace": [{"argument": "a", "pattern": "b", "replacement": "\\1"}]}}, "invalid group reference"),
        ({"then": {"tags": "t"}}, "unknown field `tags`"),
    ],
)
def test_invalid_rule_is_reported(fields: Any, fault: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=fault):
        make_reactor(**fields)


def test_names_that_are_renamed_are_read_too() -> None:
    reactors = [
        make_reactor(when={"tools": ["cat", "re*"]}, then={"rename_tool": "read"}),
        make_reactor(when={"tools": "read"}, then={"rename_arguments": {"file": "path", "x": "y"}}),
        make_reactor(when={"tools": "shell"}, then={"rename_tool": "nothing"}),
    ]
    written = add_renamed_tools(reactors, TOOLS)
    assert sorted(written) == ["bash", "cat", "read"]
    assert written["bash"] is TOOLS["bash"]
    assert sorted(written["read"].parameters["properties"]) == ["file", "path"]
    assert written["cat"].name == "cat"
    assert SCHEMA["properties"] == {"path": {"type": "string"}}


def test_renames_that_meet_are_all_read() -> None:
    """Two rules for one argument, and an alias whose arguments are renamed, too."""
    reactors = [
        make_reactor(when={"tools": "read"}, then={"rename_arguments": {"file_path": "path"}}),
        make_reactor(when={"tools": "re*"}, then={"rename_arguments": {"filename": "path"}}),
        make_reactor(when={"tools": "cat"}, then={"rename_tool": "read", "rename_arguments": {"f": "path"}}),
    ]
    written = add_renamed_tools(reactors, TOOLS)
    assert sorted(written["read"].parameters["properties"]) == ["file_path", "filename", "path"]
    assert sorted(written["cat"].parameters["properties"]) == ["f", "file_path", "filename", "path"]


def test_failing_rule_is_reported_and_the_others_act() -> None:
    failing = make_reactor(
        "bad", when={"arguments": {"length(path) && starts_with(n, 'x') && path": "."}}, then={"tag": "t"}
    )
    events = feed_call(failing, make_reactor(then={"tag": "t"}), arguments={"path": "a", "n": 1})
    assert [event.action for event in events if isinstance(event, Intervention)] == ["failed", "tagged"]


@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1e999", "-1E-999", "1e5", "9007199254740993.0"])
def test_number_is_unchanged_if_another_value_changes(number: str) -> None:
    setting = make_reactor(then={"set_arguments": {"a": "é"}})
    events = feed_call(
        setting, make_reactor(then={"remove_arguments": ["path"]}), arguments=f'{{"path": "a", "n": {number}}}'
    )
    assert [event.action for event in events if isinstance(event, Intervention)] == ["changed", "changed"]
    assert isinstance(events[-1], Call)
    found = json.loads(events[-1].call.arguments, parse_float=Decimal)
    assert found == {"n": Decimal(number), "a": "é"}


DEEP = "[" * 600 + "]" * 600
FAILING: list[tuple[Any, str]] = [
    *(({"arguments": {"path": "b"}}, '{"path": ' + "[" * n + '"b"' + "]" * n + "}") for n in (300, 600, 900, 5_000)),
    *(({"arguments": {"path": "b"}}, '{"path": ' + '{"b":' * n + "1" + "}" * n + "}") for n in (300, 600, 900, 5_000)),
    ({"arguments": {"starts_with(path, 'a')": {"equals": True}}}, '{"path": ["a"]}'),
    ({"arguments": {"starts_with(path, 'a')": {"equals": True}}}, '{"path": {"a": 1}}'),
    ({"arguments": {"starts_with(path, 'a')": {"equals": True}}}, '["a"]'),
    ({"arguments": {"starts_with(path, 'a')": {"equals": True}}}, "null"),
    ({"arguments": {"path": "b"}}, json.dumps(json.dumps(json.dumps({"path": "b"})))),
]


@pytest.mark.parametrize(("when", "arguments"), FAILING)
@pytest.mark.parametrize("then", [{"refuse": "No."}, {"set_arguments": {"n": 1}}])
def test_call_is_never_sent_unchanged_because_a_rule_fails(then: Any, when: Any, arguments: str) -> None:
    *interventions, event = feed_call(make_reactor(when=when, then=then), arguments=arguments)
    assert [one.action for one in interventions if isinstance(one, Intervention)] in (["refused"], ["changed"])
    assert isinstance(event, Denied) or (isinstance(event, Call) and event.changed and "refuse" not in then)


def test_reporting_rule_is_skipped_if_it_fails() -> None:
    one = make_reactor(
        when={"arguments": {"starts_with(path, 'a')": {"equals": True}}}, then={"tag": "t", "steer": "s"}
    )
    *interventions, event = feed_call(one, arguments={"path": 1})
    assert [one.action for one in interventions if isinstance(one, Intervention)] == ["failed"]
    assert isinstance(event, Call)


def test_a_rule_that_fails_may_be_skipped() -> None:
    one = make_reactor(when={"arguments": {"starts_with(path, 'a')": {"equals": True}}}, then={"refuse": "No."})
    *interventions, event = feed_under_pass(one, arguments='{"path": 1}')
    assert [one.action for one in interventions if isinstance(one, Intervention)] == ["failed"]
    assert isinstance(event, Call)


def test_an_argument_that_is_not_there_is_nothing_for_a_function_either() -> None:
    """Otherwise each call of another tool would be denied."""
    one = make_reactor(when={"arguments": {"starts_with(command, 'a')": {"equals": True}}}, then={"refuse": "No."})
    (event,) = feed_call(one, arguments={"path": 1})
    assert isinstance(event, Call)


def test_deep_arguments_elsewhere_do_not_hinder_a_rule() -> None:
    *_, event = feed_call(
        make_reactor(when={"arguments": {"path": r"\brm\b"}}, then={"refuse": "No."}),
        arguments=f'{{"path": "rm x", "y": {DEEP}}}',
    )
    assert isinstance(event, Denied)
