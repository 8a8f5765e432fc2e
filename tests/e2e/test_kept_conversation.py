"""Servers that keep the conversation and want only the new messages, through a real mitmproxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, messages, pairs
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

QWEN = {"id": "chat_id", "parent": "parent_id", "reply_id": "response_id"}
HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
IN_TEXT = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


class KeepingServer:
    """A model server that keeps conversations, and rejects a request that it cannot continue."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[str, list[Any]]] = {}
        self.forgets = False

    def __call__(self, seen: Seen) -> Reply:
        body = seen.json
        parent, id_ = body["parent_id"], body["chat_id"]
        chat_id, before = self.replies.get(parent, ("", [])) if parent else (id_, [])
        if chat_id != id_ or self.forgets:
            self.forgets = False
            return Reply([b'{"error": {"message": "The chat is in progress elsewhere."}}'], JSON, 400, framing="length")
        assert not any(message["role"] == "assistant" for message in body["messages"] if parent)
        conversation = [*before, *body["messages"]]
        text = "It says hello." if "hello" in json.dumps(conversation[-1]) else IN_TEXT
        reply_id = f"r-{len(self.replies) + 1}"
        self.replies[reply_id] = id_, [*conversation, {"role": "assistant", "content": text}]
        frames = [
            chat.encode_json({**HEAD, "response_id": reply_id, "choices": [{"index": 0, "delta": delta}]})
            for delta in ({"role": "assistant", "content": ""}, {"content": text[:9]}, {"content": text[9:]})
        ]
        end = {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        if body.get("stream"):
            lines = [*frames, chat.encode_json(end), b"[DONE]"]
            return Reply([b"data: %b\n\n" % line for line in lines], {"content-type": "text/event-stream"})
        message = {"role": "assistant", "content": text}
        whole = {"id": "x", "response_id": reply_id, "object": "chat.completion", "model": "m", "created": 1}
        whole["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return Reply([chat.encode_json(whole)], JSON, framing="length")


async def start_lab(start: Start, folder: Path, script: Any, fields: Any = QWEN, **options: Any) -> Lab:
    profile = {"kind": "server", "name": "keeping", "match": {"host": ["127.0.0.1:*"]}, "conversation": fields}
    (folder / "keeping.yaml").write_bytes(chat.encode_json({**profile, "api": "openai-chat"}))
    return await start(script, vtc_profiles=[str(folder)], vtc_tools="prompt", vtc_dialect="hermes", **options)


async def ask(lab: Lab, conversation: list[Any], *, stream: bool) -> Any:
    """Send a conversation; return the message of the reply, as the client would send it back."""
    fields: Any = {"model": chat.MODEL, "messages": conversation, "tools": chat.TOOLS}
    async with lab.sdk() as sdk:
        if stream:
            async with sdk.chat.completions.stream(**fields) as events:
                said = (await events.get_final_completion()).choices[0].message
        else:
            said = (await sdk.chat.completions.create(**fields)).choices[0].message
    calls = [call.to_dict() for call in said.tool_calls or ()]
    for call in calls:
        call["function"].pop("parsed_arguments", None)
    return {"role": "assistant", "content": said.content, **({"tool_calls": calls} if calls else {})}


SYSTEM, QUESTION = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Read /a"}


@STREAM
async def test_server_gets_only_the_messages_after_its_last_reply(stream: bool, start: Start, tmp_path: Path) -> None:
    server = KeepingServer()
    lab = await start_lab(start, tmp_path, server)
    conversation = [SYSTEM, QUESTION]
    called = await ask(lab, conversation, stream=stream)
    result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "hello"}
    conversation += [called, result]
    said = await ask(lab, conversation, stream=stream)
    assert said["content"] == "It says hello."
    await ask(lab, [*conversation, said, {"role": "user", "content": "Say hello again"}], stream=stream)
    first, second, third = (seen.json for seen in lab.upstream.seen)
    assert (first["parent_id"], second["parent_id"], third["parent_id"]) == (None, "r-1", "r-2")
    assert first["chat_id"] == second["chat_id"] == third["chat_id"]
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert [message["role"] for message in second["messages"]] == ["user"]
    assert "hello" in second["messages"][0]["content"]
    assert third["messages"] == [{"role": "user", "content": "Say hello again"}]


async def test_unknown_conversation_is_sent_whole_with_a_new_id(start: Start, tmp_path: Path) -> None:
    """An edited history, another branch, and one whose reply this proxy has never seen."""
    server = KeepingServer()
    lab = await start_lab(start, tmp_path, server)
    said = await ask(lab, [QUESTION], stream=True)
    edited = [{"role": "user", "content": "Read /b"}, said, {"role": "user", "content": "hello"}]
    await ask(lab, edited, stream=True)
    changed = [QUESTION, {**said, "content": "No."}, {"role": "user", "content": "hello"}]
    changed[1].pop("tool_calls")
    await ask(lab, changed, stream=True)
    first, *others = (seen.json for seen in lab.upstream.seen)
    for other in others:
        assert other["parent_id"] is None
        assert other["chat_id"] != first["chat_id"]
        assert [message["role"] for message in other["messages"]][-3:] == ["user", "assistant", "user"]


async def test_conversation_that_the_server_forgot_is_sent_again(start: Start, tmp_path: Path) -> None:
    server = KeepingServer()
    lab = await start_lab(start, tmp_path, server)
    said = await ask(lab, [QUESTION], stream=True)
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "hello"}
    server.forgets = True
    assert (await ask(lab, [QUESTION, said, result], stream=True))["content"] == "It says hello."
    assert [seen.json["parent_id"] for seen in lab.upstream.seen] == [None, "r-1", None]
    await lab.next_client_flow()
    report = (await lab.next_client_flow()).metadata["vtc"]
    assert "the server does not know its last reply" in str(report)


async def test_without_memory_each_request_is_a_conversation(start: Start, tmp_path: Path) -> None:
    lab = await start_lab(start, tmp_path, KeepingServer(), vtc_cache="off")
    said = await ask(lab, [QUESTION], stream=True)
    await ask(lab, [QUESTION, said, {"role": "user", "content": "hello"}], stream=True)
    first, second = (seen.json for seen in lab.upstream.seen)
    assert (second["parent_id"], len(second["messages"])) == (None, 4)
    assert first["chat_id"] != second["chat_id"]


async def test_client_of_another_api_and_a_text_client_continue_as_well(start: Start, tmp_path: Path) -> None:
    lab = await start_lab(start, tmp_path, KeepingServer())
    turns: list[Any] = [messages.user("Read /a")]
    answer = await lab.post(messages.request(messages=turns), path=messages.PATH)
    turns.append({"role": "assistant", "content": (content := json.loads(answer.body)["content"])})
    result = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "hello"}
    turns.append({"role": "user", "content": [result]})
    answer = await lab.post(messages.request(messages=turns), path=messages.PATH)
    assert json.loads(answer.body)["content"][0]["text"] == "It says hello."
    assert [seen.json["parent_id"] for seen in lab.upstream.seen] == [None, "r-1"]


async def test_server_of_responses_is_asked_with_previous_response_id(start: Start, tmp_path: Path) -> None:
    """Its native calls keep their results, which alone would be orphans."""
    fields = {"parent": "previous_response_id", "reply_id": "response.id", "repeats_system": True}
    profile = {"kind": "server", "name": "keeping", "match": {"host": ["127.0.0.1:*"]}, "conversation": fields}
    (tmp_path / "keeping.yaml").write_bytes(chat.encode_json({**profile, "api": "openai-responses"}))

    def script(seen: Seen) -> Reply:
        calls = () if "hello" in json.dumps(seen.json["input"]) else pairs.READ
        return Reply([pairs.make_stream("openai-responses", ["It is so."], calls)])

    lab = await start(script, vtc_profiles=[str(tmp_path)])
    called = await ask(lab, [SYSTEM, QUESTION], stream=True)
    result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "hello"}
    await ask(lab, [SYSTEM, QUESTION, called, result], stream=True)
    first, second = (seen.json for seen in lab.upstream.seen)
    assert (first["previous_response_id"], second["previous_response_id"]) == (None, "resp_1")
    assert second["instructions"] == "Be brief."
    assert [item["type"] for item in second["input"]] == ["function_call_output"]
