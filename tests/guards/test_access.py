"""Allowed and denied tools."""

from __future__ import annotations

import pytest

from tests.guards.policies import build_policies
from vtc.events import Call, Denied, Intervention, Text, Tool, ToolCall

TOOLS = {"bash": Tool("bash"), "read": Tool("read")}


@pytest.mark.parametrize(
    ("allowed", "denied", "policy"),
    [
        ("*", (), None),
        ("*", "ba*", "denied_tools"),
        (("read", "bash"), (), None),
        ("read", (), "allowed_tools"),
        ("bash", "bash", "denied_tools"),
    ],
)
def test_a_call_that_may_not_be_made_is_refused(allowed: str, denied: str, policy: str | None) -> None:
    call = Call("<bash>", ToolCall("bash", "{}"), "tag")
    lists = {"allowed_tools": allowed, **({"denied_tools": denied} if denied else {})}
    events = build_policies(TOOLS, **lists, on_denied="steer").feed(call)
    if policy is None:
        assert events == [call]
        return
    intervention, refused = events
    assert isinstance(intervention, Intervention)
    assert (intervention.policy, intervention.action, intervention.tool) == (policy, "refused", "bash")
    assert refused == Denied(
        "<bash>", call.call, "steer", "The tool `bash` may not be used here, so the call was not carried out."
    )


def test_the_message_is_the_users_own_and_all_else_passes() -> None:
    access = build_policies(TOOLS, allowed_tools="read", on_denied="drop", denied_message="No.")
    assert access.feed(Text("bash")) == [Text("bash")]
    assert access.feed(Call("", ToolCall("bash", "{}"), "tag"))[1] == Denied("", ToolCall("bash", "{}"), "drop", "No.")
    assert access.finish() == []
