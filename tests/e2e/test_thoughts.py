"""Clients that lose what the model thought, on a server that refuses such a conversation, through a real mitmproxy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat, gemini, pairs
from tests.apis.conversations import answered, asks, key, told
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import Answer, Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

CALLS: pairs.Calls = [("read", {"filePath": "/a"})]
REFUSED = {
    "error": {
        "message": "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_request_error",
    }
}


def deepseek(seen: Seen) -> Reply:
    """Refuse what DeepSeek's API refuses; think, and call twice before the answer."""
    turns = [one for one in seen.json["messages"] if one["role"] == "assistant" and one.get("tool_calls")]
    if [one.get("reasoning_content") for one in turns] != [f"Thought {turn}." for turn, _ in enumerate(turns)]:
        return Reply([chat.encoded(REFUSED)], JSON, 400, framing="length")
    if len(turns) == 2:
        return Reply([b"".join(chat.streamed("It says ", "hello."))])
    body = pairs.streamed("openai-chat", [], CALLS, reasoning=f"Thought {len(turns)}.")
    return Reply([body.replace(b"call_0", b"call_%d" % len(turns))])


async def talk(client: str, lab: Lab, model: str = "deepseek-v4-flash") -> list[Answer]:
    """Ask, and go on as a client does that knows no reasoning; up to the reply without a call."""
    entries, answers = asks(client, "Read it"), []
    for _ in range(4):
        body: dict[str, Any] = {key(client): entries, "stream": True, "model": model}
        path = SHAPES[client].at(stream=True, model=body["model"])
        answer = await lab.post(SHAPES[client].request(**body), path=path)
        answers.append(answer)
        if answer.status != 200 or not (said := told(client, answer.body)).calls:
            break
        entries = [*entries, *answered(client, said, "found")]
    return answers


@pytest.mark.parametrize("client", [*SHAPES])
async def test_a_server_that_wants_its_reasoning_back_gets_it(client: str, start: Start) -> None:
    lab = await start(deepseek, vtc_upstream_api="openai-chat")
    answers = await talk(client, lab)
    assert [one.status for one in answers] == [200, 200, 200]
    assert told(client, answers[-1].body).text == "It says hello."
    reports = [await lab.report() for _ in answers]
    assert "reasoning of 2 past turns given back" in reports[-1]["request"]


@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages"])
async def test_without_anything_kept_the_same_server_refuses(client: str, start: Start) -> None:
    """The control: what this file shows is done by what VTC keeps."""
    lab = await start(deepseek, vtc_upstream_api="openai-chat", vtc_cache="off")
    answers = await talk(client, lab)
    assert [one.status for one in answers] == [200, 400]
    assert b"must be passed back" in answers[-1].body


def google(seen: Seen) -> Reply:
    """Refuse a call without the signature that it was made with, as Gemini 3 does; tell no thought at all."""
    parts = [part for entry in seen.json["contents"] for part in entry["parts"] if "functionCall" in part]
    if [one.get("thoughtSignature") for one in parts] != [f"U2ln{turn}" for turn, _ in enumerate(parts)]:
        message = "Function call is missing a thought_signature in functionCall parts."
        body = chat.encoded({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
        return Reply([body], JSON, 400, framing="length")
    if len(parts) == 2:
        return Reply([b"".join(gemini.streamed_text("It says ", "hello."))])
    call = {**gemini.call("read", filePath="/a"), "thoughtSignature": f"U2ln{len(parts)}"}
    return Reply([b"".join(gemini.streamed(gemini.frame(gemini.event(call))))])


@pytest.mark.parametrize("client", ["openai-chat", "ollama-chat"])
async def test_a_server_that_wants_its_signatures_back_gets_them(client: str, start: Start) -> None:
    lab = await start(google, vtc_upstream_api="gemini-generate")
    answers = await talk(client, lab, "gemini-3-pro")
    assert [one.status for one in answers] == [200, 200, 200]
    assert told(client, answers[-1].body).text == "It says hello."
