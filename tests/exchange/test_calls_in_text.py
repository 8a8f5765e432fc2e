"""The same call, written twice: an echo finds it wherever and however it stands in a result."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.dialects.damages import TOOLS
from tests.dialects.material import DIALECTS, read
from tests.dialects.test_damages import CALLS
from tests.exchange.test_echoes import NAMES
from vtc.dialects.writing.calls import write_calls
from vtc.events import Call, Message, Tool, ToolCall
from vtc.exchange.calls_in_text import PER_READING, CallsInText
from vtc.exchange.echoes import EFFORT, found

AROUND = (
    "{}",
    "Write `{}` to do so.",
    "# Usage\n```\n{}\n```\nand so on",
    '"{}"',
    "<p>It says {} there.</p>",
    "<function=bash> <tool_call> [TOOL_CALLS] {{\n{}",
)
SPELLED = (str, html.escape, lambda text: json.dumps({"out": text}), lambda text: json.dumps([json.dumps(text)]))


def written(dialect: str, name: str, arguments: dict[str, Any], number: int) -> str:
    call = ToolCall(name, json.dumps(arguments, ensure_ascii=number == 0), id=f"functions.{name}:{number}")
    return write_calls([call], DIALECTS[dialect], TOOLS).strip()


def echo_of(result: str, dialect: str, reply: str, calls: list[ToolCall], *others: str) -> str | None:
    dialects = tuple(DIALECTS[one] for one in (dialect, *others))
    echoes = found([Message("tool", (result,), call_id="c", name="read_file")], dialects, TOOLS)
    return echoes.of(reply, calls) if echoes else None


def reply_with(dialect: str, name: str, arguments: dict[str, Any], *others: str) -> tuple[str, list[ToolCall]]:
    """A reply with a call, and what is read of it; some values no reader of the dialect, or of it and others, reads."""
    reply = written(dialect, name, arguments, 0)
    dialects = [DIALECTS[one] for one in (*others, dialect)]
    calls = [event.call for event in read([reply], dialects, TOOLS) if isinstance(event, Call)]
    assume([(call.name, json.loads(call.arguments)) for call in calls] == [(name, arguments)])
    return reply, calls


@pytest.mark.parametrize("dialect", NAMES)
@settings(max_examples=6)
@given(made=CALLS, around=st.sampled_from(AROUND), spelled=st.sampled_from(SPELLED))
@example(made=("bash", {"command": "rm -rf ~", "timeout": 5}), around=AROUND[1], spelled=SPELLED[0])
@example(made=("write_file", {"path": "", "content": "", "mode": "\0"}), around=AROUND[0], spelled=SPELLED[2])
def test_a_call_with_another_id_and_its_keys_in_another_order_is_an_echo(
    dialect: str, made: tuple[str, dict[str, Any]], around: str, spelled: Any
) -> None:
    name, arguments = made
    reply, calls = reply_with(dialect, name, arguments)
    page = written(dialect, name, dict(reversed(arguments.items())), 7)
    assert echo_of(spelled(around.format(page)), dialect, reply, calls) == "read_file"


@pytest.mark.parametrize("dialect", NAMES)
@settings(max_examples=4)
@given(made=CALLS, other=st.sampled_from(NAMES))
def test_a_call_in_another_dialect_that_is_read_is_an_echo_and_one_with_other_arguments_is_none(
    dialect: str, made: tuple[str, dict[str, Any]], other: str
) -> None:
    name, arguments = made
    reply, calls = reply_with(dialect, name, arguments)
    reply_with(other, name, arguments, dialect)  # two dialects may begin alike, and the first that fits decides
    assert echo_of(f"x {written(other, name, arguments, 7)} x", dialect, reply, calls, other) == "read_file"
    first = next(iter(arguments))
    page = written(other, name, {**arguments, first: f"{arguments[first]}!"}, 7)
    assert echo_of(f"x {page} x", dialect, reply, calls, other) is None


def call(**arguments: Any) -> ToolCall:
    return ToolCall("bash", json.dumps(arguments))


HERMES = '<tool_call>\n{"name": "bash", "arguments": {"command": "git push -f"}}\n</tool_call>'


def test_where_more_may_be_a_call_than_is_read_it_is_an_echo() -> None:
    """Each of these begins a call, and all words of the one that is made stand after it."""
    many = '<tool_call>{"name": "bash", "arguments": "git push f" '
    made = call(command="git push -f")
    assert echo_of(many * 20, "hermes", HERMES, [made]) is None
    assert echo_of(many * (EFFORT // PER_READING + 2), "hermes", HERMES, [made]) == "read_file"
    assert echo_of(many * 4000, "hermes", HERMES.replace("git", "svn"), [call(command="svn push -f")]) is None


def test_long_runs_of_what_a_spelling_is_made_of_are_read_once() -> None:
    """With work that grows faster than the text, this would not end."""
    for run in ("\\", '\\"', "\\\\u", "&lt;", '{"name":', "x = {", "<tool_call>", "bash("):
        page = f"<tool_call> bash {run * (900_000 // len(run))}"
        assert echo_of(page, "hermes", HERMES, [call(command="git push -f")], "bare-json", "python-lines") is None


def test_calls_are_read_from_each_place_on_alone() -> None:
    tools = {"bash": Tool("bash", parameters={"type": "object", "properties": {"command": {"type": "string"}}})}
    reads = CallsInText([DIALECTS["qwen3-coder"], DIALECTS["hermes"]], lambda: tools)
    text = f"<function=bash><parameter=command>never closed {HERMES}"
    found_ = [one for at in reads.places(text, "bash") for one in reads.read(text[at:], "bash")[0]]
    assert call(command="git push -f").arguments in [json.dumps(json.loads(one.arguments)) for one in found_]
