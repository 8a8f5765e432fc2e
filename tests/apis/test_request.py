"""Requests of all APIs: messages, unchanged bytes, results and their calls, tools and their choice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apis import conversations
from tests.dialects.material import CASES, plain
from vtc.apis import APIS, Api, Changes, RequestError
from vtc.events import Message, Tool
from vtc.json_text import encode_json

SCHEMA = {"type": "object", "properties": {}}
NESTED = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("read", "find")]
FLAT = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("read", "find")]
PLAIN = [{"name": name, "input_schema": SCHEMA} for name in ("read", "find")]

CALLING = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CALLING_OLLAMA = {"id": "call_1", "function": {"name": "read", "arguments": {}}}
HI, ANSWER = {"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "call_1", "content": "A"}

BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "tools": NESTED,
        "tool_choice": {"type": "function", "function": {"name": "find"}},
        "messages": [HI, {"role": "assistant", "content": "", "tool_calls": [CALLING]}, ANSWER],
    },
    "ollama-chat": {
        "tools": NESTED,
        "messages": [HI, {"role": "assistant", "content": "", "tool_calls": [CALLING_OLLAMA]}, ANSWER],
    },
    "anthropic-messages": {
        "tools": PLAIN,
        "tool_choice": {"type": "tool", "name": "find"},
        "messages": [
            HI,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "A"}]},
        ],
    },
    "openai-responses": {
        "tools": FLAT,
        "tool_choice": {"type": "function", "name": "find"},
        "input": [
            HI,
            {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "A"},
        ],
    },
}
BODIES["gemini-generate"] = {
    "tools": [{"functionDeclarations": [{"name": name, "parametersJsonSchema": SCHEMA} for name in ("read", "find")]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["find"]}},
    "contents": [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "read", "args": {}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "call_1", "name": "read", "response": {"output": "A"}}}],
        },
    ],
}
MESSAGES = plain((CASES / "apis" / "messages.yaml").read_text("utf-8"))
each = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def request(api: Api, **changes: Any) -> Any:
    return api.request(json.dumps({"model": "m", **BODIES[api.name], **changes}, indent=1).encode())


def encode_changes(api: Api, one: Any, **changes: Any) -> Any:
    return json.loads(encode_json(api.writer.apply_changes(one, Changes(**changes))))


CHOICES = {"tool_choice", "toolConfig"}
"""The fields that require a tool."""


def list_declarations(body: Any) -> list[Any]:
    """List the declarations of tools."""
    return [one for entry in body["tools"] for one in entry.get("functionDeclarations", [entry])]


@pytest.mark.every
@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case["api"])
def test_messages_are_read(case: dict[str, Any]) -> None:
    (api,) = (api for api in APIS if api.name == case["api"])
    found = api.request(encode_json({"model": "m", "max_tokens": 9, "messages": case["messages"]})).messages
    assert [describe_message(message) for message in found] == case["read"]


def describe_message(message: Message) -> dict[str, Any]:
    """Return the fields of a message that have a value, in the form of the cases."""
    fields = {
        "content": [part if isinstance(part, str) else {"opaque": part.part} for part in message.content],
        "calls": [{"name": call.name, "arguments": call.arguments, "id": call.id} for call in message.calls],
    }
    ids = {"call_id": message.call_id, "name": message.name}
    filled = {key: value for key, value in fields.items() if value}
    return {"role": message.role, **filled, **{key: value for key, value in ids.items() if value is not None}}


@each
def test_result_has_the_name_and_the_id_of_its_call(api: Api) -> None:
    question, calling, result = request(api).messages
    assert (question.text, [call.name for call in calling.calls]) == ("Hi", ["read"])
    assert (result.role, result.text, result.name, result.call_id) == ("tool", "A", "read", "call_1")


@each
def test_conversation_of_which_nothing_changes_keeps_its_bytes(api: Api) -> None:
    one = request(api)
    key = conversations.get_history_key(api.name)
    before = encode_json(api.writer.apply_changes(one))
    assert encode_json(api.writer.apply_changes(one, Changes(messages=one.messages))) == before
    changed = [*one.messages[:-1], replace(one.messages[-1], content=("B",))]
    after = encode_changes(api, one, messages=changed)[key]
    assert after[:-1] == json.loads(before)[key][:-1]
    assert ('"A"' in json.dumps(after[-1]), '"B"' in json.dumps(after[-1])) == (False, True)


@each
def test_new_system_message_is_sent_to_the_model(api: Api) -> None:
    one = request(api)
    body = encode_changes(api, one, messages=[Message("system", ("Tools.",)), *one.messages])
    prompt = (
        body.get("system")
        or body.get("instructions")
        or body.get("systemInstruction")
        or body["messages"][0]["content"]
    )
    assert prompt in ("Tools.", {"parts": [{"text": "Tools."}]})


@each
def test_withheld_tools_and_a_demand_for_one_are_removed(api: Api) -> None:
    one = request(api)
    assert (one.offer.declared, [tool.name for tool in one.offer.tools]) == (["read", "find"], ["read", "find"])
    assert one.offer.choice == ("auto" if api.name == "ollama-chat" else "find")
    body = encode_changes(api, one, withheld={"find"})
    assert (list_declarations(body), bool(CHOICES & body.keys())) == (list_declarations(BODIES[api.name])[:1], False)
    assert not {"tools", *CHOICES} & encode_changes(api, one, withheld={"read", "find"}).keys()
    assert CHOICES & encode_changes(api, one, withheld={"read"}).keys() == CHOICES & BODIES[api.name].keys()


@each
def test_other_tools_replace_those_that_are_declared(api: Api) -> None:
    one = request(api)
    (found,) = list_declarations(encode_changes(api, one, tools=[Tool("new", "Does.", SCHEMA)]))
    assert found.get("function", found)["name"] == "new"
    assert not {"tools", *CHOICES} & encode_changes(api, one, tools=()).keys()


@each
def test_conversation_that_is_no_list_is_refused(api: Api) -> None:
    key = conversations.get_history_key(api.name)
    with pytest.raises(RequestError, match=f"`{key}` is not a list"):
        request(api, **{key: {}})
