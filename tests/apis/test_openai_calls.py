"""Calls put together from their pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat
from vtc.apis.openai_calls import Gathered, calls_of, deltas_of, entry_of
from vtc.apis.openai_json import has_calls
from vtc.events import ToolCall


def gathered(*parts: dict[str, Any]) -> Gathered:
    found = Gathered()
    for part in parts:
        found.add(part)
    return found


def piece(arguments: Any, name: str | None = None, **entry: Any) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{**entry, "function": function}]}


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ({}, []),
        ({"tool_calls": None, "function_call": None}, []),
        ({"tool_calls": []}, []),
        ({"tool_calls": [chat.native(0, id="a", name="n", arguments='{"x": 1}')]}, [ToolCall("n", '{"x": 1}', "a")]),
        ({"tool_calls": [{"function": {"name": "n"}}, {"id": None}]}, None),
        ({"function_call": {"name": "n", "arguments": "{}"}}, [ToolCall("n", "{}", "call_0")]),
    ],
)
def test_the_calls_of_a_message(message: dict[str, Any], calls: list[ToolCall] | None) -> None:
    found = calls_of(message)
    if calls is None:
        calls = [ToolCall("n", "{}", "call_0"), ToolCall("", "{}", "call_1")]
    assert found == calls
    assert has_calls(message) == bool(calls)


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([piece("{", "a", index=0, id="p"), piece("}", index=0)], [("a", "{}", "p")]),
        (
            [piece("{", "a", index=0), piece("[", "b", index=1), piece("}", index=0), piece("]", index=1)],
            [("a", "{}"), ("b", "[]")],
        ),
        ([piece("{", "a", index=0), piece("}", "a", index=0)], [("a", "{}")]),
        ([piece("", "ba", index=0), piece("{}", "sh", index=0)], [("bash", "{}")]),
        ([piece("{", "a", id="p"), piece("}", id="p"), piece("{}", "b", id="q")], [("a", "{}", "p"), ("b", "{}", "q")]),
        ([piece("{}", "a"), piece("{}", "b")], [("a", "{}"), ("b", "{}")]),
        ([piece({"é": 1}, "a", index=0)], [("a", '{"é": 1}')]),
        ([{"function_call": {"name": "a", "arguments": "{"}}, {"function_call": {"arguments": "}"}}], [("a", "{}")]),
        (
            [{**piece("{}", "a", index=0), "function_call": {"name": "b", "arguments": "{}"}}],
            [("b", "{}"), ("a", "{}")],
        ),
        ([{"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "c", "input": "ls"}}]}], [("c", "ls")]),
        ([{"tool_calls": None}, {"function_call": None}, {}], []),
    ],
)
def test_pieces_add_up(parts: list[dict[str, Any]], calls: list[tuple[str, ...]]) -> None:
    found = gathered(*parts)
    assert bool(found) is bool(calls)
    assert [(call.name, call.arguments, *([call.id] if call.id else [])) for call in found.calls()] == calls
    assert all(call.id for call in found.numbered())


def test_what_had_come_can_be_had_again() -> None:
    found = gathered(piece('{"a"', "x", index=0, sig=1))
    state = found.state()
    found.add(piece(": 1}", index=0, sig=2))
    found.add(piece("{}", "y", index=1))
    found.restore(state)
    assert found.calls() == [ToolCall("x", '{"a"')]
    assert found.entries(2) == [
        {"sig": 1, "index": 2, "id": None, "type": "function", "function": {"name": "x", "arguments": '{"a"'}}
    ]


def test_fields_that_nobody_knows_are_kept() -> None:
    entry = {"index": 3, "id": "i", "type": "function", "function": {"name": "x", "arguments": "{}"}, "sig": {"a": 1}}
    (call,) = calls_of({"tool_calls": [entry]})
    assert entry_of(call) == {key: value for key, value in entry.items() if key != "index"}
    custom = {"id": "i", "type": "custom", "custom": {"name": "x", "input": "ls"}}
    (call,) = calls_of({"tool_calls": [custom]})
    assert entry_of(call) == custom
    assert json.dumps(call.as_openai())


def test_a_call_is_a_head_and_its_arguments() -> None:
    call = ToolCall("f", '{"a":1}', "x", {"id": "x", "sig": "s", "index": 9})
    head, rest = deltas_of(call, 1, legacy=False)
    (entry,) = head["tool_calls"]
    function = {"name": "f", "arguments": ""}
    assert entry == {"sig": "s", "id": "x", "type": "function", "function": function, "index": 1}
    assert rest == {"tool_calls": [{"index": 1, "function": {"arguments": '{"a":1}'}}]}
    older = ({"function_call": function}, {"function_call": {"arguments": '{"a":1}'}})
    assert deltas_of(call, 0, legacy=True) == older
