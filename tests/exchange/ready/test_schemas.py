"""Schemas of tools as servers that make grammars of them take them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exchange.ready.steps import given
from vtc.events import CanonicalRequest, Tool
from vtc.exchange.asking.steps import made_ready

type Json = dict[str, Any]

STRING_B = {"type": "string", "description": "b"}


def simplified(schema: Json, value: str = "grammar") -> tuple[Any, list[str]]:
    asked = CanonicalRequest(model="m", messages=(), tools=(Tool("go", "", schema),))
    found, told = made_ready(asked, {"schemas": value}, given())
    return found.tools[0].parameters, [*told.values()]


def parameter(schema: Any, **root: Any) -> Any:
    found, _ = simplified({"type": "object", "properties": {"p": schema}, **root})
    return found["properties"]["p"]


@pytest.mark.parametrize(
    ("came", "went"),
    [
        ({"type": "string", "pattern": "a"}, {"type": "string", "description": "(pattern: a)"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many."},
            {"type": "integer", "description": "How many.\n(minimum: 1; maximum: 5)"},
        ),
        ({"anyOf": [{"type": "string", "description": "a"}, {"type": "null"}], "description": "b"}, STRING_B),
        ({"type": ["string", "null"], "description": "b"}, STRING_B),
        ({"type": ["string", "integer"]}, {"type": ["string", "integer"]}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"description": "b"}, STRING_B),
        ({}, {"type": "string"}),
        (True, {"type": "string"}),
        ({"properties": {"q": {}}}, {"type": "object", "properties": {"q": {"type": "string"}}}),
        (
            {"items": {"format": "uri", "type": "string"}},
            {
                "type": "array",
                "items": {"type": "string", "description": "(format: uri)"},
            },
        ),
        ({"enum": ["a"]}, {"enum": ["a"]}),
        ({"const": 1}, {"const": 1}),
        ({"$ref": "#/$defs/one"}, {"type": "integer"}),
        ({"$ref": "https://example.com/schema"}, {"type": "string"}),
        (
            {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
            {
                "type": "object",
                "additionalProperties": {"type": "string", "description": "(minLength: 1)"},
            },
        ),
    ],
)
def test_what_only_narrows_is_said_in_words(came: Any, went: Any) -> None:
    assert parameter(came, **{"$defs": {"one": {"type": "integer"}}}) == went


def test_what_names_a_key_is_no_keyword() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}, "format": {"type": "string"}}}
    found, told = simplified(schema)
    assert found is schema
    assert not told


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}
    found, told = simplified({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert found == {"type": "object", "properties": {"left": {"type": "object"}, "right": {"type": "object"}}}
    assert told == ["1 schema simplified (go: $ref, depth)"]


def test_the_schemas_of_all_tools_together_are_bounded() -> None:
    """Each refers twice to the next one, so that a tool of eleven definitions has two thousand schemas."""
    definitions: Json = {
        f"d{level}": {"properties": {place: {"$ref": f"#/$defs/d{level + 1}"} for place in "ab"}} for level in range(10)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d10": {"type": "string"}}}
    tools = tuple(Tool(f"go{number}", "", schema) for number in range(20))
    found, told = made_ready(CanonicalRequest(model="m", messages=(), tools=tools), {"schemas": "grammar"}, given())
    sizes = [len(json.dumps(tool.parameters)) for tool in found.tools]
    assert sizes[0] == max(sizes) > 20_000
    assert sum(sizes) < 8 * sizes[0]
    assert all(tool.parameters["type"] == "object" for tool in found.tools)
    assert any("go19" in line or "…" in line for line in told.values())


def test_a_tool_without_parameters_has_those_of_an_object() -> None:
    assert simplified({})[0] == {"type": "object", "properties": {}}


def test_servers_of_few_words_are_not_told_what_they_refuse() -> None:
    schema = {"$schema": "x", "type": "object", "additionalProperties": False, "properties": {"p": {"const": 1}}}
    assert simplified(schema)[0] is schema
    assert simplified(schema, "plain") == (
        {"type": "object", "properties": {"p": {"enum": [1]}}},
        ["1 schema simplified (go: $schema, const, additionalProperties)"],
    )
