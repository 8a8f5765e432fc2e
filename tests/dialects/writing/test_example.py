"""The example of a call in a prompt: of an offered tool, readable in its dialect, and without content to copy."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.dialects.material import AGENT, DIALECTS, calls, read
from tests.known import NAMELESS_TOOL
from vtc.dialects.writing import render_example, render_tool_list
from vtc.events import Tool

PROMPTED = [name for name, dialect in DIALECTS.items() if dialect.prompt]
PLACEHOLDER = re.compile(
    r"\b(?:tool|func(?:tion)?|param(?:eter)?|arg)s?[-_](?:name|key|value|arg|json)\w*|\bexample_\w+|\bvalue_\d"
    r"|\$[A-Z_]{3,}|\bhere(?: \(\w+\))?</|<required>"
)
"""Placeholders for a name or a value, which models copied in addition to their arguments."""
RESULT_TAG = re.compile(r"(?i)<[^\s>]*(?:response|results?|output)\b[^\s>]*>|Tool Result from")


def tool(name: str, required: list[str] | None = None, /, **properties: Any) -> Tool:
    given = {"properties": properties} | ({} if required is None else {"required": required})
    return Tool(name, f"Does {name}.", {"type": "object", **given})


TEXT = {"type": "string"}
READ = tool("read", ["path"], path=TEXT)
WRITE = tool("write", ["path", "text"], path=TEXT, text=TEXT, mode=TEXT)
MOVE = tool("move", ["a", "b", "c"], a=TEXT, b=TEXT, c=TEXT)
COUNT = tool("count", ["first", "last", "name"], first={"type": "integer"}, last={"type": "number"}, name=TEXT)
LIST = tool("list", path=TEXT, depth={"type": "integer"})


def parse_example(*tools: Tool) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of an example in a dialect with JSON arguments."""
    found = re.fullmatch(r"<function=(\w+)>(.*)</function>", render_example(DIALECTS["function-tag"], tools))
    assert found
    return found[1], json.loads(found[2])


def test_the_first_tool_that_requires_two_texts_is_shown() -> None:
    assert parse_example(LIST, READ, WRITE, MOVE) == ("write", {"path": "...", "text": "..."})
    assert parse_example(MOVE, WRITE)[0] == "move"
    assert parse_example(COUNT, READ)[0] == "read"
    assert parse_example(tool("ping"), READ)[0] == "read"
    assert parse_example(COUNT, tool("ping")) == ("ping", {})


def test_no_value_means_anything() -> None:
    properties = {
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "steps": {"type": "array"},
        "sure": {"type": "boolean", "default": True},
        "size": {"type": "integer"},
        "any": {},
    }
    assert set(parse_example(tool("all", None, **properties))[1].values()) == {"..."}


def test_required_parameters_are_shown_or_all_if_none_is_required() -> None:
    assert parse_example(WRITE)[1] == {"path": "...", "text": "..."}
    assert parse_example(LIST)[1] == {"path": "...", "depth": "..."}
    assert parse_example(tool("odd", ["missing"], path=TEXT))[1] == {"path": "..."}


def test_object_whose_keys_are_values_has_no_names() -> None:
    assert render_example(DIALECTS["bare-json"], [WRITE]) == '{"name": "...", "arguments": {"...": "..."}}'


def test_there_is_none_without_tools() -> None:
    assert render_example(DIALECTS["hermes"], []) == ""


@pytest.mark.parametrize(
    "schema", [{}, {"properties": 1}, {"required": 1}, {"properties": {"a": 1}, "required": ["a"]}]
)
def test_a_schema_that_is_none_costs_its_arguments(schema: dict[str, Any]) -> None:
    assert parse_example(Tool("f", parameters=schema)) == ("f", {})


@pytest.mark.parametrize("name", PROMPTED)
@pytest.mark.parametrize("tools", [[WRITE], [tool("ping")], [COUNT]], ids=lambda tools: tools[0].name)
def test_it_is_a_call_that_the_dialect_reads(name: str, tools: list[Tool]) -> None:
    text = render_example(DIALECTS[name], tools)
    found = calls(read([text], [DIALECTS[name]], {one.name: one for one in (*tools, NAMELESS_TOOL)}))
    assert [call[0] for call in found] in ([tools[0].name], [NAMELESS_TOOL.name])
    # Nor is it executed if it contains no name.
    assert not calls(read([text], [DIALECTS[name]], {READ.name: READ}))


@pytest.mark.parametrize("name", PROMPTED)
def test_a_prompt_holds_the_example_and_is_the_same_each_time(name: str) -> None:
    text = render_tool_list(DIALECTS[name], [READ])
    assert render_example(DIALECTS[name], [READ]) in text
    assert text == render_tool_list(DIALECTS[name], [READ])


@pytest.mark.parametrize("name", PROMPTED)
def test_a_prompt_teaches_by_no_placeholder_and_shows_no_markup_of_results(name: str) -> None:
    tools = [READ, WRITE, MOVE, COUNT, LIST, *AGENT.values()]
    # A dialect's own markup can contain such words.
    text = render_tool_list(DIALECTS[name], tools).replace(render_example(DIALECTS[name], tools), "")
    assert not PLACEHOLDER.search(text)
    assert not RESULT_TAG.search(text)


PLACEHOLDERS = [
    *(
        "<tool_name>",
        "<function-name>",
        "$TOOL_NAME",
        "{function-name}",
        "{arg-key-1}",
        "path here (string)</path>",
        "path here</path>",
    ),
    *('"tool_name1"', "example_function_name", "value_1", "parameter-name", "function_name(", "param-key-1"),
    *("<tool-name>", "<args-json-object>", '<required>["path"]</required>', "tool_args1", "params_name1"),
]


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_found(text: str) -> None:
    assert PLACEHOLDER.search(f"write {text} and wait")


@pytest.mark.parametrize(
    "text", ["<tool_response>", "<function_results>", 'begin "Tool Result from"', "<|tool_output|>"]
)
def test_the_markup_of_a_result_is_found(text: str) -> None:
    assert RESULT_TAG.search(text)
