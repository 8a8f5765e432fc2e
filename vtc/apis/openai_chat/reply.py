"""Whole replies of chat completions as chunks, and back; errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.contract import Json
from vtc.apis.openai_chat import words
from vtc.apis.request import Request
from vtc.apis.whole import add_piece
from vtc.events import Failure

_REASONING_CHUNK_FIELDS = dict.fromkeys((*REASONING_FIELDS, *words.SEALED_FIELDS))
SEPARATE_CHUNK_FIELDS = ("role", "content", *_REASONING_CHUNK_FIELDS, "tool_calls")
"""Fields of a message that get separate chunks; all others share one."""


def unfold_reply(reply: Any, request: Request | None) -> Iterator[dict[str, Any]]:
    """Convert a chat completion to chunks; to one per choice if no client asked for them. Raises ValueError.

    A stream has the order of servers: a chunk with the role, the reasoning, the text, one chunk per call, one with the
    finish reason, usage if it was asked for, `[DONE]`. A client gets a finish reason in any case.
    """
    head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    options = request.fields.get("stream_options") if request else {"include_usage": True}
    for entry in reply["choices"]:
        if entry.get("delta"):
            raise ValueError("a choice of a whole reply has a `delta`, as chunks do")
        for choice in _split_choice(entry) if request else (_render_whole_choice(entry),):
            yield {**head, "choices": [choice]}
    if isinstance(options, dict) and options.get("include_usage") and reply.get("usage") is not None:
        yield {**head, "choices": [], "usage": reply["usage"]}


def fold_chunks(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine chunks into a chat completion."""
    reply: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        reply.update(chunk)
        for entry in chunk["choices"]:
            choice = choices.setdefault(entry["index"], {"message": {"content": ""}})
            add_piece(choice["message"], {key: value for key, value in entry["delta"].items() if key != "tool_calls"})
            if (pieces := entry["delta"].get("tool_calls")) is not None:
                calls = choice["message"].setdefault("tool_calls", {})  # also if empty: a profile may drop the list
                for call in pieces:
                    add_piece(calls.setdefault(call["index"], {}), {key: call[key] for key in call if key != "index"})
            choice.update((key, value) for key, value in entry.items() if key != "delta")
    for choice in choices.values():
        message = choice["message"]
        if "tool_calls" in message:
            message["tool_calls"] = [*message["tool_calls"].values()]
            message["content"] = message["content"] or (None if message["tool_calls"] else "")
    return {**reply, "object": "chat.completion", "choices": [*choices.values()]}


def _render_whole_choice(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Render a choice as one chunk."""
    rest = {key: value for key, value in entry.items() if key != "message"}
    delta = {**(entry.get("message") or {})}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{**call, "index": number} for number, call in enumerate(delta["tool_calls"])]
    return {"index": 0, **rest, "delta": delta, "finish_reason": entry.get("finish_reason") or None}


def _split_choice(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Render a choice as several chunks."""
    message = entry.get("message") or {}
    index = entry.get("index", 0)
    others = {
        key: value for key, value in message.items() if key not in SEPARATE_CHUNK_FIELDS and value not in (None, [])
    }
    deltas: list[dict[str, Any]] = [{"role": message.get("role") or "assistant", "content": ""}]
    reasoning: dict[str, Any] = {key: message[key] for key in _REASONING_CHUNK_FIELDS if message.get(key)}
    if reasoning:
        deltas.append(reasoning)  # one chunk, because all fields have the same text
    if message.get("content"):
        deltas.append({"content": message["content"]})
    if others:
        deltas.append(others)
    for number, call in enumerate(message.get("tool_calls") or []):
        deltas.append({"tool_calls": [{**call, "index": number}]})
    for delta in deltas:
        yield {"index": index, "delta": delta, "finish_reason": None}
    rest = {key: value for key, value in entry.items() if key not in ("index", "message", "finish_reason")}
    yield {"index": index, "delta": {}, **rest, "finish_reason": entry.get("finish_reason") or "stop"}


def build_error(failure: Failure, status: int) -> Json:
    """Render an error."""
    return {"error": words.build_error(failure.message, failure.kind, status)}
