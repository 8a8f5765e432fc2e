"""Chat completions: requests parsed to messages and tools, rendered again, and whole replies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat
from vtc.apis import Changes, RequestError
from vtc.apis.openai_chat import API, Request
from vtc.events import Message, Opaque, Tool, ToolCall
from vtc.json_text import encode_json

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}


def request(**fields: Any) -> Request:
    return Request(chat.encode_json({"model": "m", "messages": [], **fields}))


CACHED = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"x": 1}'}}
READ = ToolCall("read", '{"x": 1}', "a")


@pytest.mark.parametrize(
    ("fields", "tools"),
    [
        ({}, []),
        ({"tools": None}, []),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, [Tool("a")]),
        (
            {"tools": [{"function": {"name": "a", "description": None, "parameters": SCHEMA}}]},
            [Tool("a", "", SCHEMA)],
        ),
        (
            {"tools": [{"type": "web_search"}, {"type": "function"}, {"type": "function", "function": {"name": 5}}]},
            [],
        ),
        ({"functions": [{"name": "a", "description": "d"}]}, []),
        ({"tools": [{"function": {"name": "a"}}], "functions": [{"name": "b"}]}, [Tool("a")]),
    ],
)
def test_tools(fields: dict[str, Any], tools: list[Tool]) -> None:
    assert request(**fields).offer.tools == tools


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, "auto"),
        ({"tool_choice": "none"}, "none"),
        ({"tool_choice": "required"}, "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, "a"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "auto"),
        ({"function_call": {"name": "a"}}, "auto"),
    ],
)
def test_tool_choice(fields: dict[str, Any], choice: str) -> None:
    assert request(**fields).offer.choice == choice


def test_tools_that_are_not_allowed_are_declared_and_not_offered() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    allowed = {"mode": "required", "tools": [tools[1]]}
    one = request(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    offer = one.offer
    assert ([tool.name for tool in offer.tools], offer.declared, offer.choice) == (["b"], ["a", "b"], "required")


def test_the_other_fields() -> None:
    found = request(stream=True, parallel_tool_calls=False, temperature=1)
    assert (found.model, found.stream, found.offer.parallel) == ("m", True, False)
    assert found.fields["temperature"] == 1
    bare = Request(b"{}")
    assert (bare.model, bare.stream, bare.offer.parallel, bare.messages, bare.offer.choice) == (
        "",
        False,
        True,
        [],
        "auto",
    )


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"5", b'{"messages": 5}', b'{"messages": null}', b'{"messages": [[]]}', b'{"tools": 5}']
)
def test_malformed_request_is_rejected(body: bytes) -> None:
    with pytest.raises(RequestError, match="the body is not a valid chat completion request"):
        Request(body)


# Encoding

BODY = b"""{ "model": "m",
  "messages": [ {"role" : "system", "content": "\\u00e9"}, {"role":"user","content":[{"type":"text"}], "x":1.0} ],
  "tools" : [{"type":"function","function":{"name":"a"}}], "tool_choice":"auto", "n": 1e0, "z":{ } }"""


def test_unchanged_parts_keep_their_bytes() -> None:
    found = Request(BODY)
    messages = [*found.messages[:1], Message("user", ("new",)), *found.messages[1:]]
    changes = Changes(messages=messages, tools=(), set={"seed": 5}, drop=["z"])
    encoded = encode_json(API.writer.apply_changes(found, changes))
    assert encoded == (
        b'{"model":"m","messages":[{"role" : "system", "content": "\\u00e9"},{"role":"user","content":"new"},'
        b'{"role":"user","content":[{"type":"text"}], "x":1.0}],"n":1e0,"seed":5}'
    )


def test_tools_are_kept_replaced_or_dropped() -> None:
    found = request(tools=[{"type": "function", "function": {"name": "a"}}], tool_choice="auto")
    assert {"tools", "tool_choice"} <= set(json.loads(encode_json(API.writer.apply_changes(found))))
    assert set(json.loads(encode_json(API.writer.apply_changes(found, Changes(tools=()))))) == {"model", "messages"}
    replaced = json.loads(encode_json(API.writer.apply_changes(found, Changes(tools=[Tool("b", "d", SCHEMA)]))))
    assert replaced["tools"] == [
        {"type": "function", "function": {"name": "b", "description": "d", "parameters": SCHEMA}}
    ]
    assert "tool_choice" not in replaced


@pytest.mark.parametrize(
    ("source", "message", "entry"),
    [
        ({}, Message("user", ("a", "b")), {"role": "user", "content": "ab"}),
        ({}, Message("assistant", (), (READ,)), {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        ({}, Message("assistant", ("a",), (READ,)), {"role": "assistant", "content": "a", "tool_calls": [CALL]}),
        ({}, Message("tool", ("r",), call_id="a", name="n"), {"role": "tool", "content": "r", "tool_call_id": "a"}),
        ({}, Message("user", ("r",), call_id="a", name="n"), {"role": "user", "content": "r"}),
        (
            {},
            Message("user", ("a", Opaque(IMAGE))),
            {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
        ),
        (
            {"role": "developer", "name": "n", "x": 1},
            Message("system", ("a",)),
            {"role": "developer", "content": "a", "name": "n", "x": 1},
        ),
        (
            {"role": "assistant", "tool_calls": [CALL], "refusal": None},
            Message("assistant", ("a",)),
            {"role": "assistant", "content": "a", "refusal": None},
        ),
        ({"role": "tool", "tool_call_id": "a", "x": 1}, Message("user", ("a",)), {"role": "user", "content": "a"}),
        (
            {"content": [CACHED]},
            Message("user", ("a", "b")),
            {"role": "user", "content": [CACHED, {"type": "text", "text": "b"}]},
        ),
        ({"content": []}, Message("user", ()), {"role": "user", "content": []}),
    ],
)
def test_a_changed_message(source: Any, message: Message, entry: Any) -> None:
    """It has its current content, and the other fields of its source."""
    changed = Message(message.role, message.content, message.calls, message.call_id, message.name, source)
    fields = API.writer.apply_changes(request(), Changes(messages=[changed]))
    assert json.loads(encode_json(fields["messages"])) == [entry]


def test_half_a_character() -> None:
    """Only Python's own decoder accepts it; the forwarded body is equivalent."""
    body = b'{"messages":[{"role":"user","content":"\\ud83d"}], "x": "\\ud83d"}'
    found = Request(body, unrepaired=True)
    assert [message.text for message in found.messages] == ["\ud83d"]
    messages = [Message("system", ("\ud83d!",)), *found.messages]
    assert json.loads(encode_json(API.writer.apply_changes(found, Changes(messages=messages)))) == {
        "messages": [{"role": "system", "content": "\ud83d!"}, {"role": "user", "content": "\ud83d"}],
        "x": "\ud83d",
    }
