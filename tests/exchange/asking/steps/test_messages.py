"""Messages of a request: the order that all servers accept, and the role `developer` by model and server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, responses
from tests.exchange.asking.applied_steps import (
    BY_NAME,
    DEVELOPER_MESSAGES,
    after,
    list_roles,
    make_context,
    make_message,
    result,
)
from tests.exchanges import AGENT, planner
from tests.known import MISSING_RESULT_TEXT
from vtc.events import CanonicalRequest, Message, Tool, ToolCall
from vtc.exchange import Session
from vtc.exchange.asking.steps import BRIDGE_STEPS, apply_steps

MODELS = (
    *("qwen2.5:7b", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3.5-9B", "qwq:32b"),
    *("zai-org/GLM-4.6", "zai-org/GLM-4.7", "granite3.3:8b", "granite4:micro", "deepseek-ai/DeepSeek-V3.1"),
    *("deepseek-r1:671b", "command-a:111b", "phi4:14b", "gemma3:27b", "mistral-small:24b", "exaone-4.0-32b"),
    "nvidia/nemotron-nano-9b-v2",
)
CALL, OTHER = ToolCall("read", "{}", "c1"), ToolCall("list", "{}", "c2")
CALL_WITHOUT_ID = ToolCall("read", "{}")


@pytest.mark.parametrize(
    ("messages", "expected"),
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
        (  # Gemini's calls of one tool, without ids
            [
                make_message("assistant", "", *[CALL_WITHOUT_ID] * 3),
                result("1", None, "read"),
                result("2", None, "read"),
            ],
            [("assistant", ""), ("tool", "1"), ("tool", "2"), ("tool", MISSING_RESULT_TEXT)],
        ),
        ([make_message("user", "x"), result("lost", "c9", "read")], [("user", "x\nResult of read:\nlost")]),
        ([make_message("user", "x"), result("lost", None)], [("user", "x\nResult:\nlost")]),
    ],
)
def test_conversation_is_reordered_for_all_servers(messages: list[Message], expected: list[tuple[str, str]]) -> None:
    assert [(one.role, one.text) for one in after(*messages)] == expected


@pytest.mark.parametrize(
    ("system", "roles"),
    [
        ("folded", [("system", "a"), ("user", "x\n<system-reminder>\nnote\n</system-reminder>"), ("assistant", "y")]),
        ("kept", [("system", "a"), ("user", "x"), ("system", "note"), ("assistant", "y")]),
        ("first", [("system", "a\n\nnote"), ("user", "x"), ("assistant", "y")]),
    ],
)
def test_system_message_moves_to_the_place_that_server_accepts(system: Any, roles: list[tuple[str, str]]) -> None:
    messages = [
        make_message("system", "a"),
        make_message("user", "x"),
        make_message("system", "note"),
        make_message("assistant", "y"),
    ]
    assert [(one.role, one.text) for one in after(*messages, **{**BRIDGE_STEPS, "system": system})] == roles


def test_demand_is_a_separate_turn_after_results() -> None:
    request = CanonicalRequest(
        model="m",
        messages=(make_message("user", "x"), make_message("assistant", "", CALL), result("1")),
        tools=(Tool("read"),),
        choice="required",
    )
    found, _ = apply_steps(request, {"choice": True, "after_results": True}, make_context())
    assert [one.role for one in found.messages] == ["user", "assistant", "tool", "assistant", "user"]


# The role `developer`


@pytest.mark.parametrize("model", MODELS)
def test_developer_role_becomes_system_if_template_lacks_it(model: str) -> None:
    assert list_roles(model) == ["system", "user"]
    body = chat.encode_json(
        responses.request(input=[responses.make_input_message("developer", "x"), *DEVELOPER_MESSAGES[1:]], model=model)
    )
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(), "seed")
    first = json.loads(exchange.encode_request())["input"][0]
    assert (first["role"], first["content"]) == ("system", [{"type": "input_text", "text": "x"}])


@pytest.mark.parametrize("model", ["gpt-5", "gpt-oss:20b", "gemma4:31b", "a-model", *MODELS])
def test_developer_role_keeps_its_bytes_for_hosted_servers_and_models_that_know_it(model: str) -> None:
    if model not in MODELS:
        assert list_roles(model) == ["developer", "user"]
    assert list_roles(model, host="api.openai.com") == ["developer", "user"]
