"""One choice of a reply: limits, ids, calls inside reasoning."""

from __future__ import annotations

import pytest

from vtc.dialects import Reader, compile_grammar
from vtc.events import Call, Event, Markup, Reasoning, Text, Tool
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.exchange.replying.stages import Ids
from vtc.exchange.replying.text_reading import ReasoningCalls, TextReading
from vtc.guards import Guards, build_chain
from vtc.profiles import Match, Plan, PolicyProfile, ProfileStack, ToolProtocol, builtin_directory, load_profiles
from vtc.profiles.schema import ReasoningTags as Think
from vtc.reporting import Report

DIALECTS = load_profiles([builtin_directory()]).dialects
TOOLS = {"read": Tool("read", "", {"type": "object", "properties": {"path": {"type": "string"}}})}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


def with_guards(guards: Guards) -> ProfileStack:
    return ProfileStack(policies=(PolicyProfile(name="mine", match=Match(), guards=guards),))


def pipeline(plan: Plan, think: Think | None = None) -> tuple[ReplyPipeline, Report]:
    report = Report()
    read = (DIALECTS["hermes"],)
    tags = ((think.open, think.close),) if think else ()
    guards = build_chain(plan.stack.guards, TOOLS) if plan.stack.guards else None
    ids = Ids("seed", ())
    text = TextReading(
        reader=Reader(compile_grammar(read, tags), TOOLS),
        reasoning=ReasoningCalls(Reader(compile_grammar(read), TOOLS)),
    )
    return ReplyPipeline(plan, TOOLS, text, ids, report, guards), report


def whole(plan: Plan, text: str, think: Think | None = None) -> tuple[list[Event], Report]:
    one, report = pipeline(plan, think)
    return [*one.feed(text), *one.finish(complete=True)], report


def test_calls_are_numbered_and_reported() -> None:
    events, report = whole(Plan(), f"Hi.\n{CALL}\n{CALL}")
    ids = [event.call.id for event in events if isinstance(event, Call)]
    assert len({*ids}) == 2
    assert [call["id"] for call in report.calls] == ids
    assert [(call["name"], call["dialect"]) for call in report.calls] == [("read", "hermes")] * 2


def test_more_calls_than_the_limit_are_dropped_and_reported() -> None:
    events, report = whole(Plan(protocol=ToolProtocol(max_calls=1)), f"{CALL}\n{CALL}")
    assert [type(event) for event in events] == [Call, Markup]
    assert "".join(event.raw for event in events) == f"{CALL}\n{CALL}"
    assert [(one["policy"], one["action"], one["tool"], one["reason"]) for one in report.policies] == [
        ("max_calls", "dropped", "read", "only 1 call a reply")
    ]
    assert not report.refusals  # no text was refused


@pytest.mark.parametrize(("allowed", "found"), [(("*",), 1), (("RE*",), 1), (("write", "bash"), 0), ((), 0)])
def test_allow_list_restricts_lifted_calls(allowed: tuple[str, ...], found: int) -> None:
    """The call of another tool stays text, and the report states the reason."""
    events, report = whole(Plan(stack=with_guards(Guards(allowed_tools=allowed))), f"Hi.\n{CALL}")
    assert sum(isinstance(event, Call) for event in events) == found
    assert "".join(event.raw for event in events) == f"Hi.\n{CALL}"
    assert [(entry["policy"], entry["tool"]) for entry in report.policies] == (
        [] if found else [("allowed_tools", "read")]
    )
    assert found or all(isinstance(event, Text) for event in events)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"<think>so {CALL}", 1),
        (f"<think>so\n{CALL}\n{CALL}\n", 2),
        (f"<think>so {CALL}</think>", 1),
        (f"<think>so {CALL} as said</think>", 0),
        (f"<think>so {CALL} as said", 0),
        (f"<think>so {CALL}</think>Hi.", 0),
        (f"<think>so {CALL}</think>{CALL}", 1),
        ("<think>so</think>Hi.", 0),
    ],
)
def test_call_at_the_end_of_reasoning_counts_if_there_is_no_other_text(text: str, found: int) -> None:
    events, report = whole(Plan(), text, Think())
    assert sum(isinstance(event, Call) for event in events) == found
    assert "".join(event.raw for event in events) == text
    assert all(isinstance(event, Call | Reasoning | Text | Markup) for event in events)
    if found and "</think><" not in text:
        assert report.calls[0]["repairs"] == ["call-in-reasoning"]
