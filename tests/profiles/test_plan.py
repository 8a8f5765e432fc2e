"""What a plan says about the reply: whether it need be read at all, and by which policies."""

from __future__ import annotations

import pytest

from vtc.events import Tool
from vtc.guards import Guards, Rule
from vtc.profiles import Plan, ReadingPlan, ReplyPlan, builtin_directory, load

READS = ReadingPlan(dialects=(load([builtin_directory()]).dialects["tag"],))
TOOLS = (Tool("read"),)
CHECKING_TEXT = ReplyPlan(guards=(Guards(), Guards(content=(Rule(pattern="x"),))))
CHECKING_CALLS = ReplyPlan(guards=(Guards(denied_tools="read"),))


@pytest.mark.parametrize(
    ("plan", "may"),
    [
        (Plan("c", "m"), False),
        (Plan("c", "m", tools=TOOLS), False),
        (Plan("c", "m", reading=READS), False),
        (Plan("c", "m", tools=TOOLS, reading=READS), True),
        (Plan("c", "m", reply=CHECKING_TEXT), True),
        (Plan("c", "m", reply=CHECKING_CALLS), True),
        (Plan("c", "m", reply=ReplyPlan(drop=frozenset({"usage"}))), True),
        (Plan("c", "m", reply=ReplyPlan(buffered=True)), True),
    ],
)
def test_a_reply_is_read_if_a_part_of_the_plan_can_change_it(plan: Plan, may: bool) -> None:
    assert plan.may_change_reply is may


def test_policies_check_calls_or_text() -> None:
    assert (ReplyPlan().checks_calls, ReplyPlan().checks_text) == (False, False)
    assert (CHECKING_TEXT.checks_calls, CHECKING_TEXT.checks_text) == (False, True)
    assert (CHECKING_CALLS.checks_calls, CHECKING_CALLS.checks_text) == (True, False)
