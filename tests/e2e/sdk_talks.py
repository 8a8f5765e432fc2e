"""A turn with a call and its result, as the official SDK of each API sends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import ollama as ollama_sdk
import openai
from google import genai

from tests.apis import chat, gemini, messages, ollama, pairs, responses, sdks
from tests.apis.pairs import READ
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import PATIENCE, Lab
from tests.e2e.upstream import JSON, Reply, Script, Seen


async def talk(client: str, lab: Lab, *, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    """Send a question with an SDK, then the result of the call; return the calls and the last text."""
    return await _TALKS[client](lab, stream)


async def _chat(lab: Lab, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    conversation: list[Any] = [{"role": "user", "content": "Read it"}]

    async def ask(sdk: openai.AsyncOpenAI) -> Any:
        fields: Any = {"model": chat.MODEL, "messages": conversation, "tools": chat.TOOLS}
        if not stream:
            return (await sdk.chat.completions.create(**fields)).choices[0].message
        async with sdk.chat.completions.stream(**fields) as events:
            return (await events.get_final_completion()).choices[0].message

    async with lab.sdk() as sdk:
        answer = await ask(sdk)
        made = answer.tool_calls or []
        conversation.append(answer.model_dump(exclude_none=True, exclude={"parsed"}))
        conversation += [{"role": "tool", "tool_call_id": one.id, "content": "hello"} for one in made]
        return [(one.function.name, json.loads(one.function.arguments)) for one in made], (await ask(sdk)).content


async def _messages(lab: Lab, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    conversation = [messages.user("Read it")]
    key: Any = {"base_url": lab.proxy.url, "api_key": "sk-none", "max_retries": 0, "timeout": PATIENCE}
    async with anthropic.AsyncAnthropic(
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False), **key
    ) as sdk:
        body = {"model": messages.MODEL, "max_tokens": 99, "messages": conversation, "tools": messages.TOOLS}
        answer = await sdks.read_message(sdk, body, stream=stream)
        conversation.append(messages.assistant(*answer.blocks))
        conversation.append(messages.user([messages.result("hello", id_) for id_ in answer.ids]))
        return answer.calls, (await sdks.read_message(sdk, body, stream=stream)).content


async def _responses(lab: Lab, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    conversation = [responses.make_input_message("user", "Read it")]
    async with lab.sdk() as sdk:
        body = {"model": chat.MODEL, "input": conversation, "tools": responses.TOOLS, "store": False}
        answer = await sdks.final_response(sdk, body, stream=stream)
        conversation += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        made = [item for item in answer.output if item.type == "function_call"]
        conversation += [responses.output("hello", one.call_id) for one in made]
        last = await sdks.final_response(sdk, body, stream=stream)
        return [(one.name, json.loads(one.arguments)) for one in made], last.output_text


async def _ollama(lab: Lab, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    conversation: list[Any] = [ollama.user("Read it")]
    sdk = ollama_sdk.AsyncClient(lab.proxy.url, trust_env=False, verify=False)

    async def ask() -> tuple[str, list[Any]]:
        body: Any = {"model": ollama.MODEL, "messages": conversation, "tools": ollama.TOOLS}
        if stream:
            lines = [one async for one in await sdk.chat(**body, stream=True)]
        else:
            lines = [await sdk.chat(**body)]
        text = "".join(one.message.content or "" for one in lines)
        return text, [made for one in lines for made in one.message.tool_calls or ()]

    try:
        text, made = await ask()
        calls = [ollama.call(one.function.name, **one.function.arguments) for one in made]
        conversation.append(ollama.assistant(text or "So:", *calls))  # the SDK sends no empty content
        conversation += [ollama.result("hello", one.function.name) for one in made]
        return [(one.function.name, dict(one.function.arguments)) for one in made], (await ask())[0]
    finally:
        await sdk.close()


async def _gemini(lab: Lab, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    conversation: list[Any] = [gemini.user("Read it")]

    async def ask(sdk: Any) -> Any:
        config = {"tools": gemini.TOOLS, "automatic_function_calling": {"disable": True}}
        asked: Any = {"model": gemini.MODEL, "contents": conversation, "config": config}
        if not stream:
            return [await sdk.models.generate_content(**asked)]
        return [one async for one in await sdk.models.generate_content_stream(**asked)]

    options = {
        "base_url": lab.proxy.url,
        "api_version": "v1beta",
        "async_client_args": {"trust_env": False, "verify": False},
    }
    async with genai.Client(api_key="sk-none", http_options=options).aio as sdk:
        parts = [part for one in await ask(sdk) for part in one.candidates[0].content.parts]
        made = [one.function_call for one in parts if one.function_call]
        conversation.append(gemini.model(*(one.model_dump(exclude_none=True, by_alias=True) for one in parts)))
        conversation.append(gemini.user(*(gemini.result("hello", one.name, one.id) for one in made)))
        text = "".join(one.text or "" for one in await ask(sdk))
        return [(one.name, one.args) for one in made], text


_TALKS = {
    "openai-chat": _chat,
    "anthropic-messages": _messages,
    "openai-responses": _responses,
    "ollama-chat": _ollama,
    "gemini-generate": _gemini,
}


IN_TEXT = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'


def serving(server: str, *, in_text: bool = False, seen: Callable[[Seen], None] = lambda _: None) -> Script:
    """Return a server of one API: it calls `read`, and states the result after receiving it."""
    shape = SHAPES[server]

    def script(one: Seen) -> Reply:
        seen(one)
        streams = one.path == shape.build_path(stream=True) != shape.path
        if not streams and one.path.partition("?")[0] != shape.path:
            return Reply([b'{"error": {"message": "Not Found"}}'], JSON, 404, framing="length")
        body = one.json
        pairs.check_request(server, body)
        calls = () if "hello" in json.dumps(body) else READ
        text = "It says hello." if not calls else IN_TEXT if in_text else "I look."
        calls = () if in_text else calls
        if streams or body.get("stream", server == "ollama-chat"):
            return Reply([pairs.make_stream(server, [text[:5], text[5:]], calls)], {"content-type": shape.media_type})
        return Reply([pairs.make_whole_reply(server, text, calls)], JSON, framing="length")

    return script
