"""The check of arguments against a JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.guards.policies import build_policies
from vtc.events import Call, Denied, Event, Intervention, Manner, Text, Tool, ToolCall

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "times": {"type": "integer"},
        "ratio": {"type": "number"},
        "force": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "edit": {"type": "object", "properties": {"line": {"type": "integer"}}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "colour": {"enum": ["red", "green"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = {"run": Tool("run", "", SCHEMA)}


def feed_call(arguments: Any, *, coerce: bool = True, manner: Manner | None = None) -> list[Event]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    checking = build_policies(TOOLS, arguments={"coerce": coerce, "misfit": manner})
    return checking.feed(Call("raw", ToolCall("run", text), "tag"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "123"},
        {"path": "", "times": 3, "ratio": 1, "force": False, "tags": [], "edit": {}, "either": None},
        {"path": "a", "times": 3.0},
    ],
)
def test_fitting_arguments_are_unchanged(arguments: Any) -> None:
    text = json.dumps(arguments, indent=3)
    (event,) = feed_call(text)
    assert isinstance(event, Call)
    assert (event.call.arguments, event.changed) == (text, False)


@pytest.mark.parametrize(
    ("key", "written", "expected", "message"),
    [
        ("times", "3", 3, "times to integer"),
        ("times", " 3\n", 3, "times to integer"),
        ("ratio", "0.5", 0.5, "ratio to number"),
        ("force", "true", True, "force to boolean"),
        ("force", "False", False, "force to boolean"),
        ("tags", '["a"]', ["a"], "tags to array"),
        ("tags", [1, True], ["1", "true"], "tags[0] to string, tags[1] to string"),
        ("edit", '{"line": "4"}', {"line": 4}, "edit to object, edit.line to integer"),
        ("either", "3", 3, "either to integer"),
        ("either", "null", None, "either to null"),
        ("path", {"a": "é"}, '{"a": "é"}', "path to string"),
        ("path", 5, "5", "path to string"),
    ],
)
def test_losslessly_coercible_arguments_are_coerced(key: str, written: Any, expected: Any, message: str) -> None:
    intervention, event = feed_call({"path": "a", key: written})
    assert intervention == Intervention("arguments", "coerced", "run", message)
    assert isinstance(event, Call)
    assert json.loads(event.call.arguments) == {"path": "a", key: expected}
    assert (event.changed, event.raw) == (True, "raw")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "'path' is a required property"),
        ({"path": "a", "times": "many"}, "times: 'many' is not of type 'integer'"),
        ({"path": "a", "times": "NaN"}, "times: 'NaN' is not of type 'integer'"),
        ({"path": "a", "times": "3.5"}, "times: '3.5' is not of type 'integer'"),
        ({"path": None}, "path: None is not of type 'string'"),
        ({"path": "a", "colour": "Red"}, "colour: 'Red' is not one of ['red', 'green']"),
        ({"path": "a", "more": 1}, "Additional properties are not allowed ('more' was unexpected)"),
        ({"path": "a", "times": "3", "more": 1}, "Additional properties are not allowed ('more' was unexpected)"),
        ([1], "[1] is not of type 'object'"),
        ("{", "they are not JSON: "),
    ],
)
@pytest.mark.parametrize("manner", [None, "steer", "text", "drop"])
def test_unfitting_arguments_are_passed_or_denied(arguments: Any, fault: str, manner: Manner | None) -> None:
    intervention, event = feed_call(arguments, manner=manner)
    assert isinstance(intervention, Intervention)
    assert fault in (intervention.detail or intervention.reason)
    if manner is None:
        assert intervention.action == "passed"
        assert isinstance(event, Call)
        assert not event.changed
    else:
        assert intervention.action == "refused"
        assert isinstance(event, Denied)
        assert (event.manner, fault in event.message) == (manner, True)


def test_the_reason_quotes_no_argument() -> None:
    """Because the reason is logged; the model's text is in the detail."""
    for arguments in (
        {"path": "a", "times": ["PRIVATE"]},
        {"path": "a", "colour": "PRIVATE"},
        {"path": "a", "PRIVATE": 1},
    ):
        intervention, _ = feed_call(arguments, manner="steer")
        assert isinstance(intervention, Intervention)
        assert ("PRIVATE" in intervention.reason, "PRIVATE" in intervention.detail) == (False, True)


DEEP = '{"path": "a", "edit": {"line": ' + "[" * 600 + "]" * 600 + "}}"


@pytest.mark.parametrize(("manner", "on_failure", "kind"), [("steer", "refuse", Denied), (None, "refuse", Call)])
def test_arguments_that_cannot_be_checked_do_not_fit(manner: Manner | None, on_failure: Any, kind: type) -> None:
    for tool in (
        TOOLS["run"],
        Tool("run", "", {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}),
    ):
        guard = build_policies({"run": tool}, arguments={"misfit": manner}, on_failure=on_failure)
        for text in (DEEP, "[" * 600 + "]" * 600):
            *_, event = guard.feed(Call("", ToolCall("run", text), "tag"))
            assert isinstance(event, kind) or tool is not TOOLS["run"]


def test_nothing_is_coerced_unless_that_is_wanted() -> None:
    intervention, _ = feed_call({"path": "a", "times": "3"}, coerce=False)
    assert isinstance(intervention, Intervention)
    assert intervention.action == "passed"


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": 5}, "not a JSON Schema"),
        ({"properties": {"a": {"$ref": "https://example.com/x.json"}}}, "has an undefined reference"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "has an undefined reference"),
    ],
)
def test_unusable_schema_is_reported_and_nothing_is_fetched(schema: Any, fault: str) -> None:
    tools = {"run": Tool("run", "", schema)}
    call = Call("", ToolCall("run", '{"a": 1}'), "tag")
    intervention, event = build_policies(tools, arguments={"misfit": "drop"}).feed(call)
    assert event is call
    assert isinstance(intervention, Intervention)
    assert (intervention.action, fault in intervention.reason) == ("unchecked", True)


def test_tools_that_nobody_declares_and_other_events_pass() -> None:
    guard = build_policies(TOOLS, arguments={"misfit": "drop"})
    call = Call("", ToolCall("other", "{"), "tag")
    assert guard.feed(call) == [call]
    assert guard.feed(Text("x")) == [Text("x")]
    assert guard.finish() == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["1", "true", "[1]", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SCHEMA["properties"]]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"]]), VALUES))
def test_coerced_arguments_fit_and_lose_nothing(arguments: dict[str, Any]) -> None:
    *_, event = feed_call(arguments, manner="drop")
    if isinstance(event, Denied):
        assert isinstance(feed_call(arguments, coerce=False, manner="drop")[-1], Denied)
        return
    assert isinstance(event, Call)
    (again,) = feed_call(event.call.arguments, coerce=False, manner="drop")
    assert isinstance(again, Call)
    value = json.loads(event.call.arguments)
    assert set(value) == set(arguments)
    assert event.changed or value == arguments


def test_invalid_schema_is_reported_at_once() -> None:
    intervention, _ = build_policies({"x": Tool("x", "", {"type": "objekt"})}, arguments={}).feed(
        Call("", ToolCall("x", "{}"), "tag")
    )
    assert isinstance(intervention, Intervention)
    assert "not a JSON Schema" in intervention.reason
