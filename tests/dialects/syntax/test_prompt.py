"""The presentation of the tools to the model."""

from __future__ import annotations

from typing import Any

import jinja2
import msgspec
import pytest

from tests.dialects.material import AGENT, DIALECTS, TOOLS, plain
from vtc.dialects import Description, PatternError
from vtc.dialects.writing import render_tool_list
from vtc.events import Tool

STEP = {"type": "object", "properties": {"do": {"type": "string", "description": "What to do"}}, "required": ["do"]}
SAVE = Tool(
    "save",
    "Saves it.",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The text"},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            "steps": {"type": "array", "items": STEP},
            "options": {"properties": {"depth": {"type": ["integer", "null"]}}},
        },
        "required": ["text"],
    },
)


def with_prompt(template: str) -> Description:
    """Return a dialect with this template for the prompt."""
    return msgspec.structs.replace(DIALECTS["hermes"], prompt=template)


def fields(parameters: dict[str, Any]) -> Any:
    """Return the fields of a tool that a template can use."""
    return plain(render_tool_list(with_prompt("{{ tools[0].fields | list | tojson }}"), [Tool("f", "", parameters)]))


def test_fields_are_flat_in_order_with_their_depth() -> None:
    found = fields(SAVE.parameters)
    assert [(field["depth"], field["name"], field["type"], field["required"]) for field in found] == [
        (0, "text", "string", True),
        (0, "mode", "string", False),
        (0, "steps", "array of object", False),
        (1, "do", "string", True),
        (0, "options", "object", False),
        (1, "depth", "integer or null", False),
    ]
    assert found[0]["description"] == "The text"
    assert (found[1]["enum"], found[1]["default"], found[1]["has_default"]) == (["fast", "slow"], "fast", True)
    assert (found[0]["enum"], found[0]["default"], found[0]["has_default"]) == (None, None, False)


def test_fields_of_a_schema_that_refers_to_itself_end() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["in"] = schema
    assert [field["depth"] for field in fields(schema)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, "string"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "array of array of string"),
        ({"type": "array"}, "array"),
        ({"properties": {}}, "object"),
        ({}, "any"),
    ],
)
def test_a_type_in_words(schema: dict[str, Any], words: str) -> None:
    assert [field["type"] for field in fields({"properties": {"a": schema}}) if field["depth"] == 0] == [words]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_shows_all_there_is_to_know_of_a_tool(dialect: str) -> None:
    text = render_tool_list(DIALECTS[dialect], [SAVE, *AGENT.values()])
    for name in ("save", "text", "mode", "steps", "options", *AGENT):
        assert name in text
    assert "Saves it." in text
    assert "The text" in text
    assert text == text.strip()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object"},
        {"properties": {}},
        {"type": "object", "properties": {"a": {}, "items": {"type": "string"}}},
        {"type": "object", "properties": {"a": True, "b": {"type": "array", "items": True}}, "required": []},
    ],
    ids=str,
)
def test_every_dialect_renders_a_minimal_tool(dialect: str, parameters: dict[str, Any]) -> None:
    text = render_tool_list(DIALECTS[dialect], [Tool("do_it", parameters=parameters)])
    assert "do_it" in text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_renders_a_required_call(dialect: str) -> None:
    tools = list(TOOLS["typed"].values())
    assert "the function save" in render_tool_list(DIALECTS[dialect], tools, "the function save")
    assert " in this reply." not in render_tool_list(DIALECTS[dialect], tools)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_template_syntax_in_a_tool_is_text(dialect: str) -> None:
    tool = Tool(
        "f", "{{ 7 * 7 }} {% for x in y %} <b> & {# no #}", {"properties": {"a": {"description": "{{ tools }}"}}}
    )
    text = render_tool_list(DIALECTS[dialect], [tool])
    assert tool.description in text
    assert "{{ tools }}" in text


def test_json_is_shown_as_it_is() -> None:
    shown = render_tool_list(with_prompt("{{ tools[0].description | tojson }}"), [Tool("f", "<é> & 'x'")])
    assert shown == "\"<é> & 'x'\""


def test_a_template_is_sandboxed() -> None:
    with pytest.raises(jinja2.exceptions.SecurityError):
        render_tool_list(with_prompt("{{ tools.__class__.__mro__ }}"), [])


def test_a_name_that_does_not_exist_is_an_error_and_not_blank() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_tool_list(with_prompt("{{ tool_list }}"), [])


def test_malformed_template_is_an_error() -> None:
    with_prompt("{% for tool in tools %}{{ tool.name }}{% endfor %}").check()
    with pytest.raises(PatternError, match="line 2 of the template") as caught:
        with_prompt("one\n{% for %}").check()
    assert caught.value.key == "prompt"
