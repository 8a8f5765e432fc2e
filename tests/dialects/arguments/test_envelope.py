"""A call in one JSON object, and what only looks like one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from vtc.dialects.arguments import envelope
from vtc.dialects.arguments.envelope import NotACall
from vtc.dialects.syntax.description import Envelope
from vtc.events import Tool

PLAIN = Envelope()
OTHER = Envelope(name=("tool_name", "tool"), arguments=("args", "input"), id="call_id")


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', "f", '{"a": 1}'),
        ('{"arguments": {"a": 1}, "name": "f"}', "f", '{"a": 1}'),
        ('{"name": "f", "parameters": {}}', "f", "{}"),
        ('{"name": "f"}', "f", "{}"),
        ('{"name": "f", "arguments": null}', "f", "{}"),
        ('{"name": "f", "arguments": {"a": 1}, "more": 5}', "f", '{"a": 1}'),
        ('{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', "f", '{"a": 1}'),
        ('{"function": {"name": "f", "parameters": {"a": 1}}}', "f", '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": 1e999, "b": 1, "b": 1}}', "f", '{"a": 1e999, "b": 1, "b": 1}'),
        ('{"name": "f\\u00e9", "arguments": {"a": "\\ud83d\\ude00"}}', "fé", '{"a": "\\ud83d\\ude00"}'),
        ('{"name": "f", "arguments": {"description": "x", "type": "object"}}', "f", None),
    ],
)  # fmt: skip
def test_a_call(text: str, name: str, arguments: str | None) -> None:
    read = envelope.read(text, PLAIN, needs_arguments=False)
    assert read.name == name
    assert read.text == (arguments or json.dumps(json.loads(text)["arguments"]))
    assert read.arguments == json.loads(read.text)
    assert read.id is None
    assert read.repairs == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "the JSON is no object"),
        ("{}", "the JSON has no 'name'"),
        ('{"arguments": {}}', "the JSON has no 'name'"),
        ('{"name": 5, "arguments": {}}', "the JSON has no 'name'"),
        ('{"name": {"a": 1}}', "the JSON has no 'name'"),
        ('{"function": "f", "arguments": {}}', "the JSON has no 'name'"),
        ('{"name": "f", "arguments": 5}', "its arguments are no object"),
        ('{"name": "f", "arguments": [1]}', "its arguments are no object"),
        ('{"name": "f", "arguments": "text"}', "its arguments are a string"),
        ('{"name": "f", "arguments": "[1]"}', "its arguments are a string"),
        ('{"name": "f", "arguments": "{} {}"}', "its arguments are a string"),
        ('{"name": "f", "arguments": "{\\"a\\": NaN}"}', "its arguments are a string"),
        ('{"name": "f", "arguments": {"b": 1, "b": 2}}', "'b' is given twice"),
        ('{"name": "f", "description": "does it"}', "declares a tool"),
        *(
            (f'{{"name": "f", "{key}": {{"type": "object", "properties": {{}}}}}}', "declares a tool")
            for key in ("parameters", "params", "input")
        ),
        ('{"name": "f", "params": "{\\"type\\": \\"object\\", \\"properties\\": {}}"}', "declares a tool"),
    ],
)
def test_no_call(text: str, reason: str) -> None:
    with pytest.raises(NotACall, match=reason):
        envelope.read(text, PLAIN, needs_arguments=False)


def test_a_declaration_whose_schema_stands_in_the_object_itself_is_no_call() -> None:
    text = '{"name": "f", "type": "object", "properties": {}}'
    with pytest.raises(NotACall, match="declares a tool"):
        envelope.read(text, PLAIN, needs_arguments=False, offered=offering("type", "properties"))


def test_an_answer_has_no_arguments() -> None:
    with pytest.raises(NotACall, match="the JSON has no 'arguments'"):
        envelope.read('{"name": "f"}', PLAIN, needs_arguments=True)
    assert envelope.read('{"name": "f", "arguments": {}}', PLAIN, needs_arguments=True).name == "f"


def test_other_keys() -> None:
    read = envelope.read('{"tool": "f", "input": {"a": 1}, "call_id": "c1"}', OTHER, needs_arguments=True)
    assert (read.name, read.text, read.arguments, read.id) == ("f", '{"a": 1}', {"a": 1}, "c1")
    assert envelope.read('{"tool_name": "f", "call_id": 5}', OTHER, needs_arguments=False).id is None
    with pytest.raises(NotACall, match="no 'tool_name'"):
        envelope.read('{"name": "f", "arguments": {}}', OTHER, needs_arguments=True)


@pytest.mark.parametrize("inner", ['{"a": "x\\ny"}', ' \n{"a": 1} ', "{}", "", " "])
def test_arguments_that_were_encoded_twice(inner: str) -> None:
    text = json.dumps({"name": "f", "arguments": inner})
    read = envelope.read(text, PLAIN, needs_arguments=False)
    assert read.arguments == json.loads(read.text) == json.loads(inner.strip() or "{}")
    assert read.repairs == ("arguments-encoded-twice",)


def test_nesting_that_was_encoded_is_limited_too() -> None:
    text = json.dumps({"name": "f", "arguments": '{"a": ' + "[" * 100_000})
    with pytest.raises(NotACall):
        envelope.read(text, PLAIN, needs_arguments=False)


def offering(*parameters: str) -> Callable[[str], Tool]:
    """A tool of any name, with these parameters."""
    return lambda name: Tool(name, "", {"type": "object", "properties": {key: {} for key in parameters}})


@pytest.mark.parametrize(
    ("text", "arguments", "repairs"),
    [
        *(
            (f'{{"name": "f", "{key}": {{"command": "ls"}}}}', {"command": "ls"}, ("arguments-key",))
            for key in ("args", "input", "params", "kwargs", "tool_input")
        ),
        ('{"name": "f", "command": "ls", "timeout": 3}', {"command": "ls", "timeout": 3}, ("flat-arguments",)),
        ('{"name": "f", "arguments": {}, "command": "ls"}', {"command": "ls"}, ("flat-arguments",)),
        ('{"name": "f", "id": "1", "type": "function"}', {}, ()),
        ('{"name": "f", "arguments": {"command": "ls"}, "note": 1}', {"command": "ls"}, ()),
    ],
)
def test_arguments_under_another_key_are_found(text: str, arguments: object, repairs: tuple[str, ...]) -> None:
    found = envelope.read(text, Envelope(), needs_arguments=False, offered=offering("command", "timeout"))
    assert (found.arguments, found.repairs) == (arguments, repairs)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "type": "bug", "id": "5"}', {"type": "bug", "id": "5"}),
        ('{"type": "function", "name": "f", "id": "5", "index": 0}', {"id": "5"}),
        ('{"name": "f", "arguments": {"id": "5"}, "type": "bug", "id": "call_1"}', {"id": "5"}),
    ],
)
def test_what_tells_of_the_call_is_an_argument_where_the_tool_declares_it(text: str, arguments: object) -> None:
    found = envelope.read(text, Envelope(id="id"), needs_arguments=False, offered=offering("type", "id"))
    assert found.arguments == arguments
    assert found.id == ("call_1" if "call_1" in text else None)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "path": "/x"}',
        '{"name": "f", "command": "ls", "path": "/x"}',
        '{"name": "f", "args": {"command": "ls"}, "path": "/x"}',
        '{"name": "f", "arguments": {"timeout": 1}, "command": "ls"}',
    ],
)
def test_call_is_refused_rather_than_made_without_an_argument(text: str) -> None:
    with pytest.raises(envelope.NotACall):
        envelope.read(text, Envelope(), needs_arguments=False, offered=offering("command", "timeout"))
