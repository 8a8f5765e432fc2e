"""A plan's decision if the reply must be read, and by which policies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from vtc.events import Tool
from vtc.profiles import Plan, PolicyProfile, ProfileStack, ReadingPlan, ToolProtocol, builtin_directory, load_profiles

READS = ReadingPlan(dialects=(load_profiles([builtin_directory()]).dialects["tag"],))
TOOLS = ToolProtocol(tools=(Tool("read"),))


def with_policy(**keys: Any) -> Plan:
    policy = msgspec.convert({"name": "mine", "match": {}, **keys}, PolicyProfile)
    return Plan(stack=ProfileStack(policies=(policy,)))


CHECKING_TEXT = with_policy(guards={"content": [{"pattern": "x"}]})
CHECKING_CALLS = with_policy(guards={"denied_tools": "read"})


@pytest.mark.parametrize(
    ("plan", "may"),
    [
        (Plan(), False),
        (Plan(protocol=TOOLS), False),
        (Plan(reading=READS), False),
        (Plan(protocol=TOOLS, reading=READS), True),
        (CHECKING_TEXT, True),
        (CHECKING_CALLS, True),
        (with_policy(response={"drop": ["usage"]}), True),
        (Plan(buffered=True), True),
    ],
)
def test_a_reply_is_read_if_a_part_of_the_plan_can_change_it(plan: Plan, may: bool) -> None:
    assert plan.may_change_reply is may


def test_policies_check_calls_or_text() -> None:
    assert (Plan().checks_calls, Plan().checks_text) == (False, False)
    assert (CHECKING_TEXT.checks_calls, CHECKING_TEXT.checks_text) == (False, True)
    assert (CHECKING_CALLS.checks_calls, CHECKING_CALLS.checks_text) == (True, False)
