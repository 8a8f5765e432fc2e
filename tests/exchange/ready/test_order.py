"""The order in which all servers accept a conversation, as the steps for a bridge produce it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.exchange.ready.steps import after, make_context, make_message, result
from tests.known import MISSING_RESULT_TEXT
from vtc.events import CanonicalRequest, Message, Tool, ToolCall
from vtc.exchange.asking.steps import BRIDGE_STEPS, apply_steps

CALL, OTHER = ToolCall("read", "{}", "c1"), ToolCall("list", "{}", "c2")


@pytest.mark.parametrize(
    ("came", "went"),
    [
        (
            [make_message("system", "a"), make_message("system", "b"), make_message("user", "x")],
            [("system", "a\n\nb"), ("user", "x")],
        ),
        (
            [make_message("user", "x"), make_message("system", "note"), make_message("assistant", "y")],
            [("user", "x\n<system-reminder>\nnote\n</system-reminder>"), ("assistant", "y")],
        ),
        ([make_message("user", "x"), make_message("user", "y")], [("user", "x\ny")]),
        ([make_message("assistant"), make_message("user", "x"), make_message("user")], [("user", "x")]),
        (
            [make_message("assistant", "", CALL, OTHER), result("2", "c2"), make_message("user", "x"), result("1")],
            [("assistant", ""), ("tool", "1"), ("tool", "2"), ("user", "x")],
        ),
        (
            [make_message("assistant", "", CALL), make_message("user", "x")],
            [("assistant", ""), ("tool", MISSING_RESULT_TEXT), ("user", "x")],
        ),
        (
            [make_message("assistant", "", CALL), result("1"), result("1"), result("2"), make_message("user", "x")],
            [("assistant", ""), ("tool", "1"), ("user", "Result:\n2\nx")],
        ),
        (
            [
                make_message("assistant", "a", CALL),
                make_message("assistant", "b", OTHER),
                result("1"),
                result("2", "c2"),
            ],
            [("assistant", "a\nb"), ("tool", "1"), ("tool", "2")],
        ),
        ([make_message("user", "x"), result("lost", "c9", "read")], [("user", "x\nResult of read:\nlost")]),
        ([make_message("user", "x"), result("lost", None)], [("user", "x\nResult:\nlost")]),
    ],
)
def test_a_conversation_is_put_in_order(came: list[Message], went: list[tuple[str, str]]) -> None:
    assert [(one.role, one.text) for one in after(*came)] == went


@pytest.mark.parametrize(
    ("system", "roles"),
    [
        ("folded", [("system", "a"), ("user", "x\n<system-reminder>\nnote\n</system-reminder>"), ("assistant", "y")]),
        ("kept", [("system", "a"), ("user", "x"), ("system", "note"), ("assistant", "y")]),
        ("first", [("system", "a\n\nnote"), ("user", "x"), ("assistant", "y")]),
    ],
)
def test_where_a_system_message_goes_is_what_the_server_wants(system: Any, roles: list[tuple[str, str]]) -> None:
    came = [
        make_message("system", "a"),
        make_message("user", "x"),
        make_message("system", "note"),
        make_message("assistant", "y"),
    ]
    assert [(one.role, one.text) for one in after(*came, **{**BRIDGE_STEPS, "system": system})] == roles


def test_a_demand_is_said_apart_from_results() -> None:
    asked = CanonicalRequest(
        model="m",
        messages=(make_message("user", "x"), make_message("assistant", "", CALL), result("1")),
        tools=(Tool("read"),),
        choice="required",
    )
    found, _ = apply_steps(asked, {"choice": True, "after_results": True}, make_context())
    assert [one.role for one in found.messages] == ["user", "assistant", "tool", "assistant", "user"]
