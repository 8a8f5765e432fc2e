"""Conversations of clients that send back the calls that they received, without the reasoning before them.

This module uses VTC only to parse the client's reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.named_events import Json
from vtc.apis import APIS, whole
from vtc.events import Message

BY_NAME = {api.name: api for api in APIS}
MODEL = "made-up-model"


def get_history_key(api: str) -> str:
    """Return the name of the request's field that contains the conversation."""
    return {"openai-responses": "input", "gemini-generate": "contents"}.get(api, "messages")


def make_question(client: str, text: str) -> list[Any]:
    """Return the user's message as entries of a conversation."""
    match client:
        case "anthropic-messages":
            return [messages.user([messages.text(text)])]
        case "openai-responses":
            return [responses.make_input_message("user", text)]
        case "gemini-generate":
            return [gemini.user(text)]
    return [{"role": "user", "content": text}]


def decode_reply(client: str, body: bytes) -> Message:
    """Decode the reply that the client received."""
    return whole.read_replies(BY_NAME[client], body)[0].message


def decode_usage(client: str, body: bytes) -> tuple[int, int] | None:
    """Return the usage that the client received, of the prompt and of the reply; None if there is none."""
    usage = whole.read_replies(BY_NAME[client], body)[0].usage
    return (usage.prompt, usage.completion) if usage else None


def make_answer_entries(client: str, reply: Message, result: str) -> list[Any]:
    """Return the entries of a reply in the next request, with the results of its calls."""
    calls = [(call.name, call.id or "", json.loads(call.arguments)) for call in reply.calls]
    match client:
        case "anthropic-messages":
            blocks = [messages.text(reply.text)] if reply.text else []
            blocks += [messages.call(name, id_, **arguments) for name, id_, arguments in calls]
            results = [messages.result(result, id_) for _, id_, _ in calls]
            return [messages.assistant(*blocks), *([messages.user(results)] if results else [])]
        case "openai-responses":
            items: list[Json] = [responses.message(reply.text)] if reply.text else []
            items += [responses.call(name, f"fc_{id_}", id_, **arguments) for name, id_, arguments in calls]
            return [*items, *(responses.output(result, id_) for _, id_, _ in calls)]
        case "ollama-chat":
            made = [ollama.call(name, **arguments) for name, _, arguments in calls]
            return [ollama.assistant(reply.text, *made), *(ollama.result(result, name) for name, _, _ in calls)]
        case "gemini-generate":
            parts = [gemini.text(reply.text)] if reply.text else []
            parts += [gemini.call(name, id_, **arguments) for name, id_, arguments in calls]
            answers = [gemini.result(result, name, id_) for name, id_, _ in calls]
            return [gemini.model(*parts), *([gemini.user(*answers)] if answers else [])]
    entry: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if calls:
        entry["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, id_, arguments in calls
        ]
    return [entry, *({"role": "tool", "tool_call_id": id_, "content": result} for _, id_, _ in calls)]


ASKED: dict[str, Json] = {
    "anthropic-messages": {"thinking": {"type": "adaptive"}},
    "openai-responses": {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"}},
    "gemini-generate": {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
    "openai-chat": {},
}
"""The fields with which a client requests seals, by the APIs that can carry them."""


def make_full_entries(client: str, out: bytes, result: str, *, stream: bool) -> list[Any]:
    """Return the entries of a reply in the next request of a client that sends everything back, with the results."""
    without_reasoning = make_answer_entries(client, decode_reply(client, out), result)
    match client:
        case "anthropic-messages":
            return [messages.assistant(*messages.read(out).blocks), *without_reasoning[1:]]
        case "openai-responses":
            return [
                *responses.read(out).items,
                *(item for item in without_reasoning if item["type"].endswith("_output")),
            ]
        case "openai-chat":
            return [{**without_reasoning[0], **merge_message(out, stream=stream)}, *without_reasoning[1:]]
    return [gemini.model(*collect_parts(out, stream=stream)), *without_reasoning[1:]]


def merge_message(out: bytes, *, stream: bool) -> Json:
    """Merge the deltas of a chat completion into the message with calls and seals that a client sends back."""
    deltas = [one["choices"][0]["delta"] for one in chat.events(out)[:-1] if one["choices"]] if stream else []
    deltas = deltas or [json.loads(out)["choices"][0]["message"]]
    calls: dict[int, Any] = {}
    for at, piece in [(at, piece) for delta in deltas for at, piece in enumerate(delta.get("tool_calls") or ())]:
        call = calls.setdefault(piece.get("index", at), {"function": {"arguments": ""}})
        more = piece.get("function", {})
        function = {**more, "arguments": call["function"]["arguments"] + more.get("arguments", "")}
        call |= {**piece, "function": {**call["function"], **function}}
    lists = {
        key: [entry for delta in deltas for entry in delta.get(key) or ()]
        for key in ("reasoning_details", "thinking_blocks")
    }
    kept = [{key: value for key, value in call.items() if key != "index"} for call in calls.values()]
    texts = {key: "".join(delta.get(key) or "" for delta in deltas) for key in ("reasoning_text", "reasoning_opaque")}
    return {"tool_calls": kept, **{key: value for key, value in (lists | texts).items() if value}}


def collect_parts(out: bytes, *, stream: bool) -> list[Json]:
    """Return the non-empty parts of a reply of Gemini's API."""
    events = chat.events(out) if stream else [json.loads(out)]
    parts = [part for one in events for part in one["candidates"][0]["content"]["parts"]]
    return [one for one in parts if one != gemini.text("")]


def find_reasoning(server: str, body: Mapping[str, Any]) -> list[str]:
    """Return the reasoning of past turns from the one place in which a server expects it."""
    match server:
        case "anthropic-messages":
            blocks = [one for entry in body["messages"] for one in entry["content"] if isinstance(one, dict)]
            return [one["thinking"] for one in blocks if one["type"] == "thinking"]
        case "openai-responses":
            items = [one for one in body["input"] if one.get("type") == "reasoning"]
            return ["".join(part["text"] for part in one["content"]) for one in items]
        case "gemini-generate":
            parts = [part for entry in body["contents"] for part in entry["parts"]]
            return [one["text"] for one in parts if one.get("thought")]
    name = "thinking" if server == "ollama-chat" else "reasoning_content"
    return [one[name] for one in body["messages"] if one.get(name)]
