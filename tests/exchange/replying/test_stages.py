"""The limit on calls: which are sent, which stay text, and which are dropped."""

from __future__ import annotations

import pytest

from vtc.events import NATIVE, Call, Event, Intervention, Markup, Text, ToolCall, UnreadCall
from vtc.exchange.replying.stages import Limit
from vtc.profiles import Plan, ReadingPlan, ToolProtocol


def apply_limit(plan: Plan, *names: str, dialect: str = "hermes") -> list[Event]:
    limit = Limit(plan, ["read"])
    calls = [Call(name, ToolCall(name, "{}"), dialect) for name in names]
    return [out for call in calls for out in limit.feed(call)]


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        (Plan(reading=ReadingPlan(unknown_tools="allow")), Call),
        (Plan(reading=ReadingPlan(unknown_tools="text")), Text),
        (Plan(reading=ReadingPlan(unknown_tools="drop")), Markup),
        (Plan(reading=ReadingPlan(unknown_tools="allow"), unoffered=frozenset({"rm"})), Text),
        (Plan(reading=ReadingPlan(unknown_tools="allow"), unoffered=frozenset({"Rm"})), Text),
    ],
)
def test_a_call_of_a_tool_that_is_not_offered(plan: Plan, kind: type) -> None:
    *interventions, last = apply_limit(plan, "rm")
    assert isinstance(last, kind)
    assert last.raw == "rm"
    assert [type(one) for one in interventions] == ([] if kind is Call else [UnreadCall])


def test_the_server_s_own_call_of_a_tool_that_is_not_offered_passes() -> None:
    (call,) = apply_limit(Plan(unoffered=frozenset({"rm"})), "rm", dialect=NATIVE)
    assert isinstance(call, Call)


def test_calls_beyond_the_limit_are_dropped_and_reported() -> None:
    first, intervention, left_out = apply_limit(Plan(protocol=ToolProtocol(max_calls=1)), "read", "read")
    assert isinstance(first, Call)
    assert isinstance(intervention, Intervention)
    assert left_out == Markup("read")
