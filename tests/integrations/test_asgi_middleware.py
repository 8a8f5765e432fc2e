"""`examples/asgi_middleware.py` around a FastAPI server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

fastapi = pytest.importorskip("fastapi")
responses = pytest.importorskip("fastapi.responses")
anthropic = pytest.importorskip("anthropic")
httpx = pytest.importorskip("httpx2")
openai = pytest.importorskip("openai")

from examples.asgi_middleware import VtcMiddleware  # noqa: E402
from tests.integrations.checks import ASKED, BLOCKS, NO_TOOLS, check_completion, check_message  # noqa: E402
from tests.integrations.model_server import MODELS, TOOLS, make_stream, make_whole_reply  # noqa: E402

pytestmark = pytest.mark.integrations
WITHOUT_TOOLS = "simple/"
"""Prefix of models that reject `tools`."""
each_model = pytest.mark.parametrize("model", MODELS)


def make_app(**options: Any) -> Any:
    """Make a server as people write them, whose model writes calls as text."""
    app = fastapi.FastAPI()
    app.add_middleware(VtcMiddleware, **options)

    async def complete(request: fastapi.Request) -> Any:
        body = await request.json()
        if not isinstance(body, dict):
            return responses.JSONResponse({"error": "no object"}, 422)
        if body["model"].startswith(WITHOUT_TOOLS) and "tools" in body:
            return responses.JSONResponse(NO_TOOLS, 400)
        if body.get("stream"):
            return responses.StreamingResponse(make_stream(body), media_type="text/event-stream")
        return make_whole_reply(body)

    app.add_api_route("/v1/chat/completions", complete, methods=["POST"])
    app.add_api_route("/health", lambda: {"ok": True})
    return app


def run_client(talk: Any, **options: Any) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app(**options))) as http:
            await talk(http)

    asyncio.run(run())


@each_model
def test_chat_completions(model: str) -> None:
    async def talk(http: Any) -> None:
        client = openai.AsyncOpenAI(base_url="http://app/v1", api_key="k", http_client=http)
        check_completion(await client.chat.completions.create(model=model, tools=TOOLS, **ASKED))
        async with client.chat.completions.stream(model=model, tools=TOOLS, **ASKED) as stream:
            check_completion(await stream.get_final_completion())

    run_client(talk)


@each_model
def test_messages_of_a_server_that_has_chat_completions_alone(model: str) -> None:
    async def talk(http: Any) -> None:
        client = anthropic.AsyncAnthropic(base_url="http://app", api_key="k", http_client=http)
        check_message(await client.messages.create(model=model, tools=BLOCKS, **ASKED))
        async with client.messages.stream(model=model, tools=BLOCKS, **ASKED) as stream:
            check_message(await stream.get_final_message())

    run_client(talk, server_api="openai-chat")


def test_a_rejected_request_is_retried_and_other_requests_pass_through() -> None:
    async def talk(http: Any) -> None:
        client = openai.AsyncOpenAI(base_url="http://app/v1", api_key="k", http_client=http)
        check_completion(
            await client.chat.completions.create(model=f"{WITHOUT_TOOLS}{next(iter(MODELS))}", tools=TOOLS, **ASKED)
        )
        assert (await http.get("http://app/health")).json() == {"ok": True}
        assert (await http.post("http://app/v1/chat/completions", content=b"[]")).status_code == 422

    run_client(talk)


def test_pieces_of_a_stream_are_sent_as_they_arrive() -> None:
    sent: list[dict[str, Any]] = []
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = json.loads((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for frame in make_stream(body):
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            seen.append(len(sent))
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        request = {"model": next(iter(MODELS)), "stream": True, "messages": ASKED["messages"], "tools": TOOLS}
        return {"type": "http.request", "body": json.dumps(request).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    asyncio.run(VtcMiddleware(app)(scope, receive, send))
    assert seen[0] == 2  # the start, and the first piece of text
    assert [message.get("more_body") for message in sent[1:]][-1] is False
    assert b'"tool_calls"' in b"".join(message.get("body", b"") for message in sent)
