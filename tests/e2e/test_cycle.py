"""The whole cycle of an agent with the official SDK and a server that knows neither `tools` nor `role: tool`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from tests.apis import chat
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

QUESTION = "What is in /etc/motd?"
SECRET = "moose </read> <tool_call>"
PROSE = "I will look.\n\n"

RESULTS = {
    "hermes": f"<tool_response>\n{SECRET}\n</tool_response>",
    "tools-tag": f"<tool_response>\n{SECRET}\n</tool_response>",
    "bare-json": f"Result of read:\n{SECRET}",
    "qwen3-coder": f"<tool_response>\n{SECRET}\n</tool_response>",
    "tag": f"Tool Result from read:\n{SECRET}",
    "invoke": f"<function_results>\n<result>\n<tool_name>read</tool_name>\n<stdout>{SECRET}</stdout>\n"
    "</result>\n</function_results>",
}


def strict_model(dialect: str) -> Callable[[Seen], Reply]:
    """Return a server that rejects unknown fields, and answers only if the whole cycle arrives as text."""
    call = chat.DIALECTS[dialect]("read", {"filePath": "/etc/motd"})

    def answer(request: dict[str, Any]) -> tuple[int, str]:
        roles = [message["role"] for message in request["messages"]]
        if {"tools", "tool_choice", "parallel_tool_calls"} & set(request) or "tool" in roles:
            return 400, "this server knows no tools"
        system, question, *rest = (message["content"] for message in request["messages"])
        if roles[:2] != ["system", "user"] or "read" not in system or question != QUESTION:
            return 400, "the model was not told of its tools"
        if not rest:
            return 200, PROSE + call
        if roles[2:] != ["assistant", "user"] or rest != [PROSE + call, RESULTS[dialect]]:
            return 400, f"the model does not know what it did: {rest}"
        return 200, f"It says {SECRET.split()[0]}."

    def script(seen: Seen) -> Reply:
        status, text = answer(seen.json)
        if status != 200:
            return Reply([chat.encode_json({"error": {"message": text}})], JSON, status)
        if seen.json["stream"]:
            return Reply(chat.make_stream(*text))
        return Reply([chat.encode_json(chat.completion(text))], JSON, framing="length")

    return script


type Complete = Callable[[list[Any]], Awaitable[ChatCompletionMessage]]
ASKED: dict[str, Any] = {"model": chat.MODEL, "tools": chat.TOOLS, "tool_choice": "auto", "parallel_tool_calls": True}


def join_chunks(chunks: Sequence[Any]) -> ChatCompletionMessage:
    """Return a message from the chunks of the SDK's `create(stream=True)`."""
    body = b"".join(chat.frame(one.model_dump(mode="json")) for one in chunks)
    found = chat.read(body)
    calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, (name, arguments) in zip(found.ids, found.calls, strict=True)
    ]
    return ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": found.content or None, "tool_calls": calls or None}
    )


def ways(lab: Lab) -> dict[str, Complete]:
    """Return every way in which the SDK can request a completion."""

    async def sync_whole(messages: list[Any]) -> ChatCompletionMessage:
        return await lab.in_thread(lambda client: whole(client, messages))

    def whole(client: openai.OpenAI, messages: list[Any]) -> ChatCompletionMessage:
        done: ChatCompletion = client.chat.completions.create(messages=messages, stream=False, **ASKED)
        return done.choices[0].message

    async def sync_chunks(messages: list[Any]) -> ChatCompletionMessage:
        return join_chunks(
            await lab.in_thread(
                lambda client: list(client.chat.completions.create(messages=messages, stream=True, **ASKED))
            )
        )

    async def sync_stream(messages: list[Any]) -> ChatCompletionMessage:
        def use(client: openai.OpenAI) -> ChatCompletionMessage:
            with client.chat.completions.stream(messages=messages, **ASKED) as stream:
                return stream.get_final_completion().choices[0].message

        return await lab.in_thread(use)

    async def async_whole(messages: list[Any]) -> ChatCompletionMessage:
        async with lab.sdk() as client:
            done: ChatCompletion = await client.chat.completions.create(messages=messages, stream=False, **ASKED)
            return done.choices[0].message

    async def async_chunks(messages: list[Any]) -> ChatCompletionMessage:
        async with lab.sdk() as client:
            stream = await client.chat.completions.create(messages=messages, stream=True, **ASKED)
            return join_chunks([one async for one in stream])

    async def async_stream(messages: list[Any]) -> ChatCompletionMessage:
        async with lab.sdk() as client, client.chat.completions.stream(messages=messages, **ASKED) as stream:
            return (await stream.get_final_completion()).choices[0].message

    return {
        "create": sync_whole,
        "create stream": sync_chunks,
        "stream()": sync_stream,
        "async create": async_whole,
        "async create stream": async_chunks,
        "async stream()": async_stream,
    }


WAYS = ["create", "create stream", "stream()", "async create", "async create stream", "async stream()"]


async def run_agent(complete: Complete) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """Request completions, execute the calls and send their results until there are no calls; return answer and
    calls.
    """
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    made: list[tuple[str, dict[str, str]]] = []
    while True:
        reply = await complete(messages)
        if not reply.tool_calls:
            return reply.content or "", made
        messages.append(reply.model_dump(include={"role", "content", "tool_calls"}))
        for call in reply.tool_calls:
            assert call.type == "function"
            made.append((call.function.name, json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": SECRET})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_ask_call_result_answer(dialect: str, way: str, start: Start) -> None:
    """The cycle works with each dialect and each way of the SDK, as if the server knew tools."""
    lab = await start(strict_model(dialect), vtc_tools="prompt", vtc_dialect=dialect, vtc_model="hermes")
    answer, calls = await run_agent(ways(lab)[way])
    assert (answer, calls) == ("It says moose.", [("read", {"filePath": "/etc/motd"})])
    assert len(lab.upstream.seen) == 2


async def test_without_the_addon_such_a_server_is_of_no_use(start: Start) -> None:
    lab = await start(strict_model("tag"), vtc_tools="prompt", vtc_mode="off")
    with pytest.raises(openai.BadRequestError, match="this server knows no tools"):
        await run_agent(ways(lab)["async create"])


async def test_two_agents_at_once_do_not_mix(start: Start) -> None:
    """Each stream has separate state."""
    gate = asyncio.Barrier(2)

    def script(seen: Seen) -> Reply:
        path = seen.json["messages"][0]["content"]
        text = PROSE + chat.DIALECTS["tag"]("read", {"filePath": path})

        async def pieces() -> Any:
            for frame in chat.make_stream(*text):
                await gate.wait()  # the pieces of both streams alternate
                yield frame

        return Reply(pieces())

    lab = await start(script)
    answers = await asyncio.gather(*(lab.post(chat.request(path, stream=True)) for path in ("/one", "/two")))
    assert [answer.message.calls for answer in answers] == [
        [("read", {"filePath": "/one"})],
        [("read", {"filePath": "/two"})],
    ]
