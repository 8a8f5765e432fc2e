"""Cases: a serialized case can be parsed, and its reply is read as it says."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.dialects.material import DIALECTS
from vtc.events import Tool
from vtc.profiles import ReadingPlan, Thinking
from vtc.reporting import Case, parse_cases, serialize_case

READ = Tool("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
PLAN = ReadingPlan(dialects=(DIALECTS["hermes"], DIALECTS["tag"]), tools={"read": READ})
TAGS = (("<think>", "</think>"),)
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


def record_and_parse(text: str, plan: ReadingPlan = PLAN, *, complete: bool = True, secrets: Any = ()) -> Case:
    """Record a case, serialize it and parse it again."""
    (found,) = parse_cases(serialize_case(Case.record("it", text, plan, complete=complete, secrets=secrets)))
    return found


def list_differences(one: Case) -> list[str]:
    dialects = [DIALECTS[name] for name in one.dialects]
    return one.list_differences(one.read_events([one.text], dialects, one.resolve_tools()))


@pytest.mark.parametrize(
    ("text", "plan", "complete", "fields"),
    [
        (f"I look.\n{CALL}", PLAN, True, {"calls": ({"read": {"path": "a"}},), "content": "I look."}),
        (CALL[:-12], PLAN, True, {"repairs": ("missing-closer",)}),
        (CALL[:-12], replace(PLAN, lenient=False), True, {"reader": {"lenient": False}, "content": CALL[:-12]}),
        (CALL[:-14], PLAN, False, {"finish": "length", "calls": ()}),
        (CALL.replace("read", "rm"), PLAN, True, {"refusals": ("no tool 'rm' is offered; offered: read",)}),
        (
            f"<think>Well.</think>{CALL}",
            replace(PLAN, thinking=Thinking(TAGS)),
            True,
            {"reasoning": "Well.", "tags": TAGS},
        ),
        (
            f"Well.</think>{CALL}",
            replace(PLAN, thinking=Thinking(TAGS, "drop", may_begin_inside=True, begins_inside=True)),
            True,
            {"reader": {"think": "drop", "begins": "reasoning"}, "content": ""},
        ),
        (
            f"Well.</think>{CALL}",
            replace(PLAN, thinking=Thinking(TAGS, "drop", begins_inside=True, may_show=True)),
            True,
            {"reader": {"think": "drop", "begins": "reasoning"}, "content": ""},
        ),
        (
            f"{CALL}<|im_end|>",
            replace(PLAN, markers=("<|im_end|>",)),
            True,
            {"markers": ("<|im_end|>",), "content": ""},
        ),
        ("line\n\n  indented \t\u2028 'x' \"y\": - #\n", PLAN, True, {}),
        ("", PLAN, True, {}),
    ],
)
def test_recorded_case_is_read_as_expected(
    text: str, plan: ReadingPlan, complete: bool, fields: dict[str, Any]
) -> None:
    found = record_and_parse(text, plan, complete=complete)
    assert (found.text, found.dialects) == (text, ("hermes", "tag"))
    assert list_differences(found) == []
    assert {key: getattr(found, key) for key in fields} == fields


def test_secrets_are_in_no_case() -> None:
    text = CALL.replace('"a"', "\"curl -H 'Authorization: Bearer abcdefgh12' open-sesame\"")
    written = serialize_case(Case.record("it", text, PLAN, complete=True, secrets=["open-sesame"]))
    assert "abcdefgh" not in written
    assert "open-sesame" not in written
    assert list_differences(record_and_parse(text, secrets=["open-sesame"])) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"calls": ({"read": {"path": 1}},)}, 'calls: [{"read": {"path": "a"}}], not [{"read": {"path": 1}}]'),
        ({"content": "x"}, 'content: "I look.", not "x"'),
        ({"reasoning": "x"}, 'reasoning: "", not "x"'),
        ({"repairs": ("json-cut",)}, 'repairs: [], not ["json-cut"]'),
        ({"refusals": ("no tool",)}, 'refusals: [], not ["no tool"]'),
    ],
)
def test_different_result_is_reported(changed: dict[str, Any], line: str) -> None:
    found = record_and_parse(f"I look.\n{CALL}")
    for key, value in changed.items():
        setattr(found, key, value)
    assert list_differences(found) == [line]


def test_part_of_a_refusal_will_do() -> None:
    found = record_and_parse(CALL.replace("read", "rm"))
    found.refusals = ("no tool",)
    assert list_differences(found) == []


@pytest.mark.parametrize(
    "text", ["a: b", "- {name: x}", "- {name: x, text: y, calls: 5}", "- {name: x, text: y, z: 1}", "[", "x"]
)
def test_other_file_is_no_file_of_cases(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of cases"):
        parse_cases(text)


def test_a_set_of_tools_that_nobody_shares() -> None:
    with pytest.raises(ValueError, match="unknown tool set 'agent'"):
        Case(name="x", text="y").resolve_tools()
