"""A call with sample values: of an offered tool, readable in every dialect, with values that the schema permits."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tests.dialects.material import AGENT, DIALECTS, TOOLS, calls, read
from vtc.dialects.arguments import parameter
from vtc.dialects.writing import make_sample_arguments, render_usage
from vtc.events import Tool

TEXT = {"type": "string"}


def test_a_value_is_one_that_the_schema_allows() -> None:
    properties: dict[str, Any] = {
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "steps": {"type": "array", "items": {"type": "object", "properties": {"do": TEXT}, "required": ["do"]}},
        "sure": {"type": "boolean"},
        "size": {"type": "integer", "minimum": 7},
        "ratio": {"type": ["null", "number"]},
        "kind": {"$ref": "#/$defs/kind"},
        "unit": {"type": "string", "default": "</parameter> x"},
        "any": {},
    }
    defined = {"kind": {"type": "string", "const": "note"}}
    one = Tool("all", parameters={"type": "object", "properties": properties, "$defs": defined})
    arguments = make_sample_arguments(one)
    assert {"mode": "fast", "sure": True, "size": 7, "kind": "note"}.items() <= arguments.items()
    jsonschema.validate(arguments, dict(one.parameters))
    assert "<" not in arguments["unit"]


@pytest.mark.parametrize(
    "schema", [{}, {"properties": 1}, {"required": 1}, {"properties": {"a": 1}, "required": ["a"]}]
)
def test_a_schema_that_is_none_costs_nothing_but_its_arguments(schema: dict[str, Any]) -> None:
    assert make_sample_arguments(Tool("f", parameters=schema)) in ({}, {"a": "apple"})


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.prompt])
@pytest.mark.parametrize("tools", [AGENT, TOOLS["typed"], TOOLS["coding"]], ids=["agent", "typed", "coding"])
def test_a_usage_is_a_whole_call_of_its_tool(name: str, tools: dict[str, Tool]) -> None:
    """It has all required arguments and no undeclared ones; there is none if no such tool is offered."""
    for one in tools.values():
        text = render_usage(DIALECTS[name], one)
        ((called, arguments),) = calls(read([text], [DIALECTS[name]], tools))
        assert called == one.name
        assert one.schema.list_missing(arguments) == []
        assert parameter.list_undeclared(arguments, one.schema) == []
        assert "..." not in text
        jsonschema.validate(arguments, dict(one.parameters))
        assert not calls(read([text], [DIALECTS[name]], {"other": Tool("other")}))
