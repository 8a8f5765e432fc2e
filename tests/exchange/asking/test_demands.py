"""Requests without an equivalent in a server's API: required calls for Ollama, and a conversation without text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, ollama, pairs, responses
from tests.exchange.crossings import BY_NAME, PAIR, open_bridge
from tests.exchanges import agent, planner
from vtc.exchange import Session

CLIENTS = pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "ollama-chat"])


def demand(client: str, word: str) -> dict[str, Any]:
    """Return the field of a request that requires or forbids a call."""
    if client != "gemini-generate":
        return {"tool_choice": choice(client, word)}
    mode = {"required": "ANY", "none": "NONE"}.get(word, "ANY")
    named = {} if word in ("required", "none") else {"allowedFunctionNames": [word]}
    return {"toolConfig": {"functionCallingConfig": {"mode": mode, **named}}}


def choice(client: str, word: str) -> Any:
    if client == "anthropic-messages":
        return (
            {"type": {"required": "any"}.get(word, word)}
            if word in ("required", "none")
            else {"type": "tool", "name": word}
        )
    if word in ("required", "none"):
        return word
    named = {"name": word}
    return {"type": "function", **(named if client == "openai-responses" else {"function": named})}


@CLIENTS
@pytest.mark.parametrize(
    ("word", "tools", "instruction", "report"),
    [
        ("none", 0, "hello", "no tools offered"),
        (
            "required",
            3,
            "hello\n<system-reminder>\nCall one of the tools.\n</system-reminder>",
            "expressed in the prompt",
        ),
        ("read", 1, "hello\n<system-reminder>\nCall the tool read.\n</system-reminder>", "expressed in the prompt"),
    ],
)
def test_required_call_is_described_to_ollama(
    client: str, word: str, tools: int, instruction: str, report: str
) -> None:
    exchange = open_bridge(client, "ollama-chat", **demand(client, word))
    body = json.loads(exchange.encode_request())
    assert len(body.get("tools", ())) == tools
    assert body["messages"][-1]["content"] == instruction
    assert report in str(exchange.report.request)
    assert "tool_choice" not in body


def test_demand_does_not_change_earlier_messages() -> None:
    """It follows the results, in a separate message."""
    history = [
        messages.user("x"),
        messages.assistant(messages.call("read", "c", filePath="a")),
        messages.user([messages.result("A", "c")]),
    ]
    plain, asked = (
        json.loads(
            open_bridge("anthropic-messages", "ollama-chat", messages=history, tool_choice=one).encode_request()
        )["messages"]
        for one in (None, {"type": "any"})
    )
    assert asked[:-1] == plain
    assert asked[-1]["role"] == "user"


EMPTY = {
    "openai-chat": chat.request(messages=[]),
    "anthropic-messages": messages.request(messages=[], max_tokens=1),
    "openai-responses": responses.request(input="", max_output_tokens=1),
    "gemini-generate": gemini.request(contents=[]),
}


@PAIR
def test_a_conversation_without_a_word_is_answered(client: str, server: str) -> None:
    """Clients check this way if a server is up; Ollama's load the model."""
    bodies = [{**ollama.request(), "messages": []}] if client == "ollama-chat" else [EMPTY[client]]
    bodies += [{**EMPTY[client], "input": []}] if client == "openai-responses" else []
    for body in bodies:
        exchange = Session.open(
            BY_NAME[client], chat.encode_json(body), agent(client), planner(upstream_api=(server,)), "seed"
        )
        sent = json.loads(exchange.encode_request())
        pairs.check_request(server, sent)
        assert "Hello." in json.dumps(sent)
        assert "the request has no message" in str(exchange.report.request)
        answer = exchange.answer()
        if client == "ollama-chat":
            assert answer is not None
            assert pairs.read(client, answer[1], stream=answer[0] != "application/json") == pairs.make_content()
        else:
            assert answer is None


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, {"reasoning_effort": "xhigh"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({}, {}),
    ],
)
def test_effort_is_sent_to_a_chat_server(asked: dict[str, Any], sent: dict[str, Any]) -> None:
    body = json.loads(open_bridge("anthropic-messages", "openai-chat", **asked).encode_request())
    assert {key: one for key, one in body.items() if "reasoning" in key or "think" in key} == sent


@pytest.mark.parametrize(
    ("asked", "thinking", "config"),
    [
        ({"reasoning_effort": "high"}, {"type": "adaptive"}, {"effort": "high"}),
        ({"reasoning_effort": "none"}, {"type": "disabled"}, None),
        ({"reasoning_effort": "high", "tool_choice": "required"}, None, {"effort": "high"}),
        ({}, None, None),
    ],
)
def test_effort_is_sent_to_a_messages_server(asked: dict[str, Any], thinking: Any, config: Any) -> None:
    """This does not apply if a call is required, because the combination is an error."""
    body = json.loads(open_bridge("openai-chat", "anthropic-messages", **asked).encode_request())
    assert (body.get("thinking"), body.get("output_config")) == (thinking, config)


THINK = {"type": "enabled", "budget_tokens": 9}
TEXT = {"verbosity": "low"}
STRICT: Any = [{"type": "function", "function": {**chat.tool("read")["function"], "strict": True}}]


@pytest.mark.parametrize(
    ("client", "server", "fields", "named"),
    [
        ("ollama-chat", "openai-chat", {"options": {"num_ctx": 9, "top_k": 4}}, "options.num_ctx"),
        ("openai-chat", "openai-responses", {"tools": STRICT}, "strict of tools"),
        (
            "openai-responses",
            "openai-chat",
            {"tools": [{"type": "function", **STRICT[0]["function"]}]},
            "strict of tools",
        ),
        ("ollama-chat", "openai-responses", {"options": {"top_k": 4}}, "options.top_k"),
        ("anthropic-messages", "openai-responses", {"stop_sequences": ["X"]}, "stop_sequences"),
        (
            "anthropic-messages",
            "openai-chat",
            {"thinking": {"type": "enabled", "keep": 9}},
            "thinking.keep",
        ),
        (
            "openai-responses",
            "openai-chat",
            {"text": {"verbosity": "low"}, "reasoning": {"summary": "auto"}},
            "text.verbosity",
        ),
        ("openai-chat", "anthropic-messages", {"response_format": {"type": "json_object"}}, "JSON without a schema"),
    ],
)
def test_untranslatable_fields_are_reported(client: str, server: str, fields: dict[str, Any], named: str) -> None:
    exchange = open_bridge(client, server, **fields)
    exchange.encode_request()
    assert exchange.report.request[-1].endswith(f"API has no such field: {named}")
