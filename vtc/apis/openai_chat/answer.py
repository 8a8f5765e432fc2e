"""Whole chat completions as streams, and replies that no model wrote.

A stream has the order that servers write: a chunk with the role, the reasoning, the text, one chunk for each call, one
with the finish reason, the usage if it was asked for, `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vtc.apis.base import Request
from vtc.apis.crossing import FIELDS
from vtc.apis.folding import add
from vtc.apis.openai_chat import details

SAID = ("role", "content", *FIELDS, details.FIELD, "tool_calls")
"""Fields of a message that get chunks of their own; the others share one."""


def answer(request: Request, text: str, digest: str, created: int) -> dict[str, Any]:
    """Make a chat completion that says a text."""
    message = {"role": "assistant", "content": text}
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": created,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def unfolded(reply: Any, request: Request | None) -> Iterator[dict[str, Any]]:
    """Tell a chat completion by chunks; one for each choice if no client asked for them. Raises ValueError."""
    head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    asked = request.fields.get("stream_options") if request else {"include_usage": True}
    for entry in reply["choices"]:
        if entry.get("delta"):
            raise ValueError("a choice of a whole reply has a `delta`, as chunks do")
        for choice in _choices(entry) if request else (_whole(entry),):
            yield {**head, "choices": [choice]}
    if isinstance(asked, dict) and asked.get("include_usage") and reply.get("usage") is not None:
        yield {**head, "choices": [], "usage": reply["usage"]}


def folded(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up chunks to a chat completion."""
    reply: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        reply.update(chunk)
        for entry in chunk["choices"]:
            choice = choices.setdefault(entry["index"], {"message": {"content": ""}})
            add(choice["message"], {key: value for key, value in entry["delta"].items() if key != "tool_calls"})
            for call in entry["delta"].get("tool_calls") or ():
                calls = choice["message"].setdefault("tool_calls", {})
                add(calls.setdefault(call["index"], {}), {key: call[key] for key in call if key != "index"})
            choice.update((key, value) for key, value in entry.items() if key != "delta")
    for choice in choices.values():
        message = choice["message"]
        if "tool_calls" in message:
            message["tool_calls"] = [*message["tool_calls"].values()]
        if "tool_calls" in message or "function_call" in message:
            message["content"] = message["content"] or None
    return {**reply, "object": "chat.completion", "choices": [*choices.values()]}


def _whole(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a choice becomes in one chunk."""
    rest = {key: value for key, value in entry.items() if key != "message"}
    delta = {**(entry.get("message") or {})}
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{**call, "index": number} for number, call in enumerate(delta["tool_calls"])]
    return {"index": 0, **rest, "delta": delta, "finish_reason": entry.get("finish_reason") or "stop"}


def _choices(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What a choice becomes in each of its chunks."""
    message = entry.get("message") or {}
    index = entry.get("index", 0)
    others = {key: value for key, value in message.items() if key not in SAID and value not in (None, [])}
    deltas: list[dict[str, Any]] = [{"role": message.get("role") or "assistant", "content": ""}]
    thoughts: dict[str, Any] = {key: message[key] for key in (*FIELDS, details.FIELD) if message.get(key)}
    deltas += [thoughts] if thoughts else []  # one thing, whatever its names
    deltas += [{"content": message["content"]}] if message.get("content") else []
    deltas += [others] if others else []
    calls = message.get("tool_calls") or []
    deltas += [{"tool_calls": [{**call, "index": number}]} for number, call in enumerate(calls)]
    for delta in deltas:
        yield {"index": index, "delta": delta, "finish_reason": None}
    rest = {key: value for key, value in entry.items() if key not in ("index", "message", "finish_reason")}
    yield {"index": index, "delta": {}, **rest, "finish_reason": entry.get("finish_reason") or "stop"}
