"""Requests of Responses: parsing, rendering, and fields that keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apis import responses
from tests.apis.named_events import Json
from tests.apis.responses import (
    call,
    check_request,
    custom,
    custom_call,
    make_input_message,
    namespace,
    output,
    reasoning,
    tool,
)
from vtc.apis import Changes, RequestError
from vtc.apis.openai_responses import API, Request
from vtc.events import Message, Opaque, Tool, ToolCall
from vtc.json_text import encode_json

NESTED = namespace("mcp__fs", tool("read", path="string"), custom("patch"))
SEARCH = {"type": "web_search"}
HISTORY = [
    make_input_message("developer", "Be brief."),
    make_input_message("user", "Read a"),
    reasoning("hm"),
    responses.message("Yes."),
    call("read", filePath="a"),
    call("read", "fc_2", "call_2", filePath="b"),
    output("A"),
    output([{"type": "input_text", "text": "B"}, {"type": "input_image", "image_url": "x"}], "call_2"),
    {"type": "compaction", "encrypted_content": "z"},
]


def request(**fields: Any) -> Request:
    return API.request(json.dumps(responses.request(**fields)).encode())


def render_request(one: Request, **changes: Any) -> Json:
    body: Json = json.loads(encode_json(API.writer.apply_changes(one, Changes(**changes))))
    return body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"input": 5}',
        b'{"input": [5]}',
        b'{"input": "x", "tools": 5}',
        b'{"input": "x", "tools": [5]}',
        b'{"messages": []}',
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        API.request(body)


def test_messages_that_are_none_are_refused_when_they_are_asked_for() -> None:
    with pytest.raises(RequestError):
        assert request(input=[{"role": "user", "content": [5]}]).messages


def test_tools_are_offered_under_names_with_their_namespace() -> None:
    one = request(tools=[responses.READ, NESTED, custom("apply_patch"), SEARCH])
    assert [offered.name for offered in one.offer.tools] == ["read", "mcp__fs.read", "mcp__fs.patch", "apply_patch"]
    assert one.offer.declared == ["read", "mcp__fs.read", "mcp__fs.patch", "apply_patch", "web_search"]
    assert [*one.offer.tools[3].parameters["properties"]] == ["input"]
    assert "start:" in one.offer.tools[3].description
    assert one.form.custom_tools == {"mcp__fs.patch", "apply_patch"}
    assert one.form.flat_names["mcp__fs__read"] == one.form.flat_names["mcp__fs.read"] == ("mcp__fs", "read")


@pytest.mark.parametrize(
    ("choice", "demanded", "offered"),
    [
        (None, "auto", 3),
        ("none", "none", 3),
        ("required", "required", 3),
        ({"type": "function", "name": "list_files"}, "list_files", 3),
        ({"type": "function", "name": "read"}, "mcp__fs.read", 3),
        ({"type": "function", "name": "read", "namespace": "mcp__fs"}, "mcp__fs.read", 3),
        ({"type": "custom", "name": "patch"}, "mcp__fs.patch", 3),
        ({"type": "web_search"}, "auto", 3),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "read"}]}, "required", 1),
    ],
)
def test_every_form_of_tool_choice_is_read(choice: Any, demanded: str, offered: int) -> None:
    one = request(tools=[responses.LIST, NESTED, SEARCH], tool_choice=choice)
    assert (one.offer.choice, len(one.offer.tools)) == (demanded, offered)


@pytest.mark.parametrize(("value", "parallel"), [(None, True), (True, True), (False, False)])
def test_parallel_calls_are_the_default(value: Any, parallel: bool) -> None:
    assert request(parallel_tool_calls=value).offer.parallel is parallel


@pytest.mark.parametrize("key", ["previous_response_id", "conversation"])
def test_a_conversation_that_the_server_keeps_is_not_lifted(key: str) -> None:
    assert key in request(**{key: "resp_1"}).unliftable
    assert not request().unliftable


def test_items_of_one_turn_are_one_message() -> None:
    one = request(input=HISTORY, instructions="You help.")
    first, developer, user, turn, result, other, compaction = one.messages
    assert (first.role, first.text, developer.role, user.text) == ("system", "You help.", "system", "Read a")
    assert (turn.role, turn.text, turn.reasoning, len(turn.calls)) == ("assistant", "Yes.", "hm", 2)
    assert turn.content == (Opaque(HISTORY[2]), "Yes.")
    assert turn.calls[0] == ToolCall("read", '{"filePath": "a"}', "call_1")
    assert (result.role, result.text, result.call_id, result.name) == ("tool", "A", "call_1", "read")
    assert other.content == ("B", Opaque(HISTORY[7]["output"][1]))
    assert compaction.content == (Opaque(HISTORY[8]),)
    assert one.call_ids == {"call_1", "call_2"}


def test_a_string_is_a_message_of_the_user() -> None:
    assert [(message.role, message.text) for message in request(input="Hi").messages] == [("user", "Hi")]


def test_a_custom_call_and_a_call_in_a_namespace_are_read() -> None:
    items = [custom_call("apply_patch", 'x"y'), call("read", "fc_2", "call_2", namespace="mcp__fs")]
    (turn,) = request(input=items, tools=[NESTED, custom("apply_patch")]).messages
    assert turn.calls == (
        ToolCall("apply_patch", '{"input": "x\\"y"}', "call_1"),
        ToolCall("mcp__fs.read", "{}", "call_2"),
    )


def test_an_unchanged_conversation_keeps_its_bytes() -> None:
    body = b'{"input":  [{"role":"user" , "content":"h"}], "instructions" : "Be.", "x": 1.0}'
    one = API.request(body)
    for messages in (one.messages, [Message("system", ("New",)), *one.messages]):
        fields = API.writer.apply_changes(one, Changes(messages=messages))
        assert b'[{"role":"user" , "content":"h"}]' in encode_json(fields)


def test_a_changed_turn_does_not_change_other_items() -> None:
    one = request(input=HISTORY)
    developer, user, turn, *rest = one.messages
    changed = replace(turn, content=(*turn.content, "<call>"), calls=())
    expected = [Message("user", ("A",), call_id="call_1"), Message("user", ("B",)), rest[2]]
    items = render_request(one, messages=[developer, user, changed, *expected], tools=())["input"]
    assert items[:3] == HISTORY[:3]
    assert items[-1] == HISTORY[-1]
    assert [part["text"] for part in items[3]["content"]] == ["Yes.", "<call>"]
    assert items[3]["id"] == HISTORY[3]["id"]
    assert items[4:6] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in "AB"
    ]


def test_a_rewritten_conversation_is_accepted_by_the_server() -> None:
    calls = (ToolCall("mcp__fs.read", "{}", "call_9"), ToolCall("apply_patch", '{"input": "x"}', "call_8"))
    one = request(input="Hi", tools=[NESTED, custom("apply_patch")])
    results = [
        Message("tool", ("A",), (), "call_9", "mcp__fs.read"),
        Message("tool", ("B",), (), "call_8", "apply_patch"),
    ]
    body = render_request(one, messages=[*one.messages, Message("assistant", ("Now",), calls), *results])
    check_request(body)
    assert [item.get("type", "message") for item in body["input"]] == [
        "message",
        "message",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "custom_tool_call_output",
    ]
    assert (body["input"][2]["name"], body["input"][2]["namespace"]) == ("read", "mcp__fs")
    assert body["input"][3]["input"] == "x"


@pytest.mark.parametrize(("instructions", "written"), [(None, "Tools."), ("Be.", "Tools.\n\nBe.")])
def test_a_new_system_message_goes_to_the_instructions(instructions: str | None, written: str) -> None:
    one = request(instructions=instructions)
    body = render_request(one, messages=[Message("system", ("Tools.",)), *one.messages])
    assert (body["instructions"], body["input"]) == (written, [make_input_message("user", "hello")])


def test_changed_instructions_stay_in_their_field_and_empty_ones_are_removed() -> None:
    one = request(instructions="Be.")
    first, *rest = one.messages
    assert render_request(one, messages=[replace(first, content=("Be.", " Now."))])["instructions"] == "Be. Now."
    assert "instructions" not in render_request(one, messages=rest)


def test_without_functions_the_hosted_tools_stay() -> None:
    one = request(tools=[responses.READ, NESTED, SEARCH], tool_choice="auto", parallel_tool_calls=True)
    body = render_request(one, tools=())
    assert body["tools"] == [SEARCH]
    assert "tool_choice" not in body
    assert "tools" not in render_request(request(), tools=())


def test_new_tools_are_flat_and_not_strict() -> None:
    (declared,) = render_request(request(), tools=[Tool("a", "does", {"type": "object"})])["tools"]
    assert declared == {
        "type": "function",
        "name": "a",
        "description": "does",
        "parameters": {"type": "object"},
        "strict": False,
    }


def test_withheld_tools_are_removed_from_their_namespaces() -> None:
    one = request(tools=[responses.READ, NESTED, SEARCH], tool_choice={"type": "function", "name": "read"})
    body = render_request(one, withheld={"mcp__fs.read", "web_search", "read"})
    assert [entry["name"] for entry in body["tools"]] == ["mcp__fs"]
    assert [entry["name"] for entry in body["tools"][0]["tools"]] == ["patch"]
    assert "tool_choice" not in body
    assert "tools" not in render_request(one, withheld=one.offer.declared)


def test_fields_are_set_and_dropped() -> None:
    body = render_request(
        request(reasoning={"effort": "low", "summary": "auto"}), drop=["store", "reasoning.summary"], set={"x": 1}
    )
    assert (body["reasoning"], body["x"], "store" in body) == ({"effort": "low"}, 1, False)


def test_facts_for_the_reply_survive_forgetting_the_request() -> None:
    one = request(tools=[NESTED], max_output_tokens=7)
    one.forget()
    assert (one.form.max_tokens, one.form.model, [*one.messages]) == (7, responses.MODEL, [])
    assert "mcp__fs__read" in one.form.flat_names


def test_half_an_emoji_is_no_reason_to_fail() -> None:
    one = API.request(b'{"input": "\\ud83d", "tools": []}')
    assert one.messages[0].text == "\ufffd"
