"""A reply that ends inside a call although its finish reason is `stop`: no partial value becomes an argument."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from tests.dialects.material import AGENT, DIALECTS, calls, content, dump_typed, raw, read
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall, UnreadCall

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
BASH = {"properties": {"command": TEXT, "timeout": NUMBER, "description": TEXT}, "required": ["command"]}
ANY = {"properties": {"a": NUMBER, "b": {"type": "object"}, "c": {"type": "array"}, "d": {"type": "boolean"}}}
TOOLS = {**AGENT, "bash": Tool("bash", "", BASH), "typed": Tool("typed", "", ANY), "now": Tool("now", "", {})}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "ls -l", "timeout": 1200}),
    ("bash", {"timeout": 1200, "command": "make all\n"}),
    ("bash", {"command": "a\n\nb\n", "timeout": 5, "description": "x y"}),
    ("typed", {"a": -12, "d": True, "b": {"x": [10, 20]}, "c": [{"y": 1}, "z"]}),
]


def begins(part: Any, whole: Any) -> bool:
    """Return True if a value is the beginning of another: some of its entries, or the first of its items."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return bool(part) and all(key in whole and begins(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return bool(part) and len(part) <= len(whole) and all(map(begins, part, whole))
    return dump_typed(part) == dump_typed(whole)


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=[str(at) for at in range(len(CALLS))])
def test_a_call_that_the_reply_ends_in_has_no_half_of_a_value(name: str, tool: str, arguments: dict[str, Any]) -> None:
    text = write_calls([ToolCall(tool, json.dumps(arguments))], DIALECTS[name], TOOLS)
    for end in range(1, len(text)):
        events = read([text[:end]], [DIALECTS[name]], TOOLS)
        assert raw(events) == text[:end]
        assert all(made == tool and begins(some, arguments) for made, some in calls(events)), text[:end]


CLOSERS = {
    "hermes": "</tool_call>",
    "function-tag": "</function>",
    "nemotron": "]</TOOLCALL>",
    "plamo": "<|plamo:end_tool_arguments:plamo|>",
    "qwen3-coder": "</function>",
    "invoke": "</invoke>",
    "glm-4.5": "</tool_call>",
    "tag": "</bash>",
}
"""The end of the body of a call."""


@pytest.mark.parametrize("after", ["", "\n"])
@pytest.mark.parametrize("name", CLOSERS)
def test_the_beginning_of_a_closing_tag_at_the_end_of_a_reply_ends_its_call(name: str, after: str) -> None:
    """This includes the beginning of its name alone, after a complete value."""
    text = write_calls([ToolCall("bash", '{"command": "ls"}')], DIALECTS[name], AGENT)
    closer = CLOSERS[name]
    whole, _, _ = text.partition(closer)
    for missing, stump in itertools.product(("", "}"), (closer.strip("</>")[:3], closer[:5])):
        for between in ("", "\n"):
            begun = whole.rstrip().removesuffix(missing) + between + stump + after
            called = calls(read([begun], [DIALECTS[name]], AGENT))
            assert called == [("bash", {"command": "ls"})], begun


def test_the_beginning_of_a_name_is_no_beginning_of_a_closing_tag() -> None:
    for end in (",too", ": too", "{too", "t", "to"):
        text = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"' + end
        assert calls(read([text], [DIALECTS["hermes"]], AGENT)) == [], end


JSON = [
    name for name, one in DIALECTS.items() if not one.params and "kwargs" not in one.calls[0] and one.codec == "json"
]


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    "cut", ['"timeout": 1200', '"timeout": ', '"timeout":', '"timeout"', '"time', '"', '"ls", ', '"ls",']
)
def test_json_that_ends_within_a_number_or_a_name_is_no_call(name: str, cut: str) -> None:
    """The same applies to JSON that ends where a name or a value must follow."""
    call = ToolCall("bash", '{"command": "ls", "timeout": 1200}')
    text = write_calls([call], DIALECTS[name], TOOLS).replace("'", '"').partition('"timeout"')[0]
    text = text.rstrip(" ,") + (cut.removeprefix('"ls"') if '"ls"' in cut else f", {cut}")
    for chunks in ([text], text):
        events = read(chunks, [DIALECTS[name]], TOOLS)
        assert (calls(events), content(events)) == ([], text)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("tool", ["typed", "now"])
def test_arguments_of_which_only_the_bracket_was_written_are_no_arguments(name: str, tool: str) -> None:
    text = write_calls([ToolCall(tool, "{}")], DIALECTS[name], TOOLS)
    cut = text[: text.rindex("{}") + 1]
    for chunks in ([cut], cut):
        assert calls(read(chunks, [DIALECTS[name]], TOOLS)) == []


@pytest.mark.parametrize("name", [name for name, one in DIALECTS.items() if "params" in one.calls[0]])
def test_possible_beginning_of_another_parameter_ends_no_call(name: str) -> None:
    text = write_calls([ToolCall("bash", '{"command": "ls", "timeout": 5}')], DIALECTS[name], TOOLS)
    opener = DIALECTS[name].params[0].partition("{")[0].strip()
    start = text.rindex(opener, 0, text.index("5", text.index("timeout")))
    for end in range(start + 1, start + len(opener)):
        assert calls(read([text[:end]], [DIALECTS[name]], TOOLS)) == [], text[:end]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("<parameter=command>\nmake all\n</param", {"command": "make all"}),
        ("<parameter=command>\nmake all\n\n</param", {"command": "make all\n"}),
        ("<parameter=command>\nmake all \n</param", {"command": "make all "}),
        ("<parameter=command>make all\n\n</other>", {"command": "make all\n"}),
    ],
)
def test_a_value_before_a_garbled_closing_tag_keeps_its_white_space(text: str, made: dict[str, str]) -> None:
    events = read([f"<tool_call>\n<function=bash>\n{text}"], [DIALECTS["qwen3-coder"]], TOOLS)
    assert calls(events) == [("bash", made)]


@pytest.mark.parametrize("name", ["glm-4.5", "invoke"])
def test_value_keeps_its_last_line_break_if_the_dialect_writes_none(name: str) -> None:
    text = write_calls([ToolCall("bash", '{"command": "make all\\n"}')], DIALECTS[name], TOOLS)
    end = re.search(r"make all\n</\w{3}", text)
    assert end
    assert calls(read([text[: end.end()]], [DIALECTS[name]], TOOLS)) == [("bash", {"command": "make all\n"})]


@pytest.mark.parametrize("end", ["", "}", "}}", "</tool", "}</tool_call>"])
def test_json_that_ends_after_a_whole_value_may_lack_its_end(end: str) -> None:
    text = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"' + end
    assert calls(read([text], [DIALECTS["hermes"]], AGENT)) == [("bash", {"command": "ls"})]


def test_report_contains_the_truncation() -> None:
    events = read(['<tool_call>\n{"name": "bash", "arguments": {"command": "ls", "timeout": 1'], [DIALECTS["hermes"]])
    assert [one.reason for one in events if isinstance(one, UnreadCall)] == ["the reply ends inside it"]
