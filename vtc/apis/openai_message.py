"""A chat completion as the messages it adds up to, JSON or server-sent events: for people to read, never to rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.apis.base import Reply
from vtc.apis.openai_calls import Gathered
from vtc.apis.openai_json import decode
from vtc.events import Message
from vtc.wire import sse

_JOINED = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a delta whose pieces are one text."""


def replies(body: bytes) -> list[Reply]:
    """Each choice as one message, with the finish reason; raises ValueError if the body is no chat completion.

    Of a stream that broke off, what had come.
    """
    chunks = _chunks(body)
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for entry in (chunk.get("choices") or []) if isinstance(chunk, dict) else []:
            choice = choices.setdefault(entry.get("index") or 0, {"message": {}, "calls": Gathered(), "reason": None})
            _add(choice, entry.get("message") or entry.get("delta") or {})
            choice["reason"] = entry.get("finish_reason") or choice["reason"]
    if not any(isinstance(chunk, dict) and "choices" in chunk for chunk in chunks):
        raise ValueError("the reply is no chat completion")
    return [_reply(choice) for _, choice in sorted(choices.items())]


def _chunks(body: bytes) -> list[Any]:
    if body.lstrip().startswith((b"{", b"[")):
        return [decode(body)]
    reader = sse.FrameReader()
    frames = [*reader.feed(body), *reader.finish()]
    found = []
    for frame in frames:
        if frame.data and frame.data.strip() != b"[DONE]":
            try:
                found.append(decode(frame.data))
            except ValueError:
                continue  # the last one of a stream that was cut
    return found


def _add(choice: dict[str, Any], part: Mapping[str, Any]) -> None:
    message = choice["message"]
    choice["calls"].add(part)
    for key, value in part.items():
        if key in _JOINED and isinstance(value, str):
            message[key] = (message.get(key) or "") + value
        elif key not in ("tool_calls", "function_call") and value is not None:
            message[key] = value


def _reply(choice: Mapping[str, Any]) -> Reply:
    message = choice["message"]
    content = message.get("content")
    calls = tuple(choice["calls"].calls())
    text = (content,) if isinstance(content, str) and content else ()
    return Reply(Message(message.get("role") or "assistant", text, calls, source=message), choice["reason"])


def reasoning(message: Message) -> str:
    """What a message of this API holds of the model's thinking, beside its content."""
    source = message.source if isinstance(message.source, Mapping) else {}
    found = source.get("reasoning_content") or source.get("reasoning")
    return found if isinstance(found, str) else ""
