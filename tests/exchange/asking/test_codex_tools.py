"""Codex's tools, in namespaces and freeform, on a server of any API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, pairs, responses
from tests.exchange.crossings import BY_NAME
from tests.exchanges import AGENT, feed_stream, planner
from vtc.exchange import Session

CODEX: list[dict[str, Any]] = [
    {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec", "description": "Run."}]},
    {"type": "namespace", "name": "mcp__a", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
    {"type": "namespace", "name": "mcp__b", "tools": [{"type": "function", "name": "read", "parameters": None}]},
]
SERVERS = pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "openai-responses"])


@SERVERS
def test_tools_in_the_conversation_are_declared_and_called(server: str) -> None:
    """Codex 0.144 and later declare tools in an item before the prompt."""
    history = [
        {"type": "additional_tools", "role": "developer", "tools": CODEX},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "Look."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]},
    ]
    body = chat.encode_json({"model": "m", "input": history, "stream": True})
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(upstream_api=(server,)), "seed")
    sent = BY_NAME[server].request(exchange.encode_request())
    assert [tool.name for tool in sent.offer.tools] == ["exec", "mcp__a__read", "mcp__b__read"]
    assert [(one.role, one.text) for one in sent.messages] == [
        ("system", "Be brief."),
        ("user", "Look."),
        ("assistant", ""),
        ("tool", "a"),
    ]
    assert sent.messages[2].calls[0].name == "exec"
    assert not any("left out" in line for line in [*exchange.report.request, *exchange.report.notes])
    reply = pairs.make_stream(server, [], [("exec", {"input": "pwd"}), ("mcp__b__read", {"p": "x"})])
    events = [
        json.loads(line[6:]) for line in feed_stream(exchange.stream(), reply).decode().splitlines() if "data: " in line
    ]
    items = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert [(one["type"], one.get("namespace"), one["name"]) for one in items] == [
        ("custom_tool_call", None, "exec"),
        ("function_call", "mcp__b", "read"),
    ]
    assert items[0]["input"] == "pwd"
    kinds = [one["type"] for one in events if "custom_tool_call_input" in one["type"]]
    assert {*kinds} == {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}
    assert "".join(one["delta"] for one in events if one["type"] == "response.custom_tool_call_input.delta") == "pwd"


def test_tools_that_stand_in_the_conversation_go_into_the_prompt() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": CODEX}
    body = chat.encode_json({"model": "m", "input": [item, {"role": "user", "content": "Look."}]})
    settings = {"tools": "prompt", "dialect": "hermes"}
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(**settings), "seed")
    sent = json.loads(exchange.encode_request())
    assert "mcp__a.read" in json.dumps(sent)
    assert "additional_tools" not in json.dumps(sent)


@SERVERS
def test_messages_of_other_agents_become_user_messages(server: str) -> None:
    said_ = {"type": "agent_message", "author": "sub", "content": [{"type": "input_text", "text": "Done."}]}
    body = chat.encode_json({"model": "m", "input": [{"role": "user", "content": "Go."}, said_]})
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(upstream_api=(server,)), "seed")
    sent = BY_NAME[server].request(exchange.encode_request())
    assert [(one.role, one.text) for one in sent.messages] == [("user", "Go.\nDone.")]


# A server of the Responses API without namespaces, or without custom tools

DECLARED = [
    responses.namespace("functions", responses.custom("exec"), responses.tool("wait", t="string")),
    responses.namespace("mcp__a", responses.READ),
    responses.namespace("mcp__b", responses.READ, responses.WRITE, responses.custom("patch")),
    responses.tool("mcp__b__write", filePath="string"),
    responses.namespace("a", responses.tool("b__c", x="string")),
    responses.namespace("a__b", responses.tool("c", x="string")),
]


def function(name: str) -> list[Any]:
    return responses.call_events(name, '{"x": ', '"y"}', id="fc_1", call_id="call_1")


def freeform(name: str) -> list[Any]:
    return responses.custom_call_events(name, "ls", id="ctc_1", call_id="call_1")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (function("functions__wait"), ("function_call", None, "wait")),
        (function("functions.wait"), ("function_call", None, "wait")),
        (function("mcp__a__read"), ("function_call", "mcp__a", "read")),
        (function("mcp__b.read"), ("function_call", "mcp__b", "read")),
        (freeform("functions__exec"), ("custom_tool_call", None, "exec")),
        (freeform("mcp__b__patch"), ("custom_tool_call", "mcp__b", "patch")),
        (function("exec"), ("custom_tool_call", None, "exec")),
        (function("mcp__b__patch"), ("custom_tool_call", "mcp__b", "patch")),
        (freeform("patch"), ("custom_tool_call", "mcp__b", "patch")),
        (function("read"), ("function_call", None, "read")),
        (function("mcp__b__write"), ("function_call", None, "mcp__b__write")),
        (function("a__b__c"), ("function_call", None, "a__b__c")),
        (function("a__b.c"), ("function_call", "a__b", "c")),
        (function("c"), ("function_call", "a__b", "c")),
    ],
    ids=lambda one: "" if isinstance(one, tuple) else f"{one[0]['item']['type'][:6]} {one[0]['item']['name']}",
)
def test_call_is_returned_as_its_tool_was_declared(stream: bool, given: list[Any], expected: tuple[Any, ...]) -> None:
    """A name that could belong to two tools stays unchanged."""
    body = chat.encode_json(responses.request(tools=DECLARED, stream=stream))
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(), "seed")
    frames = responses.make_stream(given)
    if stream:
        out = feed_stream(exchange.stream(), *frames)
    else:
        out = exchange.whole.rewrite(chat.encode_json(json.loads(frames[-1].partition(b"data: ")[2])["response"]))
    found = responses.read(out)
    (item,) = found.items
    assert (item["type"], item.get("namespace"), item["name"]) == expected


@SERVERS
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"function": {"name": "wait"}}, "wait"),
        ({"name": "wait", "namespace": "functions"}, "wait"),
        ({"name": "functions.wait"}, "wait"),
        ({"name": "functions__wait"}, "wait"),
        ({"name": "read", "namespace": "mcp__a"}, "mcp__a__read"),
        ({"name": "mcp__a__read"}, "mcp__a__read"),
        ({"name": "note"}, "mcp__files__note"),
        ({"name": "note", "namespace": "mcp__files__"}, "mcp__files__note"),
        ({"name": "mcp__files__note"}, "mcp__files__note"),
    ],
)
def test_chosen_tool_has_the_name_under_which_it_is_declared(
    server: str, chosen: dict[str, Any], expected: str
) -> None:
    tools = [*DECLARED, responses.namespace("mcp__files__", responses.tool("note", x="string"))]
    fields = {"model": "m", "input": "hi", "tools": tools, "tool_choice": {"type": "function", **chosen}}
    exchange = Session.open(
        BY_NAME["openai-responses"], chat.encode_json(fields), AGENT, planner(upstream_api=(server,)), "seed"
    )
    offer = BY_NAME[server].request(exchange.encode_request()).offer
    assert expected in [tool.name for tool in offer.tools]
    assert server == "ollama-chat" or offer.choice == expected


@pytest.mark.parametrize("server", pairs.NAMES)
def test_namespace_that_ends_in_underscores_has_no_four_of_them(server: str) -> None:
    tools = [responses.namespace("mcp__files__", responses.tool("note", x="string"))]
    body = chat.encode_json({"model": "m", "input": "hi", "tools": tools, "stream": True})
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(upstream_api=(server,)), "seed")
    exchange.encode_request()
    reply = pairs.make_stream(server, [], [("mcp__files__note", {"x": "y"})])
    events = [
        json.loads(line[6:]) for line in feed_stream(exchange.stream(), reply).decode().splitlines() if "data: " in line
    ]
    (item,) = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert (item["namespace"], item["name"]) == ("mcp__files__", "note")


@SERVERS
def test_tool_of_a_name_in_use_is_sent_once_as_first_declared(server: str) -> None:
    again = responses.tool("read", other="integer")
    history = [{"type": "additional_tools", "tools": [again, responses.WRITE]}, {"role": "user", "content": "hi"}]
    tools = [responses.READ, responses.READ, responses.WRITE]
    body = chat.encode_json({"model": "m", "input": history, "tools": tools})
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(upstream_api=(server,)), "seed")
    sent = BY_NAME[server].request(exchange.encode_request())
    assert [(tool.name, [*tool.parameters["properties"]]) for tool in sent.offer.tools] == [
        ("read", ["filePath"]),
        ("write", ["filePath", "content"]),
    ]
    assert [line for line in exchange.report.request if "a second declaration of read" in line]
