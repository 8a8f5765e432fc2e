"""Budgets for thinking, and whether the client shows thoughts, on servers of other APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exchange.crossings import open_bridge


def send(client: str, server: str, **fields: Any) -> Any:
    return json.loads(open_bridge(client, server, **fields).encode_request())


def enable_thinking(budget: int, **fields: Any) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, **fields}


def configure_thinking(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": fields}}


@pytest.mark.parametrize(("budget", "expected"), [(1024, 1024), (4000, 4000), (31999, 24576)])
def test_budget_of_messages_is_a_number_for_gemini(budget: int, expected: int) -> None:
    sent = send("anthropic-messages", "gemini-generate", **enable_thinking(budget, max_tokens=64000))
    assert sent["generationConfig"]["thinkingConfig"] == {"includeThoughts": True, "thinkingBudget": expected}


@pytest.mark.parametrize(
    ("budget", "max_tokens", "expected"),
    [
        (4000, None, {"type": "enabled", "budget_tokens": 4000}),
        (128, None, {"type": "enabled", "budget_tokens": 1024}),
        (40000, None, {"type": "enabled", "budget_tokens": 31999}),
        (4000, 3000, {"type": "enabled", "budget_tokens": 2999}),
        (4000, 1024, {"type": "adaptive"}),
        (-1, None, {"type": "adaptive"}),
        (0, None, {"type": "disabled"}),
    ],
)
def test_budget_of_gemini_is_a_number_for_messages(
    budget: int, max_tokens: int | None, expected: dict[str, Any]
) -> None:
    limit = {"maxOutputTokens": max_tokens} if max_tokens else {}
    config = {"thinkingConfig": {"thinkingBudget": budget}, **limit}
    sent = send("gemini-generate", "anthropic-messages", generationConfig=config)
    assert sent["thinking"] == expected
    budget_tokens = sent["thinking"].get("budget_tokens")
    assert budget_tokens is None or (
        "effort" not in sent.get("output_config", {}) and budget_tokens < sent["max_tokens"]
    )


@pytest.mark.parametrize(
    ("budget", "effort"),
    [(512, "minimal"), (1024, "low"), (1025, "medium"), (8192, "medium"), (8193, "high"), (31999, "high")],
)
@pytest.mark.parametrize("client", ["anthropic-messages", "gemini-generate"])
def test_budget_is_an_effort_for_other_servers(client: str, budget: int, effort: str) -> None:
    is_messages = client == "anthropic-messages"
    fields = enable_thinking(budget) if is_messages else configure_thinking(thinkingBudget=budget)
    assert send(client, "openai-chat", **fields)["reasoning_effort"] == effort
    assert send(client, "openai-responses", **fields)["reasoning"]["effort"] == effort
    assert send(client, "ollama-chat", **fields)["think"] == ("low" if effort == "minimal" else effort)


def test_effort_in_words_counts_for_servers_without_budgets() -> None:
    fields = enable_thinking(1024, output_config={"effort": "high"})
    assert send("anthropic-messages", "openai-chat", **fields)["reasoning_effort"] == "high"


SHOWING = [
    ("anthropic-messages", {"thinking": {"type": "adaptive"}}, None),
    ("anthropic-messages", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "high"),
    ("anthropic-messages", enable_thinking(4000), "medium"),
    ("gemini-generate", configure_thinking(includeThoughts=True), None),
    ("gemini-generate", configure_thinking(includeThoughts=True, thinkingBudget=1000), "low"),
    ("ollama-chat", {"think": True}, None),
    ("ollama-chat", {"think": "high"}, "high"),
]
NOT_SHOWING = [
    ("anthropic-messages", {}),
    ("anthropic-messages", {"thinking": {"type": "disabled"}}),
    ("anthropic-messages", {"thinking": {"type": "adaptive", "display": "omitted"}}),
    ("gemini-generate", configure_thinking(thinkingBudget=1000)),
    ("gemini-generate", configure_thinking(includeThoughts=True, thinkingBudget=0)),
    ("ollama-chat", {"think": False}),
    ("openai-chat", {"reasoning_effort": "high"}),
]


@pytest.mark.parametrize(("client", "fields", "effort"), SHOWING)
def test_summaries_are_requested_if_the_client_shows_thoughts(
    client: str, fields: dict[str, Any], effort: str | None
) -> None:
    sent = send(client, "openai-responses", **fields)
    assert sent["reasoning"] == {**({"effort": effort} if effort else {}), "summary": "auto"}
    assert sent["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(("client", "fields"), NOT_SHOWING)
def test_no_summaries_are_requested_of_other_clients(client: str, fields: dict[str, Any]) -> None:
    assert "summary" not in send(client, "openai-responses", **fields).get("reasoning", {})


@pytest.mark.parametrize(
    "message",
    [
        "Your organization must be verified to generate reasoning summaries. Please go to: "
        "https://platform.openai.com/settings/organization/general and click on Verify Organization.",
        "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
    ],
)
def test_summaries_that_a_server_rejects_are_not_requested_again(message: str) -> None:
    exchange = open_bridge("anthropic-messages", "openai-responses", thinking={"type": "adaptive"})
    exchange.encode_request()
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "reasoning.summary",
        "code": "unsupported_value",
    }
    again = exchange.encode_after_rejection(json.dumps({"error": error}).encode(), 400)
    assert again
    assert "summary" not in json.loads(again).get("reasoning", {})
