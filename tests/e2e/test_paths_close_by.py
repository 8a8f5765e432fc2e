"""Requests to paths that resemble those of the APIs pass unchanged, and the comment states that they are not read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, ollama, responses
from tests.e2e.conftest import PATIENCE, Start
from tests.e2e.policies import write_guards
from tests.e2e.upstream import JSON, SSE, Reply

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
CLOSE: dict[str, tuple[Any, str]] = {
    "/v1/messages/count_tokens?beta=true": (messages.request(), "tokens are counted without VTC's changes"),
    "/v1/messages/batches": ({"requests": [{"params": messages.request()}]}, "of a batch are not read"),
    "/v1/responses/input_tokens": (responses.request(), "tokens are counted without VTC's changes"),
    "/v1/responses/resp_1/cancel": (responses.request(), "a response that the server stored"),
    "/v1/completions": ({"model": chat.MODEL, "prompt": "Read /a"}, "text completions have no tools"),
    "/api/generate": ({"model": chat.MODEL, "prompt": "Read /a"}, "text completions have no tools"),
    "/v1internal:streamGenerateContent?alt=sse": ({"request": gemini.request()}, "after a login at Google"),
    "/v1beta/dynamic/x:generateContent": (gemini.request(), "only `models`"),
    "/v1beta/tunedModels/x:streamGenerateContent": (gemini.request(), "add alt=sse"),
    "/v1beta/interactions/i": ({"input": "x"}, "Interactions"),
    "/v1/projects/p/publishers/anthropic/models/c:streamRawPredict": (messages.request(), "Claude on Vertex"),
    "/model/us.anthropic.claude%3A0/invoke-with-response-stream": (messages.request(), "Bedrock"),
    "/model/m/converse": (messages.request(), "Bedrock"),
    "/v1/message": (messages.request(), "no API has this path; did you mean /v1/messages?"),
    "/proxy/v1/chat/completion?a=b": (chat.request(), "did you mean /v1/chat/completions?"),
    "/v1/response": (responses.request(), "did you mean /v1/responses?"),
    "/v1beta/models/x/generateContent": (gemini.request(), "did you mean /v1beta/models/MODEL:generateContent?"),
    "/v1/model/a.b:generate_content": (gemini.request(), "did you mean /v1beta/models/MODEL:generateContent?"),
    "/v1beta/models/x:streamGenerateContents?alt=sse": (
        gemini.request(),
        "did you mean /v1beta/models/MODEL:streamGenerateContent?alt=sse?",
    ),
    "/api/chats": (ollama.request(), "did you mean /api/chat?"),
}
MAY_CALL = [path for path, (_, why) in CLOSE.items() if not re.search("tokens|completions|did you mean", why)]
STREAMED = pytest.mark.parametrize("headers", [SSE, ollama.NDJSON], ids=["events", "lines"])


@pytest.mark.halved
@pytest.mark.parametrize("path", CLOSE)
async def test_request_to_a_similar_path_is_unchanged_and_reported(path: str, start: Start) -> None:
    asked, why = CLOSE[path]
    reply = chat.encode_json({"text": CALL, "input_tokens": 7})
    lab = await start(Reply([reply], JSON, framing="length"), vtc_tools="prompt")
    answer = await lab.post(asked, path=path)
    assert answer.body == reply
    (seen,) = lab.upstream.seen
    assert (seen.path, seen.body) == (path, chat.encode_json(asked))
    flow = await lab.flow()
    assert flow.marked == ":zzz:"
    assert flow.comment.startswith("vtc: left alone: ")
    assert why in flow.comment


async def test_get_of_a_kept_response_is_marked(start: Start) -> None:
    lab = await start(Reply([b"{}"], JSON, framing="length"))
    await lab.client.get("/v1/responses/resp_1")
    flow = await lab.flow()
    assert (flow.marked, "a response that the server stored" in flow.comment) == (":zzz:", True)


@pytest.mark.parametrize(
    "path", ["/v1/responses/resp_1", "/V1/Responses/resp_1?stream=true", "/v1/chat%2Fcompletions/c1"]
)
async def test_stored_reply_is_not_sent_if_a_policy_denies_calls(path: str, start: Start, tmp_path: Path) -> None:
    kept = responses.response(responses.call("bash"))
    lab = await start(
        Reply([chat.encode_json(kept)], JSON, framing="length"),
        vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]),
    )
    answer = await lab.client.get(path)
    assert b"bash" not in answer.content
    assert answer.status_code >= 400
    assert lab.upstream.seen == []


async def test_similar_path_is_blocked_if_a_policy_denies_calls(start: Start, tmp_path: Path) -> None:
    lab = await start(
        Reply([b"{}"], JSON, framing="length"), vtc_profiles=write_guards(tmp_path, denied_tools=["bash"])
    )
    for path in MAY_CALL:
        asked, why = CLOSE[path]
        answer = await lab.post(asked, path=path)
        assert (answer.status, why in answer.body.decode()) == (400, True), path
    assert lab.upstream.seen == []


@pytest.mark.parametrize("path", ["/tunedModels/T", "/projects/p/locations/l/endpoints/1", "/models/a%0Ab"])
async def test_a_policy_holds_at_every_address_of_a_model(path: str, start: Start, tmp_path: Path) -> None:
    called = gemini.reply(gemini.text("Hi"), gemini.call("bash"))
    lab = await start(
        Reply([chat.encode_json(called)], JSON, framing="length"),
        vtc_profiles=write_guards(tmp_path, denied_tools=["bash"]),
    )
    answer = await lab.post(gemini.request(), path=f"/v1beta{path}:generateContent")
    assert b"functionCall" not in answer.body
    assert b"Hi" in answer.body
    assert [seen.path for seen in lab.upstream.seen] == [f"/v1beta{path}:generateContent"]


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/embeddings", "/", "/v1beta/models/x:embedContent", "/v1/models/x:generateText"]
)
async def test_request_that_looks_like_none_of_an_api_is_not_marked(path: str, start: Start) -> None:
    lab = await start(Reply([b"{}"], JSON, framing="length"))
    await lab.post({"input": CALL}, path=path)
    flow = await lab.flow()
    assert (flow.marked, flow.comment, dict(flow.metadata)) == ("", "", {})


@STREAMED
async def test_stream_of_a_path_close_by_is_not_kept_back(headers: dict[str, str], start: Start) -> None:
    """Each piece arrives before the next is sent; mitmproxy alone would wait for the end."""
    arrived = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b'data: {"text": "a"}\n\n'
        await arrived.wait()
        yield b"data: [DONE]\n\n"

    lab = await start(Reply(pieces(), headers))
    async with asyncio.timeout(PATIENCE), lab.client.stream("POST", "/v1/completions", content=b"{}") as response:
        received = [piece async for piece in _noting(response.aiter_raw(), arrived)]
    assert b"".join(received) == b'data: {"text": "a"}\n\ndata: [DONE]\n\n'


async def _noting(pieces: AsyncIterator[bytes], arrived: asyncio.Event) -> AsyncIterator[bytes]:
    async for piece in pieces:
        arrived.set()
        yield piece
