"""Loops of an agent, detected from a conversation."""

from __future__ import annotations

import pytest

from vtc.events import Message, ToolCall
from vtc.guards import Loop
from vtc.guards.loops import describe_exceeded_limit

USER, TOOL = Message("user", ("go",)), Message("tool", ("x",), call_id="c")
BAD, ANSWER = Message("assistant", ("bad",)), Message("assistant", ("done",))


def make_calling_message(*calls: tuple[str, str]) -> Message:
    return Message("assistant", (), tuple(ToolCall(name, arguments) for name, arguments in calls))


READ = make_calling_message(("read", '{"a": 1, "b": 2}'))
SAME = make_calling_message(("read", '{ "b":2, "a":1 }'))
OTHER = make_calling_message(("read", '{"a": 2}'))
NEWER, OLDER = (Message("tool", (text,), call_id="d") for text in ("y", "z"))
BY_ID = Message("assistant", (), (ToolCall("read", "{}", "a"), ToolCall("read", "{}", "b")))
RESULT_OF = {id_: Message("tool", ("x",), call_id=id_) for id_ in "ab"}
BROKEN = make_calling_message(("read", '{"a": '))


def find_fault(loop: Loop, *messages: Message) -> str:
    return describe_exceeded_limit(loop, messages, lambda one: one.role == "user", lambda one: one.text == "bad")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], False),
        ([USER, READ, TOOL, READ, TOOL], False),
        ([USER, READ, TOOL, READ, TOOL, READ, TOOL], True),
        ([READ, TOOL, READ, TOOL, READ, TOOL], True),
        ([USER, READ, TOOL, USER, READ, TOOL, READ, TOOL], False),
        ([USER, make_calling_message(("a", "{}"), ("b", "{}"), ("c", "{}")), TOOL, TOOL, TOOL], True),
        ([USER, READ, TOOL, READ, TOOL, READ, TOOL, USER], False),
    ],
)
def test_results_since_the_user_spoke(messages: list[Message], expected: bool) -> None:
    assert bool(find_fault(Loop(max_tool_messages=3), *messages)) is expected
    assert find_fault(Loop(malformed_calls=9), *messages) == ""


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, READ, TOOL, SAME, TOOL], True),
        ([USER, READ, TOOL, OTHER, TOOL], False),
        ([USER, READ, TOOL, OTHER, TOOL, READ, TOOL], False),
        ([USER, OTHER, TOOL, READ, TOOL, SAME, TOOL], True),
        ([USER, READ, TOOL, USER, READ, TOOL], False),
        ([USER, BROKEN, TOOL, BROKEN, TOOL], True),
        ([USER, make_calling_message(("read", "{}"), ("read", "{}")), TOOL, TOOL], True),
        ([USER, READ, TOOL, SAME, NEWER], False),
        ([USER, READ, NEWER, SAME, NEWER], True),
        ([USER, READ, TOOL, READ], False),
        ([USER, READ, READ], True),
        ([USER, BY_ID, NEWER, OLDER], False),
        ([USER, BY_ID, RESULT_OF["a"], RESULT_OF["b"], BY_ID, RESULT_OF["b"], RESULT_OF["a"]], True),
    ],
)
def test_the_same_call_with_the_same_result_in_a_row(messages: list[Message], expected: bool) -> None:
    fault = find_fault(Loop(max_tool_messages=None, repeated_calls=2), *messages)
    same = "`read` was called 2 times in a row with the same arguments and the same result"
    assert fault == (same if expected else "")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, BAD, USER, BAD], True),
        ([USER, BAD, USER, BAD, USER], True),
        ([USER, BAD], False),
        ([USER, BAD, USER, BAD, USER, ANSWER, USER], False),
        ([USER, BAD, USER, READ, TOOL, BAD], False),
    ],
)
def test_replies_in_a_row_that_could_not_be_read(messages: list[Message], expected: bool) -> None:
    fault = find_fault(Loop(malformed_calls=2), *messages)
    assert fault == ("2 replies in a row contained a tool call that could not be read" if expected else "")


@pytest.mark.parametrize(
    ("loop", "limit"), [(Loop(), 20), (Loop(repeated_calls=3), None), (Loop(max_tool_messages=5), 5)]
)
def test_results_are_limited_by_default(loop: Loop, limit: int | None) -> None:
    assert loop.result_limit == limit
    assert bool(find_fault(loop, USER, *[READ, TOOL] * 19, OTHER, TOOL)) is (limit is not None)
