"""JSON Schema within a budget: the same faults as without, or none of the work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from tests.guards.policies import build_policies
from vtc.events import Call, Denied, Intervention, Tool, ToolCall
from vtc.guards import GuardChain
from vtc.guards.arguments import make_counting_validator
from vtc.guards.patterns import Budget

LETTERS = "a" * 60 + "!"
ENDLESS = "^(a|a)*$"
NODE: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}},
        {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["q"]},
    ]
}


def make_schema(entry: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": entry}, **more}


def make_doubling_schema(levels: int) -> dict[str, Any]:
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**defs, f"d{levels}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def nest_value(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"c": value}
    return value


OBJECTS = [{"a": i, "b": str(i)} for i in range(60_000)]
ENDLESS_WORK: Mapping[str, tuple[dict[str, Any], Any]] = {
    "a pattern": (make_schema({"pattern": ENDLESS}), {"x": LETTERS}),
    "a pattern of another part, which names a draft": (
        make_schema({"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": ENDLESS}),
        {"x": LETTERS},
    ),
    "a pattern for many short texts": (make_schema({"items": {"pattern": ENDLESS}}), {"x": ["a" * 22 + "!"] * 9_000}),
    "a pattern of a name": ({"patternProperties": {ENDLESS: {}}}, {LETTERS: 1}),
    "a pattern of the names that are known": (
        {"additionalProperties": False, "patternProperties": {ENDLESS: {}}},
        {LETTERS: 1},
    ),
    "a pattern of 100 KB": (make_schema({"pattern": "(a|b)" * 20_000}), {"x": "a"}),
    "references that double": (make_doubling_schema(20), {"x": 1}),
    "references that double below what is not evaluated": (
        {"unevaluatedProperties": False, **make_doubling_schema(20)},
        {"x": 1},
    ),
    "a recursive choice": ({"$defs": {"n": NODE}, **make_schema({"$ref": "#/$defs/n"})}, {"x": nest_value(20, 5)}),
    "unique objects": (make_schema({"uniqueItems": True}), {"x": OBJECTS}),
    "an item that is in no list": (make_schema({"contains": {"type": "string"}}), {"x": [*range(100_000)]}),
    "items of which nothing is asked": (make_schema({"items": {}}), {"x": [*range(100_000)]}),
    "numbers as text": (make_schema({"items": {"type": "integer"}}), {"x": ["1"] * 20_000}),
    "options for many items": (make_schema({"items": {"enum": [[i] for i in range(40_000)]}}), {"x": [[-1]]}),
    "an option that is long": (make_schema({"const": [*range(100_000)]}), {"x": 1}),
    "100,000 keys": ({"additionalProperties": {"type": "integer"}}, {f"k{i}": i for i in range(100_000)}),
    "a message that quotes 10 MB": (make_schema({"type": "integer"}), {"x": "a" * 10_000_000}),
}


def build_checking_guard(schema: dict[str, Any]) -> GuardChain:
    return build_policies({"run": Tool("run", "", schema)}, arguments={"misfit": "steer"})


def make_call(arguments: Any) -> Call:
    return Call("raw", ToolCall("run", json.dumps(arguments)), "tag")


@pytest.mark.parametrize("what", ENDLESS_WORK)
def test_arguments_that_take_too_long_to_check_do_not_fit(what: str) -> None:
    schema, arguments = ENDLESS_WORK[what]
    intervention, event = build_checking_guard(schema).feed(make_call(arguments))
    assert isinstance(intervention, Intervention)
    assert (intervention.action, isinstance(event, Denied)) == ("refused", True)
    if intervention.policy == "keys":  # which are looked through first
        assert intervention.reason == "it fails on this call, so the call is denied: TakesTooLongError"
    else:
        assert intervention.reason == "they do not fit: checking its arguments takes too long"
        assert "checking its arguments takes too long" in event.message


def test_rule_on_fitting_arguments_denies_too_costly_ones() -> None:
    rule = {"name": "fits", "when": {"fits": False}, "then": {"refuse": "No."}}
    schema, arguments = ENDLESS_WORK["a pattern"]
    *_, event = build_policies({"run": Tool("run", "", schema)}, reactors=[rule]).feed(make_call(arguments))
    assert isinstance(event, Denied)


def test_a_schema_that_takes_too_long_to_check_lets_no_call_pass_as_fitting() -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}
    *_, event = build_checking_guard(schema).feed(make_call({}))
    assert isinstance(event, Denied)


def test_calls_of_one_reply_share_a_budget() -> None:
    schema = make_schema({"items": {"type": "integer"}})
    guard = build_checking_guard(schema)
    ends = [guard.feed(make_call({"x": [*range(5_000)]}))[-1] for _ in range(6)]
    assert [isinstance(event, Call) for event in ends] == [True, True, True, False, False, False]


ORDINARY: Mapping[str, tuple[dict[str, Any], Any]] = {
    "1,500 unique objects": (make_schema({"uniqueItems": True}), {"x": OBJECTS[:1_500]}),
    "5,000 numbers": (make_schema({"items": {"type": "integer"}}), {"x": [*range(5_000)]}),
    "a file of 1 MB": (make_schema({"type": "string"}), {"x": "a, b\n" * 200_000}),
    "300 parameters": (
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(300)}},
        {"p1": "x"},
    ),
    "2,000 of 5,000 options": (
        make_schema({"items": {"enum": [f"e{i}" for i in range(5_000)]}}),
        {"x": ["e7"] * 2_000},
    ),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_large_ordinary_arguments_are_checked(what: str) -> None:
    schema, arguments = ORDINARY[what]
    (event,) = build_checking_guard(schema).feed(make_call(arguments))
    assert isinstance(event, Call)


VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, -0.0, "", "a", "ab", "1", "true"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.sampled_from([True, {}, {"type": "integer"}, {"type": ["string", "null"]}, {"pattern": "^a"}, {"minLength": 1}])
    | st.builds(lambda options: {"enum": options}, st.lists(VALUES, min_size=1, max_size=3))
    | st.builds(lambda value: {"const": value}, VALUES),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "uniqueItems": st.booleans(),
            "items": inner,
            "contains": inner,
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
            "additionalProperties": inner | st.just(False),
            "propertyNames": inner,
            "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
        },
    ),
    max_leaves=6,
)


@given(SCHEMAS, VALUES, st.sampled_from([Draft202012Validator, Draft7Validator]))
def test_budget_does_not_affect_found_faults(schema: Any, value: Any, draft: Any) -> None:
    found, expected = (
        sorted(f"{error.validator} {error.json_path}" for error in kind(schema).iter_errors(value))
        for kind in (make_counting_validator(draft, Budget()), draft)
    )
    assert found == expected


def test_unevaluated_properties_are_reported() -> None:
    schema = {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}
    kind = make_counting_validator(Draft202012Validator, Budget())
    assert [error.validator for error in kind(schema).iter_errors({"a": 1, "b": 2})] == ["unevaluatedProperties"]
    assert not [*kind(schema).iter_errors({"a": 1})]
