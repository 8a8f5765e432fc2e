"""Whole chat completions as streams, and replies that no model wrote.

A stream has the order that servers write: a chunk with the role, the reasoning, the text, one chunk for each call, one
with the finish reason, the usage if it was asked for, `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vtc.json_text import decode, encode

DONE = b"data: [DONE]\n\n"
SAID = ("role", "content", "reasoning", "reasoning_content", "tool_calls")
"""Fields of a message that get chunks of their own; the others share one."""


def completion(text: str, *, id_: str, model: str, created: int) -> bytes:
    """A chat completion that says `text`."""
    message = {"role": "assistant", "content": text}
    return encode(
        {
            "id": id_,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
    )


def streamed(body: bytes, *, usage: bool) -> bytes:
    """A chat completion as server-sent events, with a usage chunk if `usage`; raises ValueError if it is none."""
    reply = decode(body)
    if not isinstance(reply, dict) or not isinstance(reply.get("choices"), list):
        raise ValueError("the reply is no chat completion")
    head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    chunks = [{**head, "choices": [choice]} for entry in reply["choices"] for choice in _choices(entry)]
    if usage and reply.get("usage") is not None:
        chunks.append({**head, "choices": [], "usage": reply["usage"]})
    return b"".join(b"data: " + encode(chunk) + b"\n\n" for chunk in chunks) + DONE


def _choices(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What a choice becomes in each of its chunks."""
    message = entry.get("message") or {}
    index = entry.get("index", 0)
    others = {key: value for key, value in message.items() if key not in SAID and value not in (None, [])}
    deltas: list[dict[str, Any]] = [{"role": message.get("role") or "assistant", "content": ""}]
    deltas += [{key: message[key]} for key in ("reasoning", "reasoning_content", "content") if message.get(key)]
    deltas += [others] if others else []
    calls = message.get("tool_calls") or []
    deltas += [{"tool_calls": [{**call, "index": number}]} for number, call in enumerate(calls)]
    for delta in deltas:
        yield {"index": index, "delta": delta, "finish_reason": None}
    rest = {key: value for key, value in entry.items() if key not in ("index", "message", "finish_reason")}
    yield {"index": index, "delta": {}, **rest, "finish_reason": entry.get("finish_reason") or "stop"}
