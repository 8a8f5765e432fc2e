"""The canonical form of a request, and the order of a conversation that all servers accept."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.apis import chat, conversations, messages, pairs, responses
from tests.apis.named_events import Json
from tests.apis.turns import turns
from tests.exchange.asking.applied_steps import bridge_request
from vtc.apis import APIS, Changes
from vtc.apis.bridge import WireNames
from vtc.events import Tool
from vtc.json_text import encode_json

BY_NAME = {api.name: api for api in APIS}


@given(
    st.lists(st.sampled_from(["read", "a.b", "a_b", "a b", "x" * 70, "x" * 71, "é", "ns.go", "5_a", "-a"]), unique=True)
)
def test_names_are_valid_in_every_api_and_are_restored(names: list[str]) -> None:
    out = WireNames(names)
    wire = [out.to_wire(name) for name in names]
    assert len({*wire}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", one) for one in wire)
    assert [out.to_client(one) for one in wire] == names
    assert [WireNames(reversed(names)).to_wire(name) for name in names if name == out.to_wire(name)] == [
        name for name in names if name == out.to_wire(name)
    ]


def test_text_before_claude_codes_prompt_is_not_sent() -> None:
    """The line differs in each request, and would invalidate the server's prompt cache."""
    head = "x-anthropic-billing-header: cc_version=2.1.5; cc_entrypoint=cli; cch=65abc;"
    for system in ([messages.text(head), messages.text("Be brief.")], [messages.text(f"{head}\nBe brief.")]):
        assert bridge_request("anthropic-messages", messages.request(system=system)).messages[0].text == "Be brief."


def test_fields_without_an_equivalent_in_other_apis_are_reported() -> None:
    body = responses.request(tools=[{"type": "web_search"}, responses.READ], background=True, metadata={"a": "b"})
    assert bridge_request("openai-responses", body).untranslated == ("background", "tool web_search")
    body = chat.request(logit_bias={"1": 2}, logprobs=None, user="me")
    assert bridge_request("openai-chat", body).untranslated == ("logit_bias",)


def test_message_fields_without_an_equivalent_in_other_apis_are_reported() -> None:
    entries = [
        {"role": "user", "name": "bob", "content": "a"},
        {"role": "assistant", "content": None, "refusal": "I cannot.", "audio": {"id": "x"}, "annotations": []},
        {"role": "tool", "name": "read", "tool_call_id": "c", "content": "r"},
    ]
    found = bridge_request("openai-chat", chat.request(messages=entries))
    assert found.messages[1].content == ("I cannot.",)
    assert found.untranslated == ("name", "audio")


def test_a_past_call_of_a_custom_tool_keeps_its_name_and_raw_input() -> None:
    call = {"id": "k", "type": "custom", "custom": {"name": "apply_patch", "input": '*** Begin\n"x"'}}
    entries = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    (found,) = bridge_request("openai-chat", chat.request(messages=entries)).messages[1].calls
    assert (found.name, json.loads(found.arguments)) == ("apply_patch", {"input": '*** Begin\n"x"'})
    api = BY_NAME["openai-chat"]
    request = api.request(chat.encode_json(chat.request(messages=entries)))
    changed = replace(request.messages[1], content=("Look.",))
    (entry,) = json.loads(encode_json(api.writer.apply_changes(request, Changes(messages=[changed]))))["messages"]
    assert entry["tool_calls"] == [call]


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    found = bridge_request("openai-responses", responses.request(tools=[responses.custom("apply_patch")]))
    assert [(tool.name, tool.parameters["required"]) for tool in found.tools] == [("apply_patch", ["input"])]


def test_a_tool_without_parameters_has_those_of_an_object() -> None:
    tools = [{"type": "function", "function": {"name": "go"}}]
    assert bridge_request("openai-chat", chat.request(tools=tools)).tools == (
        Tool("go", "", {"type": "object", "properties": {}}),
    )


def test_ids_that_not_every_api_takes_are_others_and_the_same_each_time() -> None:
    call = {"id": "functions.read:0", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    conversation = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.read:0", "content": "x"},
    ]
    first, second = (bridge_request("openai-chat", chat.request(messages=conversation)).messages for _ in range(2))
    assert first == second
    assert first[0].calls[0].id == first[1].call_id
    assert str(first[0].calls[0].id).replace("_", "").isalnum()


def test_calls_of_one_id_get_ids_of_their_own_and_so_do_their_results() -> None:
    def turn(*results: str) -> list[Json]:
        call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        calls = [call] * len(results)
        found = [{"role": "tool", "tool_call_id": "c1", "content": one} for one in results]
        return [{"role": "assistant", "content": None, "tool_calls": calls}, *found]

    for history in ([*turn("a", "b")], [*turn("a"), *turn("b")]):
        found = bridge_request("openai-chat", chat.request(messages=history)).messages
        ids = [call.id for one in found for call in one.calls]
        assert len({*ids}) == 2
        assert [(one.call_id, one.text) for one in found if one.role == "tool"] == [(ids[0], "a"), (ids[1], "b")]


def test_a_call_whose_id_is_empty_gets_one() -> None:
    call = {"id": "", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    history = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "", "content": "x"},
    ]
    first, second = bridge_request("openai-chat", chat.request(messages=history)).messages
    assert (second.call_id, second.name, second.text) == (first.calls[0].id, "read", "x")


@pytest.mark.parametrize("server", ["openai-chat", "openai-responses", "ollama-chat"])
def test_error_result_is_marked_as_error(server: str) -> None:
    for text, expected in (("Exit code 1", "Error:\nExit code 1"), ("Error: no file", "Error: no file")):
        history = [
            messages.user("x"),
            messages.assistant(messages.call("read", "c1")),
            messages.user([{**messages.result(text, "c1"), "is_error": True}]),
        ]
        found = bridge_request("anthropic-messages", messages.request(messages=history))
        body = BY_NAME[server].writer.build_request(found)
        assert BY_NAME[server].request(chat.encode_json(body)).messages[-1].text == expected


@pytest.mark.parametrize("follows", [True, False])
def test_images_in_results_stand_behind_all_results_of_a_chat_server(follows: bool) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    results = [{**messages.result("", one), "content": [messages.text(one), image]} for one in ("c1", "c2")]
    history = [
        messages.user("x"),
        messages.assistant(messages.call("read", "c1"), messages.call("read", "c2")),
        messages.user([*results, *([messages.text("Go on.")] if follows else [])]),
    ]
    body: Any = BY_NAME["openai-chat"].writer.build_request(
        bridge_request("anthropic-messages", messages.request(messages=history))
    )
    pairs.check_request("openai-chat", body)
    assert [one["role"] for one in body["messages"][-3:]] == ["tool", "tool", "user"]
    kinds = [part["type"] for part in body["messages"][-1]["content"]]
    assert kinds == ["text", "image_url"] * 2 + ["text"] * follows


def test_parts_of_a_result_stay_apart() -> None:
    history = [
        messages.user("x"),
        messages.assistant(messages.call("read", "c1")),
        messages.user([{**messages.result("", "c1"), "content": [messages.text("a"), messages.text("b")]}]),
    ]
    found = bridge_request("anthropic-messages", messages.request(messages=history))
    body: Any = BY_NAME["openai-responses"].writer.build_request(found)
    assert body["input"][-1]["output"] == "a\nb"


def test_a_tool_without_a_schema_is_one_of_the_clients() -> None:
    for entry in ({"name": "go"}, {"name": "go", "input_schema": None}, {"name": "go", "input_schema": {}}):
        found = bridge_request("anthropic-messages", messages.request(tools=[entry]))
        assert found.tools == (Tool("go", "", {"type": "object", "properties": {}}),)


@pytest.mark.parametrize(
    ("server", "place", "word"),
    [
        ("ollama-chat", "think", "high"),
        ("openai-chat", "reasoning_effort", "xhigh"),
        ("openai-responses", "reasoning", {"effort": "xhigh"}),
    ],
)
def test_effort_is_sent_in_the_servers_words(server: str, place: str, word: Any) -> None:
    found = bridge_request("anthropic-messages", messages.request(output_config={"effort": "max"}))
    assert BY_NAME[server].writer.build_request(found)[place] == word


# Ten turns


@pytest.mark.parametrize(("client", "server"), pairs.CROSSED, ids=lambda name: name)
def test_request_of_one_turn_is_a_prefix_of_the_next(client: str, server: str) -> None:
    """The last message is an exception; the server's prompt cache is valid for the rest."""
    from tests.apis.shapes import SHAPES

    key = conversations.get_history_key(server)
    bodies = [
        BY_NAME[server].writer.build_request(bridge_request(client, SHAPES[client].request(**fields)))
        for fields in turns(client)
    ]
    for before, after in pairwise(bodies):
        kept = before[key][:-1]
        assert json.dumps(after[key][: len(kept)]) == json.dumps(kept)
        assert json.dumps(after["tools"]) == json.dumps(before["tools"])


@pytest.mark.parametrize(
    "source",
    [
        {"type": "content", "content": "a\nb"},
        {"type": "content", "content": [messages.text("a"), messages.text("b")]},
        {"type": "text", "media_type": "text/plain", "data": "a\nb"},
    ],
)
def test_text_document_is_sent_as_text_with_its_metadata(source: Any) -> None:
    part = {"type": "document", "source": source}
    found = bridge_request("anthropic-messages", messages.request(messages=[messages.user([part])]))
    assert (found.messages[-1].text, found.untranslated) == ("a\nb", ())
    part |= {"title": "T", "context": "From the web.", "citations": {"enabled": True}}
    found = bridge_request("anthropic-messages", messages.request(messages=[messages.user([part])]))
    assert (found.messages[-1].text, found.untranslated) == ("T\nFrom the web.\na\nb", ("citations",))


@pytest.mark.parametrize("in_result", [False, True])
def test_search_result_is_sent_as_text_with_its_source(in_result: bool) -> None:
    found = {"source": "docs/a.md", "title": "T", "content": [messages.text("a"), messages.text("b")]}
    part = {"type": "search_result", **found, "citations": {"enabled": True}}
    turns = [messages.user([part])]
    if in_result:
        result = {"type": "tool_result", "tool_use_id": "t", "content": [part]}
        call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
        turns = [messages.user("Search."), {"role": "assistant", "content": [call]}, messages.user([result])]
    canonical = bridge_request("anthropic-messages", messages.request(messages=turns))
    assert canonical.messages[-1].text == "T\ndocs/a.md\na\nb"
    assert canonical.untranslated == ("citations",)


def test_metadata_of_a_document_without_text_is_reported() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    part = {"type": "document", "source": source, "context": "From the web.", "citations": {"enabled": False}}
    found = bridge_request("anthropic-messages", messages.request(messages=[messages.user([part])]))
    assert found.untranslated == ("context of documents",)


def test_tool_fields_without_an_equivalent_in_other_apis_are_reported() -> None:
    tool = {**messages.READ, "input_examples": [{"filePath": "/a"}], "cache_control": {"type": "ephemeral"}}
    hosted = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    found = bridge_request("anthropic-messages", messages.request(tools=[tool, hosted]))
    assert found.untranslated == ("tool web_search", "input_examples of tools")
    chosen = {**chat.READ, "odd": 1}
    assert bridge_request("openai-chat", chat.request(tools=[chosen])).untranslated == ("odd of tools",)


def test_that_the_server_is_to_cut_the_conversation_is_named() -> None:
    assert bridge_request("openai-responses", responses.request(truncation="auto")).untranslated == ("truncation",)


@pytest.mark.parametrize("url", ["https://localhost/a.png", "data:image/png;base64,AAAA"])
def test_image_detail_is_sent_if_both_apis_have_a_word_for_it(url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    found = bridge_request("openai-chat", chat.request(messages=[{"role": "user", "content": [part]}]))
    body: Any = BY_NAME["openai-responses"].writer.build_request(found)
    (sent_part,) = body["input"][0]["content"]
    assert sent_part == {"type": "input_image", "image_url": url, "detail": "low"}
    back = bridge_request("openai-responses", responses.request(input=body["input"]))
    body = BY_NAME["openai-chat"].writer.build_request(back)
    assert body["messages"][0]["content"] == [part]
