"""Replies constrained by a grammar, through a real mitmproxy: retried without it if the server rejects it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.pairs import READ
from tests.e2e.conftest import Start
from tests.e2e.upstream import JSON, SSE, Reply, Script, Seen

STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
SCHEMA = {"type": "object", "properties": {"filePath": {"enum": ["a", "b"]}}, "required": ["filePath"]}
ASKED: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
    "tool_choice": "required",
}
PROMPTED = {"vtc_server": "llama.cpp", "vtc_tools": "prompt", "vtc_dialect": "hermes"}
MADE = (("read", '{"filePath": "a"}'),)
CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a"}}\n</tool_call>'


def writing(text: str, refused: int = 0, words: str = "Unknown field") -> Script:
    """Return a server that sends a text, and rejects a request with a grammar by the status `refused`, if given."""

    def script(seen: Seen) -> Reply:
        held = {"grammar", "response_format"} & seen.json.keys()
        held |= {"strict" for tool in seen.json.get("tools", ()) if tool["function"].get("strict")}
        if refused and held:
            error = {"error": {"code": refused, "message": words}}
            return Reply([json.dumps(error).encode()], JSON, refused, framing="length")
        if seen.json.get("stream"):
            return Reply([b"".join(chat.make_stream(text))], SSE)
        return Reply([pairs.make_whole_reply("openai-chat", text)], JSON)

    return script


@STREAM
async def test_the_server_decodes_by_the_grammar_and_the_client_gets_a_call(stream: bool, start: Start) -> None:
    lab = await start(writing(CALL), **PROMPTED)
    answer = await lab.post(chat.request(stream=stream, **ASKED))
    assert pairs.read("openai-chat", answer.body, stream=stream).calls == MADE
    (seen,) = lab.upstream.seen
    assert '"<tool_call>\\n{"' in seen.json["grammar"]
    assert "tools" not in seen.json
    assert "a grammar of hermes sent (gbnf)" in (await lab.flow()).comment


@STREAM
@pytest.mark.parametrize("status", [400, 422, 501])
async def test_a_refused_grammar_is_asked_for_once(stream: bool, status: int, start: Start) -> None:
    lab = await start(writing(CALL, status), **PROMPTED)
    for expected in (2, 1):
        before = len(lab.upstream.seen)
        answer = await lab.post(chat.request(stream=stream, **ASKED))
        assert answer.status == 200
        assert pairs.read("openai-chat", answer.body, stream=stream).calls == MADE
        assert len(lab.upstream.seen) - before == expected
    first, again, later = (seen.json for seen in lab.upstream.seen)
    assert {**first, "grammar": None} == {**again, "grammar": None}
    assert "grammar" not in again
    assert "grammar" not in later
    flows = [await lab.flow() for _ in range(3)]
    assert any("the server rejected the grammar" in flow.comment for flow in flows)


@STREAM
@pytest.mark.parametrize("words", ["Failed to parse grammar", "The model is overloaded"])
async def test_error_in_a_reply_with_status_200_teaches_later_requests(stream: bool, words: str, start: Start) -> None:
    """A streaming client has received status 200 already, so it gets the error; its next request has no grammar."""

    def script(seen: Seen) -> Reply:
        if "grammar" not in seen.json:
            return writing(CALL)(seen)
        error = {"error": {"code": 400, "message": words}}
        return Reply([chat.frame(error)], SSE) if seen.json.get("stream") else Reply([chat.encode_json(error)], JSON)

    lab = await start(script, **PROMPTED)
    body = chat.request(stream=stream, **ASKED)
    answer, about_grammar = await lab.post(body), "grammar" in words
    if stream or not about_grammar:
        assert words in answer.body.decode()
        assert len(lab.upstream.seen) == 1
        assert ("without one" in (await lab.flow()).comment) == about_grammar
        answer = await lab.post(body)
    assert ("grammar" in lab.upstream.seen[1].json) == (not about_grammar)
    assert not about_grammar or pairs.read("openai-chat", answer.body, stream=stream).calls == MADE


async def test_other_error_is_unchanged(start: Start) -> None:
    lab = await start(writing(CALL, 429), **PROMPTED)
    answer = await lab.post(chat.request(**ASKED))
    assert (answer.status, len(lab.upstream.seen)) == (429, 1)


async def test_a_reply_without_the_call_shows_that_nothing_was_constrained(start: Start) -> None:
    lab = await start(writing("I would rather not."), **PROMPTED)
    await lab.post(chat.request(**ASKED))
    assert "did not decode by it" in json.dumps((await lab.flow()).metadata, default=str)


@STREAM
async def test_strict_tools_are_sent_if_they_are_not_guaranteed(stream: bool, start: Start) -> None:
    def script(seen: Seen) -> Reply:
        assert seen.json["tools"][0]["function"]["strict"] is True
        if seen.json.get("stream"):
            return Reply([pairs.make_stream("openai-chat", ["I look."], READ)], SSE)
        return Reply([pairs.make_whole_reply("openai-chat", "I look.", READ)], JSON)

    lab = await start(script, vtc_server="vllm", vtc_constrain="auto")
    answer = await lab.post(chat.request(stream=stream, tools=ASKED["tools"]))
    assert pairs.read("openai-chat", answer.body, stream=stream) == pairs.make_content("I look.", READ)
    report = json.dumps((await lab.flow()).metadata, default=str)
    assert "did not decode by a grammar" in report


async def test_rejected_strictness_is_removed(start: Start) -> None:
    lab = await start(
        writing("Hello.", 400, "Extra inputs are not permitted: strict"), vtc_server="vllm", vtc_constrain="auto"
    )
    answer = await lab.post(chat.request(tools=ASKED["tools"]))
    assert (answer.status, len(lab.upstream.seen)) == (200, 2)
    assert "strict" not in lab.upstream.seen[1].json["tools"][0]["function"]
    assert "additionalProperties" not in json.dumps(lab.upstream.seen[1].json["tools"])
