"""Guards in a chain."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.events import Call, Denied, Event, Intervention, Markup, OnFailure, Reasoning, Rewritten, Text, Tool, ToolCall
from vtc.guards import GuardChain, Guards, build_chain, build_content_chain

TOOLS = {"read": Tool("read"), "bash": Tool("bash", "", {"required": ["command"]})}
READ, BASH = (Call(f"<{name}>", ToolCall(name, "{}"), "tag") for name in ("read", "bash"))


def make_guards(**fields: Any) -> Guards:
    return msgspec.convert(fields, Guards)


def feed_all(one: GuardChain, *events: Event) -> list[Event]:
    return [*(out for event in events for out in one.feed(event)), *one.finish()]


def test_no_guards_change_nothing() -> None:
    events = [Text("a"), READ, Markup("b"), Reasoning("c")]
    assert feed_all(build_chain([], TOOLS), *events) == events
    assert feed_all(build_chain([Guards()], TOOLS), *events) == events
    assert feed_all(build_content_chain([]), *events) == events


def test_reactors_precede_access_in_any_order_of_profiles() -> None:
    denying = make_guards(denied_tools=["bash"])
    renaming = make_guards(reactors=[{"name": "r", "when": {"tools": "read"}, "then": {"rename_tool": "bash"}}])
    for configured in ([denying, renaming], [renaming, denying]):
        events = feed_all(build_chain(configured, TOOLS), READ)
        assert isinstance(events[-1], Denied)
        assert [event.policy for event in events if isinstance(event, Intervention)] == ["reactors.r", "denied_tools"]


def test_one_profile_may_deny_a_tool_that_another_allows() -> None:
    one = build_chain(
        [make_guards(allowed_tools=["read", "bash"]), make_guards(denied_tools="bash"), make_guards(arguments={})],
        TOOLS,
    )
    assert feed_all(one, READ) == [READ]
    assert isinstance(feed_all(one, BASH)[-1], Denied)


class Failing:
    """Buffers text; raises at the word `fail`, or at the end."""

    reads_text = True
    on_failure: OnFailure = "refuse"

    def __init__(self, at_end: bool = False) -> None:
        self.held = ""
        self._at_end = at_end

    def feed(self, event: Event) -> list[Event]:
        if event.raw == "fail":
            raise KeyError("oops")
        self.held += event.raw
        return []

    def finish(self) -> list[Event]:
        if self._at_end:
            raise KeyError("oops")
        return [Text(self.held)]


class Replacing(Failing):
    """Replaces a text that ends with `x` by `y`."""

    def feed(self, event: Event) -> list[Event]:
        return [Rewritten(event.raw, "y") if event.raw.endswith("x") else event]

    def finish(self) -> list[Event]:
        return []


FAILED = Intervention("failing", "failed", "", "it fails on this text and is skipped: KeyError", "'oops'")
REFUSED = Intervention("failing", "refused", "bash", "it fails on this call, so the call is denied: KeyError", "'oops'")


def test_guard_that_raises_on_a_text_lets_it_pass_and_continues() -> None:
    one = GuardChain([Failing(), Replacing()])
    assert [out for text in ("a", "fail", "b") for out in one.feed(Text(text))] == [FAILED, Text("a"), Text("fail")]
    assert feed_all(one, Text("x")) == [Rewritten("bx", "y")]


def test_a_guard_that_raises_on_a_call_refuses_it_and_the_next_one() -> None:
    failing = Call("fail", BASH.call, "tag")
    one = GuardChain([Failing()])
    for _ in range(2):
        intervention, denied = one.feed(failing)
        assert (intervention, type(denied), denied.raw) == (REFUSED, Denied, "fail")


def test_a_guard_that_may_fail_lets_the_call_pass() -> None:
    lax = Failing()
    lax.on_failure = "pass"
    assert GuardChain([lax]).feed(failing := Call("fail", BASH.call, "tag"))[1:] == [failing]


def test_guard_that_raises_at_the_end_returns_its_buffered_text() -> None:
    one = GuardChain([Failing(at_end=True)])
    assert feed_all(one, Text("a"), Text("b")) == [FAILED, Text("ab")]
    assert one.finish() == [FAILED]


CONFIGURED = [
    make_guards(denied_tools="bash", on_denied="steer"),
    make_guards(content=[{"pattern": "a+", "replacement": "b"}, {"pattern": "bc"}]),
    make_guards(arguments={"misfit": "text"}),
    make_guards(reactors=[{"name": "r", "when": {"tools": "read"}, "then": {"steer": "s", "rename_tool": "bash"}}]),
]
EVENTS = st.one_of(
    st.text("abc ", min_size=1, max_size=6).map(Text),
    st.sampled_from([READ, BASH, Markup(" "), Reasoning("abc"), Rewritten("x", "a")]),
)


@given(st.lists(st.sampled_from(range(len(CONFIGURED))), unique=True), st.lists(EVENTS, max_size=12))
def test_no_character_is_lost_or_moved(configured: list[int], events: list[Event]) -> None:
    """Guards never reorder: the events denote the same characters in the same order."""
    policies = [CONFIGURED[index] for index in configured]
    rules = [rule for policy in policies for rule in policy.content]
    out = feed_all(build_content_chain(rules), *feed_all(build_chain(policies, TOOLS), *events))
    assert "".join(event.raw for event in out) == "".join(event.raw for event in events)


@pytest.mark.parametrize(
    ("fields", "restricts_tools", "checks_calls"),
    [
        ({}, False, False),
        ({"allowed_tools": "*"}, False, False),
        ({"allowed_tools": ["*"], "content": [{"pattern": "x"}], "loop": {}}, False, False),
        ({"allowed_tools": ["a"]}, True, True),
        ({"denied_tools": "a"}, True, True),
        ({"arguments": {}}, False, True),
        ({"reactors": [{"name": "r", "then": {"tag": "t"}}]}, False, True),
    ],
)
def test_events_that_guards_inspect(fields: Any, restricts_tools: bool, checks_calls: bool) -> None:
    found = make_guards(**fields)
    assert (found.restricts_tools, found.checks_calls) == (restricts_tools, checks_calls)
