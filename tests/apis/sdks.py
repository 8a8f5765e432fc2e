"""Replies over loopback as the official SDKs parse them, converted to the types of the test parsers.

Each function accepts the pieces of a stream, or with `stream=False` a whole reply, and raises the SDK's exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable

import anthropic
import ollama as ollama_sdk
import openai
from openai.types.responses import Response

from tests.apis import messages, ollama, responses
from tests.apis.named_events import Json
from tests.e2e.upstream import JSON, SSE, Reply, serving


def _reply(pieces: Iterable[bytes], stream: bool, media: dict[str, str]) -> Reply:
    return Reply(pieces, media if stream else JSON)


def _without_stream(body: Json) -> Json:
    return {key: value for key, value in body.items() if key != "stream"}


async def read_messages(pieces: Iterable[bytes], *, stream: bool = True) -> messages.Read:
    """Parse a reply with anthropic-python."""
    reply = _reply(pieces, stream, SSE)
    async with serving(lambda _: reply) as upstream:
        transport = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False)
        key: Json = {"base_url": upstream.url, "api_key": "sk-none", "max_retries": 0}
        async with anthropic.AsyncAnthropic(http_client=transport, **key) as client:
            body = _without_stream(messages.request())
            return await read_message(client, body, stream=stream)


async def read_message(client: anthropic.AsyncAnthropic, body: Json, *, stream: bool) -> messages.Read:
    """Send a request, and return the reply as anthropic-python parses it."""
    if stream:
        async with client.messages.stream(**body) as events:
            final = await events.get_final_message()
    else:
        final = await client.messages.create(**body)
    blocks = [block.model_dump(exclude_unset=True) for block in final.content]
    return messages.Read(blocks, final.stop_reason, final.stop_sequence)


async def read_responses(pieces: Iterable[bytes], *, stream: bool = True) -> responses.Read:
    """Parse a reply with openai-python, whose `.stream()` is the strictest known parser."""
    reply = _reply(pieces, stream, SSE)
    async with serving(lambda _: reply) as upstream:
        transport = openai.DefaultAsyncHttpxClient(trust_env=False, verify=False)
        key: Json = {"base_url": f"{upstream.url}/v1", "api_key": "sk-none", "max_retries": 0}
        async with openai.AsyncOpenAI(http_client=transport, **key) as client:
            body = _without_stream(responses.request(tools=None))
            final = await final_response(client, body, stream=stream)
    items = [item.model_dump(exclude_unset=True, exclude={"parsed_arguments"}) for item in final.output]
    return responses.Read(items, final.status, final.incomplete_details and final.incomplete_details.reason)


async def final_response(client: openai.AsyncOpenAI, body: Json, *, stream: bool) -> Response:
    """Send a request, and return the reply as openai-python parses it."""
    if not stream:
        return await client.responses.create(**body)
    async with client.responses.stream(**body) as events:
        return await events.get_final_response()


async def read_ollama(pieces: Iterable[bytes], *, stream: bool = True) -> ollama.Read:
    """Parse a reply with ollama-python, which has no accumulator, so its lines are added up here."""
    reply = _reply(pieces, stream, ollama.NDJSON)
    async with serving(lambda _: reply) as upstream:
        client = ollama_sdk.AsyncClient(upstream.url, trust_env=False, verify=False)
        try:
            body = _without_stream(ollama.request())
            if stream:
                lines = [one async for one in await client.chat(**body, stream=True)]
            else:
                lines = [await client.chat(**body)]
        finally:
            await client.close()
    found = ollama.Read()
    for one in lines:
        found.content += one.message.content or ""
        found.reasoning += one.message.thinking or ""
        found.calls += [(made.function.name, made.function.arguments) for made in one.message.tool_calls or ()]
        found.done_reason = one.done_reason
    return found
