"""Signed and encrypted reasoning crosses a client of another API, and returns to the server that it came from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, messages, responses
from tests.exchange.test_pairs import BY_NAME, STREAM
from tests.exchanges import AGENT, fed, planner
from vtc.exchange import Exchange

M, R = "anthropic-messages", "openai-responses"
READ = '{"filePath": "/a"}'
TEXTS = st.text(min_size=1, max_size=30)


def opened(client: str, server: str, host: str = "upstream", **fields: Any) -> Exchange:
    if client == M:
        body = messages.request(thinking={"type": "adaptive"}, **fields)
    else:
        body = responses.request(include=["reasoning.encrypted_content"], **fields)
    facts = replace(AGENT, host=host)
    return Exchange.open(BY_NAME[client], chat.encoded(body), facts, planner(upstream_api=(server,)), "seed")


def next_turn(client: str, server: str, reply: bytes, *, stream: bool, host: str = "upstream") -> Any:
    """Give a client the reply, and return what the server is asked as the client sends the result of its call."""
    first = opened(client, server, stream=stream)
    out = fed(first.stream(), reply) if stream else first.body(reply)
    if client == M:
        said = messages.read(out)
        history = [
            messages.user("x"),
            messages.assistant(*said.blocks),
            messages.user([messages.result("A", "toolu_1")]),
        ]
        fields: dict[str, Any] = {"messages": history}
    else:
        items = [as_codex_sends(item) for item in responses.read(out).items]
        fields = {"input": [responses.said("user", "x"), *items, responses.output("A", "toolu_1")]}
    return json.loads(opened(client, server, host, **fields).request())


def as_codex_sends(item: dict[str, Any]) -> dict[str, Any]:
    """Without ids, and without the text of reasoning."""
    gone = ("id", "content") if item["type"] == "reasoning" else ("id",)
    return {key: one for key, one in item.items() if key not in gone}


def of_messages(*thoughts: dict[str, Any], stream: bool) -> bytes:
    blocks = [*thoughts, messages.call("read", "toolu_1", filePath="/a")]
    if not stream:
        return chat.encoded(messages.message(*blocks, stop_reason="tool_use"))
    frames = [
        messages.thinking_block(at, one["thinking"], signature=one["signature"])
        if one["type"] == "thinking"
        else [messages.started(at, one), messages.stopped(at)]
        for at, one in enumerate(thoughts)
    ]
    call = messages.call_block(len(thoughts), "read", READ, id="toolu_1")
    return b"".join(messages.streamed(*frames, call, stop_reason="tool_use"))


THOUGHTS = st.lists(
    st.builds(messages.thinking, TEXTS, TEXTS)
    | st.builds(lambda data: {"type": "redacted_thinking", "data": data}, TEXTS),
    min_size=1,
    max_size=3,
)


@given(THOUGHTS, st.booleans())
def test_blocks_of_a_server_of_messages_come_back_through_codex(thoughts: list[dict[str, Any]], stream: bool) -> None:
    """Their text, too, which Codex does not send back: the signature holds for that alone."""
    body = next_turn(R, M, of_messages(*thoughts, stream=stream), stream=stream)
    assert [block for block in body["messages"][1]["content"] if block["type"] != "tool_use"] == thoughts
    messages.check_request(body)


def of_responses(text: str, encrypted: str, *, stream: bool) -> bytes:
    item = {**(responses.reasoning(text) if text else {"type": "reasoning", "id": "rs_1", "summary": []})}
    item["encrypted_content"] = encrypted
    call = responses.call("read", "fc_1", "toolu_1", filePath="/a")
    if not stream:
        return chat.encoded(responses.response(item, call))
    events = (
        responses.reasoning_events(text)
        if text
        else [
            {"type": "response.output_item.added", "item": {**item, "encrypted_content": ""}},
            {"type": "response.output_item.done", "item": item},
        ]
    )
    events[-1] = {**events[-1], "item": item}
    return b"".join(responses.streamed(events, responses.call_events("read", READ, id="fc_1", call_id="toolu_1")))


@given(st.just("") | TEXTS, TEXTS, st.booleans())
def test_encrypted_content_comes_back_through_claude_code(text: str, encrypted: str, stream: bool) -> None:
    body = next_turn(M, R, of_responses(text, encrypted, stream=stream), stream=stream)
    assert body["input"][1] == {"type": "reasoning", "summary": [], "encrypted_content": encrypted}
    assert body["input"][2]["type"] == "function_call"
    responses.check_request(body)


@STREAM
def test_nothing_of_another_server_comes_back(stream: bool) -> None:
    """Nor what no server signed: Anthropic and OpenAI refuse a request with either."""
    signed = of_messages(messages.thinking("Hm.", "sig"), stream=stream)
    body = next_turn(R, M, signed, stream=stream, host="elsewhere")
    assert "thinking" not in json.dumps(body["messages"])
    body = next_turn(M, R, of_responses("Hm.", "enc", stream=stream), stream=stream, host="elsewhere")
    assert "reasoning" not in json.dumps(body["input"])
    own = opened(
        R, M, input=[{**responses.reasoning("Hm."), "encrypted_content": "theirs"}, responses.said("user", "x")]
    )
    assert "Hm." not in own.request().decode()
    assert "theirs" not in own.request().decode()


@pytest.mark.parametrize("server", ["openai-chat", "ollama-chat"])
def test_servers_of_open_models_are_told_the_text_alone(server: str) -> None:
    history = [
        messages.user("x"),
        messages.assistant(messages.thinking("Hm.", "sig"), messages.text("A")),
        messages.user("y"),
    ]
    body = opened(M, server, messages=history).request().decode()
    assert "Hm." in body
    assert "sig" not in body
