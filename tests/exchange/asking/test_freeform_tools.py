"""Freeform tools of clients of chat completions (`type: custom`), with a server of any API and as text tool calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.named_events import Json
from tests.exchange.crossings import BY_NAME, STREAM, open_bridge
from tests.exchanges import AGENT, feed_stream, planner
from vtc.exchange import Session
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "*** Begin"'}}
PATCH = {"type": "custom", "custom": {"name": "apply.patch", "description": "Edits.", "format": GRAMMAR}}
INPUT = '*** Begin\n+"é"\\n\U0001f600\n'
MADE = {"id": "k", "type": "custom", "custom": {"name": "apply.patch", "input": INPUT}}
HISTORY = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [{**MADE, "id": "past"}]},
    {"role": "tool", "tool_call_id": "past", "content": "Done."},
]
SERVERS = pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "openai-chat"])


def open_freeform(server: str, **fields: Any) -> Session:
    return open_bridge("openai-chat", server, tools=[PATCH, chat.READ], **fields)


def calls_of(body: bytes) -> tuple[list[Json], Any]:
    """Return the calls that a client joins, and the finish reason; the entries of one call have one number."""
    if body.lstrip().startswith(b"{"):
        (choice,) = json.loads(body)["choices"]
        return choice["message"]["tool_calls"], choice["finish_reason"]
    found: list[Json] = []
    reason = None
    for event in chat.events(body):
        for choice in event["choices"] if event != "[DONE]" else ():
            reason = choice["finish_reason"] or reason
            for entry in choice["delta"].get("tool_calls") or ():
                at = entry["index"]
                if at == len(found):
                    found.append({key: one for key, one in entry.items() if key != "index"})
                    continue
                kind, field = ("custom", "input") if "custom" in entry else ("function", "arguments")
                assert entry.keys() == {"index", kind}
                assert entry[kind].keys() == {field}
                found[at][kind][field] = found[at][kind].get(field, "") + entry[kind][field]
    return found, reason


@SERVERS
def test_server_gets_a_function_with_one_string_and_its_past_calls(server: str) -> None:
    exchange = open_freeform(
        server, messages=HISTORY, tool_choice={"type": "custom", "custom": {"name": "apply.patch"}}
    )
    body = json.loads(exchange.encode_request())
    pairs.check_request(server, body)
    sent = BY_NAME[server].request(chat.encode_json(body))
    tool = sent.offer.tools[0]
    assert (tool.name, tool.parameters["required"]) == ("apply__patch", ["input"])
    assert tool.description == 'Edits.\n\nThe input follows this grammar:\nstart: "*** Begin"'
    call = next(call for message in sent.messages for call in message.calls)
    assert (call.name, json.loads(call.arguments)) == ("apply__patch", {"input": INPUT})
    if server != "ollama-chat":
        assert sent.offer.choice == "apply__patch"
    assert not any("left out" in line for line in [*exchange.report.request, *exchange.report.notes])


@SERVERS
@STREAM
def test_call_is_returned_as_the_client_declared_its_tool(server: str, stream: bool) -> None:
    exchange = open_freeform(server, stream=stream)
    exchange.encode_request()
    calls = [("apply__patch", {"input": INPUT}), ("read", {"filePath": "/a"})]
    body = pairs.make_stream(server, ["I edit."], calls) if stream else pairs.make_whole_reply(server, "I edit.", calls)
    made, reason = calls_of(feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body))
    assert reason == "tool_calls"
    assert made[0].pop("id")
    assert made[0] == {"type": "custom", "custom": {"name": "apply.patch", "input": INPUT}}
    assert (made[1]["type"], made[1]["function"]["name"]) == ("function", "read")
    assert json.loads(made[1]["function"]["arguments"]) == {"filePath": "/a"}


@SERVERS
@pytest.mark.parametrize("cuts", [1, 7])
def test_call_is_returned_in_any_cut(server: str, cuts: int) -> None:
    exchange = open_freeform(server, stream=True)
    exchange.encode_request()
    body = pairs.make_stream(server, [], [("apply__patch", {"input": INPUT})])
    made, _ = calls_of(feed_stream(exchange.stream(), *(body[at : at + cuts] for at in range(0, len(body), cuts))))
    assert made[0]["custom"] == {"name": "apply.patch", "input": INPUT}


@pytest.mark.parametrize("server", pairs.NAMES)
@STREAM
def test_a_call_of_it_in_text_is_one_of_a_custom_tool(server: str, stream: bool) -> None:
    upstream: Any = {} if server == "openai-chat" else {"upstream_api": (server,)}
    settings = {**upstream, "tools": "prompt", "dialect": "hermes"}
    body = chat.encode_json(chat.request(tools=[PATCH, chat.READ], messages=HISTORY, stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(**settings), "seed")
    sent = exchange.encode_request().decode()
    assert "apply.patch" in sent
    assert '"custom"' not in sent
    text = chat.DIALECTS["hermes"]("apply.patch", {"input": INPUT})
    reply = pairs.make_stream(server, [text]) if stream else pairs.make_whole_reply(server, text)
    made, reason = calls_of(feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply))
    assert reason == "tool_calls"
    assert made[0]["custom"] == {"name": "apply.patch", "input": INPUT}


@STREAM
def test_a_server_of_chat_completions_makes_it_itself(stream: bool) -> None:
    """Raw text that is no JSON is correct; its frames are forwarded unchanged."""
    body = chat.encode_json(chat.request(tools=[PATCH, chat.READ], messages=HISTORY, stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed")
    assert exchange.encode_request() == body
    begun = {**MADE, "index": 0, "custom": {"name": "apply.patch", "input": INPUT[:5]}}
    pieces: list[Json] = [begun, {"index": 0, "custom": {"input": INPUT[5:]}}]
    frames = [chat.ROLE, *(chat.chunk({"tool_calls": [one]}) for one in pieces), chat.chunk({}, "tool_calls")]
    reply = b"".join([*frames, chat.DONE])
    if not stream:
        reply = chat.encode_json(chat.completion(None, "tool_calls", message={"tool_calls": [MADE]}))
    assert (feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)) == reply


@STREAM
@pytest.mark.parametrize(
    ("guard", "is_allowed"),
    [
        ("arguments: {misfit: steer}", True),
        ("reactors: [{name: r, when: {tools: apply.patch, arguments: {input: Begin}}, then: {refuse: No.}}]", False),
        ("reactors: [{name: r, when: {tools: apply.patch, arguments: {input: Delete}}, then: {refuse: No.}}]", True),
    ],
)
def test_a_policy_reads_the_raw_input_as_the_one_argument(
    guard: str, is_allowed: bool, stream: bool, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(f"kind: policy\nname: mine\nmatch: {{}}\nguards: {{{guard}}}\n")
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    body = chat.encode_json(chat.request(tools=[PATCH], stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, strict, "seed")
    exchange.encode_request()
    reply = b"".join([chat.ROLE, chat.chunk({"tool_calls": [{**MADE, "index": 0}]}), chat.chunk({}, "tool_calls")])
    if not stream:
        reply = chat.encode_json(chat.completion(None, "tool_calls", message={"tool_calls": [MADE]}))
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert (b'"custom"' in out) == is_allowed
    assert not is_allowed or calls_of(out)[0] == [MADE]
