"""Replies that call `read` after sealed reasoning, as servers of each API encode them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from tests.apis import chat, gemini, messages, responses
from tests.apis.named_events import Json

SEAL = "U0VBTA=="
"""Bytes in base64, the form of every server's seal."""
THOUGHT = "It is in /a."
READ = {"filePath": "/a"}
WRITTEN = json.dumps(READ)


class Form(NamedTuple):
    """A reply that calls `read`, as a server with a seal encodes it."""

    server: str
    model: str
    host: str
    whole: Json
    streamed: bytes
    back: Callable[[Json], list[Json]]
    """Returns the seals of a past turn in a request, at the server's place for them."""
    expected: Json
    thought: str = ""
    """The reasoning in the reply."""


def of_gemini(*before: Json) -> Form:
    parts = [*before, gemini.text("I look."), {**gemini.call("read", **READ), "thoughtSignature": SEAL}]
    frames = [gemini.frame(gemini.event(part)) for part in parts]

    def back(body: Json) -> list[Json]:
        found = [part for entry in body["contents"] for part in entry["parts"] if part.get("thoughtSignature")]
        return [{**one, "functionCall": {**one["functionCall"], "id": None}} for one in found]

    expected = {**gemini.call("read", **READ), "thoughtSignature": SEAL}
    expected["functionCall"]["id"] = None
    thought = before[0]["text"] if before else ""
    return Form(
        *("gemini-generate", "gemini-3-pro", "generativelanguage.googleapis.com"),
        gemini.reply(*parts),
        b"".join(gemini.make_stream(*frames)),
        back,
        expected,
        thought,
    )


def of_messages(block: Json, streamed: list[bytes]) -> Form:
    call = messages.call_block(1, "read", WRITTEN)

    def back(body: Json) -> list[Json]:
        blocks = [one for entry in body["messages"] for one in entry["content"] if isinstance(one, dict)]
        return [one for one in blocks if one["type"] in ("thinking", "redacted_thinking")]

    return Form(
        *("anthropic-messages", "claude-sonnet-4-6", "api.anthropic.com"),
        messages.message(block, messages.call("read", **READ), stop_reason="tool_use"),
        b"".join(messages.make_stream(streamed, call, stop_reason="tool_use")),
        back,
        block,
        block.get("thinking", ""),
    )


def of_responses(*summary: Json) -> Form:
    item = {"type": "reasoning", "id": "rs_1", "summary": [*summary], "encrypted_content": SEAL}
    thought = summary[0]["text"] if summary else ""
    events = (
        responses.reasoning_events(thought)
        if summary
        else [{"type": f"response.output_item.{what}", "item": item} for what in ("added", "done")]
    )
    events[-1] = {**events[-1], "item": item}

    def back(body: Json) -> list[Json]:
        return [one for one in body["input"] if one.get("type") == "reasoning"]

    return Form(
        *("openai-responses", "gpt-5.1", "api.openai.com"),
        responses.response(item, responses.call("read", **READ)),
        b"".join(responses.make_stream(events, responses.call_events("read", WRITTEN))),
        back,
        {"type": "reasoning", "summary": [], "encrypted_content": SEAL},
        thought,
    )


def of_chat(model: str, host: str, delta: Json, extra: Json) -> Form:
    """Return the reply of a chat server with these fields of the message, and of the call."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": WRITTEN}, **extra}
    message = {"role": "assistant", "content": None, **delta, "tool_calls": [call]}
    frames = [chat.ROLE, chat.chunk(delta) if delta else b"", chat.chunk({"tool_calls": [{"index": 0, **call}]})]

    def back(body: Json) -> list[Json]:
        past = [one for one in body["messages"] if one["role"] == "assistant"]
        listed = (one.get(key) for one in past for key in ("reasoning_details", "thinking_blocks"))
        found = [entry for entries in listed for entry in entries or ()]
        found += [{key: one[key] for key in COPILOT if key in one} for one in past if one.keys() & COPILOT]
        return [*found, *({"extra_content": call["extra_content"]} for call in past[0]["tool_calls"] if extra)]

    own = {key: delta[key] for key in COPILOT if key in delta} or next(
        (delta[key][0] for key in delta if isinstance(delta[key], list)), None
    )
    expected = {"extra_content": extra["extra_content"]} if extra else own
    return Form(
        *("openai-chat", model, host),
        chat.completion(None, "tool_calls", message=message),
        b"".join([*frames, chat.chunk({}, "tool_calls"), chat.DONE]),
        back,
        expected,
        THOUGHT if delta.keys() & {"reasoning", "reasoning_text", "reasoning_content"} else "",
    )


GOOGLE = {"extra_content": {"google": {"thought_signature": SEAL}}}
ENTRY = {"type": "reasoning.encrypted", "data": SEAL, "id": "rs_1", "format": "anthropic-claude-v1", "index": 0}
COPILOT = {"reasoning_opaque", "reasoning_text"}
REDACTED = {"type": "redacted_thinking", "data": SEAL}
FORMS = {
    "gemini": of_gemini(),
    "gemini, with a thought": of_gemini(gemini.make_thought(THOUGHT)),
    "messages": of_messages(messages.thinking(THOUGHT, SEAL), messages.thinking_block(0, THOUGHT, signature=SEAL)),
    "messages, a signature alone": of_messages(messages.thinking("", SEAL), messages.thinking_block(0, signature=SEAL)),
    "messages, redacted": of_messages(REDACTED, [messages.make_block_start(0, REDACTED), messages.make_block_stop(0)]),
    "responses": of_responses(),
    "responses, with a summary": of_responses({"type": "summary_text", "text": THOUGHT}),
    "chat of Google": of_chat("gemini-3-pro", "generativelanguage.googleapis.com", {}, GOOGLE),
    "chat of OpenRouter": of_chat("anthropic/claude-sonnet-4-6", "openrouter.ai", {"reasoning_details": [ENTRY]}, {}),
    "chat of OpenRouter, with a thought": of_chat(
        *("anthropic/claude-sonnet-4-6", "openrouter.ai"), {"reasoning": THOUGHT, "reasoning_details": [ENTRY]}, {}
    ),
    "chat of LiteLLM": of_chat("claude-sonnet-4-6", "litellm.test", {"thinking_blocks": [REDACTED]}, {}),
    "chat of LiteLLM, with a thought": of_chat(
        *("claude-sonnet-4-6", "litellm.test"),
        {"reasoning_content": THOUGHT, "thinking_blocks": [messages.thinking(THOUGHT, SEAL)]},
        {},
    ),
    "chat of Copilot": of_chat("gemini-3-pro", "api.githubcopilot.com", {"reasoning_opaque": SEAL}, {}),
    "chat of Copilot, with a thought": of_chat(
        *("gemini-3-pro", "api.githubcopilot.com"), {"reasoning_text": THOUGHT, "reasoning_opaque": SEAL}, {}
    ),
}
