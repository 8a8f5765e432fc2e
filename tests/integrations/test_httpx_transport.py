"""`examples/httpx_transport.py` with the SDKs of OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from examples.httpx_transport import AsyncVtcTransport, VtcTransport
from tests.integrations.checks import ASKED, BLOCKS, NO_TOOLS, check_completion, check_message
from tests.integrations.model_server import MODELS, TOOLS, run_model_server

each_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with run_model_server() as url:
        yield url


@each_model
def test_openai(server: str, model: str) -> None:
    with httpx.Client(transport=VtcTransport()) as http:
        client = openai.OpenAI(base_url=f"{server}/v1", api_key="k", http_client=http)
        check_completion(client.chat.completions.create(model=model, tools=TOOLS, **ASKED))
        with client.chat.completions.stream(model=model, tools=TOOLS, **ASKED) as stream:
            check_completion(stream.get_final_completion())


@each_model
def test_openai_asynchronously(server: str, model: str) -> None:
    async def talk() -> None:
        async with httpx.AsyncClient(transport=AsyncVtcTransport()) as http:
            client = openai.AsyncOpenAI(base_url=f"{server}/v1", api_key="k", http_client=http)
            check_completion(await client.chat.completions.create(model=model, tools=TOOLS, **ASKED))
            async with client.chat.completions.stream(model=model, tools=TOOLS, **ASKED) as stream:
                check_completion(await stream.get_final_completion())

    asyncio.run(talk())


@each_model
def test_anthropic_with_a_server_of_chat_completions(server: str, model: str) -> None:
    with httpx.Client(transport=VtcTransport(server_api="openai-chat")) as http:
        client = anthropic.Anthropic(base_url=server, api_key="k", http_client=http)
        check_message(client.messages.create(model=model, tools=BLOCKS, **ASKED))
        with client.messages.stream(model=model, tools=BLOCKS, **ASKED) as stream:
            check_message(stream.get_final_message())


@each_model
def test_anthropic_asynchronously(server: str, model: str) -> None:
    async def talk() -> None:
        async with httpx.AsyncClient(transport=AsyncVtcTransport(server_api="openai-chat")) as http:
            client = anthropic.AsyncAnthropic(base_url=server, api_key="k", http_client=http)
            check_message(await client.messages.create(model=model, tools=BLOCKS, **ASKED))
            async with client.messages.stream(model=model, tools=BLOCKS, **ASKED) as stream:
                check_message(await stream.get_final_message())

    asyncio.run(talk())


def answer_in_order(*answers: tuple[int, Any]) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    """Return a transport that gives these answers, and the list of its requests."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        status, content = answers[len(asked)]
        asked.append(request)
        return httpx.Response(status, json=content, headers={"x-request-id": str(len(asked))})

    return httpx.MockTransport(answer), asked


def test_a_rejected_request_is_retried() -> None:
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
    inner, asked = answer_in_order((400, NO_TOOLS), (200, {"id": "1", "object": "chat.completion", **reply}))
    with httpx.Client(transport=VtcTransport(inner)) as http:
        client = openai.OpenAI(base_url="http://model/v1", api_key="k", http_client=http, max_retries=0)
        completion = client.chat.completions.create(model="m", tools=TOOLS, **ASKED)
    assert completion.choices[0].message.content == "Hi"
    assert ["tools" in json.loads(request.content) for request in asked] == [True, False]
    assert {request.headers["content-length"] == str(len(request.content)) for request in asked} == {True}


def test_errors_and_other_requests_pass_through() -> None:
    inner, _ = answer_in_order((429, {"error": {"message": "slow down"}}), (200, {"data": []}))
    with httpx.Client(transport=VtcTransport(inner)) as http:
        client = openai.OpenAI(base_url="http://model/v1", api_key="k", http_client=http, max_retries=0)
        with pytest.raises(openai.RateLimitError, match="slow down") as caught:
            client.chat.completions.create(model="m", tools=TOOLS, **ASKED)
        assert caught.value.request_id == "1"
        assert client.models.list().data == []
