"""A call that is being read: which openers count, frames, and what it says once it is complete."""

from __future__ import annotations

import json

import pytest

from tests.dialects.material import DIALECTS, TOOLS
from vtc.dialects import Reader, compiled
from vtc.dialects.arguments.envelope import NotACall
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.syntax.grammar import CallSyntax
from vtc.events import Call, Tool, ToolCall


def opened(dialect: str, name: str, tools: str = "agent", *, lenient: bool = True) -> OpenCall:
    description = DIALECTS[dialect]
    return OpenCall(CallSyntax(description, description.calls[0]), name, None, TOOLS[tools], lenient=lenient)


def called(call: OpenCall, unknown_tools: str = "text") -> ToolCall:
    (event,) = call.complete(unknown_tools)
    return event.call


def give(call: OpenCall, key: str, value: str) -> None:
    call.parameters.begin(key, 0)
    call.hold(value, value=True)
    call.end_parameter()


def test_a_first_parameter_may_be_none_only_between_bare_tags_and_undeclared() -> None:
    assert not opened("tag", "bash").parameters.begins_with_a_guess("command")
    assert opened("tag", "bash").parameters.begins_with_a_guess("cmd")
    assert not opened("invoke", "bash").parameters.begins_with_a_guess("cmd")


def test_a_further_parameter_is_none_if_it_was_given_before_the_open_one() -> None:
    call = opened("invoke", "bash")
    give(call, "timeout", "5")
    call.parameters.begin("command", 0)
    assert call.parameters.quotes("timeout")
    assert not call.parameters.quotes("command")
    assert not call.parameters.quotes("cmd")


def test_of_a_tool_that_declares_none_every_parameter_counts_once() -> None:
    call = opened("invoke", "unknown")
    give(call, "a", "x")
    call.parameters.begin("b", 0)
    assert not call.parameters.quotes("c")
    assert call.parameters.quotes("a")


@pytest.mark.parametrize(
    ("dialect", "name", "empty"),
    [("invoke", "bash", True), ("invoke", "unknown", True), ("tag", "list_files", True), ("tag", "bash", False)],
)
def test_a_call_without_parameters(dialect: str, name: str, empty: bool) -> None:
    assert opened(dialect, name).may_be_empty is empty


def test_a_complete_call_has_its_text_its_values_and_its_repairs() -> None:
    call = opened("invoke", "get_weather")
    call.hold('<invoke name="get_weather">')
    call.begin_body()
    give(call, "city", "5")
    give(call, "days", "soon")
    (event,) = call.complete("text")
    assert event.raw == '<invoke name="get_weather">5soon'
    assert event.call.name == "get_weather"
    assert json.loads(event.call.arguments) == {"city": "5", "days": "soon"}
    assert event.dialect == "invoke"
    assert event.repairs == ("untyped:days",)


def test_a_call_of_an_unknown_tool() -> None:
    with pytest.raises(NotACall, match="no tool 'rm' is offered"):
        opened("invoke", "rm").complete("text")
    assert called(opened("invoke", "rm"), "allow").name == "rm"
    with pytest.raises(NotACall, match="no tool 'rm' is offered"):
        opened("tag", "rm").complete("allow")


def test_the_name_of_a_call_is_the_offered_one() -> None:
    assert called(opened("invoke", "functions.search_web", "names")).name == "Search_Web"


def test_arguments_can_always_be_encoded() -> None:
    call = opened("invoke", "bash")
    give(call, "command", "\ud83d")
    arguments = called(call).arguments
    arguments.encode()
    assert json.loads(arguments) == {"command": "\ud83d"}


def test_a_body_that_is_mended_to_no_object_is_no_call() -> None:
    """Found by the invariants: the brace belongs to nothing that the dialect knows."""
    tools = {"read": Tool("read", "", {"type": "object", "properties": {"filePath": {"type": "string"}}})}
    text = "<|tool_call>call:read{filePaknown{}<tool_call|>"
    reader = Reader(compiled((DIALECTS["gemma4"],)), tools)
    events = [*reader.feed(text), *reader.finish()]
    assert "".join(event.raw for event in events) == text
    assert [event for event in events if isinstance(event, Call)] == []
