"""Cache marks (`cache_control`) on a bridge: which ones cross, to which servers, and when VTC adds some."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.apis import chat, messages, responses
from tests.apis.shapes import make_request_body
from tests.exchange.crossings import BY_NAME
from tests.exchanges import agent, planner
from vtc.exchange import Session

type Json = dict[str, Any]

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def send(client: str, server: str, host: str, **fields: Any) -> tuple[Json, list[str]]:
    """Send a request over a bridge; return the body that the server gets, and the lines of the report."""
    facts = replace(agent(client), host=host)
    session = Session.open(
        BY_NAME[client], make_request_body(client, **fields), facts, planner(upstream_api=(server,)), "seed"
    )
    return json.loads(session.encode_request()), session.report.request


def find_marks(value: Any, path: str = "") -> dict[str, Any]:
    """Return all cache marks in a body, by dotted path."""
    if isinstance(value, list):
        value = {str(place): part for place, part in enumerate(value)}
    if not isinstance(value, dict):
        return {}
    found = {path: value["cache_control"]} if "cache_control" in value else {}
    for key, part in value.items():
        found |= find_marks(part, f"{path}.{key}".lstrip("."))
    return found


def text(words: str, mark: Json | None = None) -> Json:
    return {"type": "text", "text": words, **({"cache_control": mark} if mark else {})}


CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}
CONVERSATION = [
    {"role": "system", "content": [text("Be brief."), text("Be kind.", HOUR)]},
    {"role": "user", "content": [text("Read /a", MARK)]},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": [text("hello", MARK)]},
]
TOOLS = [chat.LIST, {**chat.READ, "cache_control": MARK}]


def test_marks_of_a_chat_client_cross_to_messages() -> None:
    body, lines = send("openai-chat", "anthropic-messages", "api.anthropic.com", messages=CONVERSATION, tools=TOOLS)
    assert find_marks(body) == {
        "system.0": HOUR,
        "tools.1": MARK,
        "messages.0.content.0": MARK,
        "messages.2.content.0": MARK,
    }
    assert body["messages"][2]["content"][0]["type"] == "tool_result"
    assert not any("cache" in line for line in lines)


def test_only_the_last_four_marks_cross() -> None:
    turns = [{"role": role, "content": [text(f"{n}", MARK)]} for n in range(3) for role in ("user", "assistant")]
    body, _ = send("openai-chat", "anthropic-messages", "api.anthropic.com", messages=turns, tools=TOOLS)
    assert [*find_marks(body)] == [f"messages.{at}.content.0" for at in range(2, 6)]


@pytest.mark.parametrize(
    ("host", "crosses"), [("openrouter.ai", True), ("api.openai.com", False), ("127.0.0.1", False)]
)
def test_marks_of_a_messages_client_cross_to_gateways_that_take_them(host: str, crosses: bool) -> None:
    turns = [messages.user(text("Read /a", MARK)), messages.assistant(messages.text("Done.")), messages.user("b")]
    body, lines = send(
        "anthropic-messages",
        "openai-chat",
        host,
        model="anthropic/claude-sonnet-5",
        messages=turns,
        system=[text("Be brief.", HOUR)],
        tools=[{**messages.READ, "cache_control": MARK}],
    )
    expected = {"messages.0.content.0": HOUR, "messages.1.content.0": MARK, "tools.0": MARK}
    assert find_marks(body) == (expected if crosses else {})
    assert not any("cache" in line for line in lines)


RESULTS: dict[str, Json] = {
    "openai-chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Read /a"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "hello"},
        ]
    },
    "openai-responses": {
        "instructions": "Be brief.",
        "input": [
            responses.make_input_message("user", "Read /a"),
            responses.call("read", filePath="/a"),
            responses.output("hello"),
        ],
    },
    "gemini-generate": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Read /a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"filePath": "/a"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "hello"}}}]},
        ],
    },
}


@pytest.mark.parametrize("client", [*RESULTS])
def test_conversation_with_results_and_without_marks_gets_some_on_anthropics_servers(client: str) -> None:
    body, lines = send(client, "anthropic-messages", "api.anthropic.com", **RESULTS[client])
    last_tool = len(body["tools"]) - 1
    assert find_marks(body) == {f"tools.{last_tool}": MARK, "system.0": MARK, "messages.2.content.0": MARK}
    assert "cache marks added to the prompt" in lines


def test_no_marks_are_added_before_the_first_result_and_on_other_servers() -> None:
    first, _ = send("openai-chat", "anthropic-messages", "api.anthropic.com")
    other, _ = send("openai-chat", "anthropic-messages", "127.0.0.1", **RESULTS["openai-chat"])
    assert find_marks(first) == find_marks(other) == {}
