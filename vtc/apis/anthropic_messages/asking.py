"""Requests of Anthropic Messages that stand for those of another API.

What the model thought is left out, unless this very server told it: it may want the signature that it made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtc.apis import media
from vtc.apis.anthropic_messages.answer import block_of
from vtc.apis.asking import placed
from vtc.apis.base import Json
from vtc.events import Asked, Failure, Media, Message, Opaque, Seal

LIMITS: Mapping[str, Sequence[str]] = {
    **{name: (name,) for name in ("max_tokens", "temperature", "top_p", "top_k")},
    "stop": ("stop_sequences",),
}
CARRIED: Sequence[str] = (
    *("model", "messages", "system", "stream", "tools", "tool_choice", "thinking.type", "thinking.display"),
    *("output_config.effort", "output_config.format", "output_format"),
    *("max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "cache_control"),
)
MOST_TOKENS = 8192
"""The limit of a reply where the client set none, as this API demands one: the most that all of its models take."""
MOST_WITH_THOUGHTS = 32_000
"""The same for models that think, whose thoughts count."""
_EFFORTS = {"minimal": "low", "xhigh": "high"}
QUIET = ("thinking", "redacted_thinking")
"""Blocks of what the model thought. They cannot hold `cache_control`."""
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def ask(asked: Asked) -> Json:
    """Write a request."""
    opening, *rest = asked.messages if asked.messages[:1] else [Message("user")]
    is_prompt = opening.role == "system"
    fields: dict[str, Any] = {"model": asked.model, "max_tokens": MOST_TOKENS, **placed(asked.limits, LIMITS)}
    if is_prompt:
        fields["system"] = opening.text
    fields["messages"] = _entries(rest if is_prompt else asked.messages)
    fields["stream"] = asked.stream
    if asked.tools:
        fields["tools"] = [
            {
                "name": one.name,
                "description": one.description,
                "input_schema": dict(one.parameters),
                **({"strict": True} if one.strict else {}),
            }
            for one in asked.tools
        ]
        choice: dict[str, Any] = {"type": {"required": "any"}.get(asked.choice, asked.choice)}
        if asked.choice not in ("auto", "none", "required"):
            choice = {"type": "tool", "name": asked.choice}
        if not asked.parallel and asked.choice != "none":
            choice["disable_parallel_tool_use"] = True
        if choice != {"type": "auto"}:
            fields["tool_choice"] = choice
    told: dict[str, Any] = {}
    if asked.effort == "none":
        fields["thinking"] = {"type": "disabled"}
    elif asked.effort and asked.choice in ("auto", "none"):  # with a call that is demanded it is an error
        fields["thinking"] = {"type": "adaptive"}
        fields["max_tokens"] = asked.limits.get("max_tokens", MOST_WITH_THOUGHTS)
    if asked.effort not in (None, "none", "auto"):
        told["effort"] = _EFFORTS.get(str(asked.effort), asked.effort)
    if asked.answer and asked.answer.schema:
        told["format"] = {"type": "json_schema", "schema": asked.answer.schema}
    return {**fields, "output_config": told} if told else fields


def _entries(messages: Sequence[Message]) -> list[Json]:
    """Write messages; results, and what the user says after them, are one message."""
    entries: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if not entries or entries[-1]["role"] != role:
            entries.append({"role": role, "content": []})
        entries[-1]["content"] += _blocks(message)
    return [entry for entry in entries if entry["content"]]


def _blocks(message: Message) -> list[Json]:
    said = [block for part in message.content for block in _blocks_of(part)]
    if message.role != "tool":
        thought = [thinking(message)] if message.seal and (message.reasoning or message.seal != Seal()) else []
        return [*thought, *said, *map(block_of, message.calls)]
    return [{"type": "tool_result", "tool_use_id": message.call_id, "content": said}]


def _blocks_of(part: str | Opaque) -> Iterator[Json]:
    if isinstance(part, str):
        if part.strip():
            yield {"type": "text", "text": part}
    elif part.media:
        yield _block(part.media)
    elif part.thought and part.thought.signature:
        yield {"type": "thinking", "thinking": part.thought.text, "signature": part.thought.signature}
    elif part.thought:
        yield {"type": "redacted_thinking", "data": part.thought.encrypted}


def thinking(message: Message) -> Json:
    """Write the block of what the model thought."""
    if message.seal and message.seal.encrypted:
        return {"type": "redacted_thinking", "data": message.seal.encrypted}
    signature = message.seal.signature if message.seal else ""
    return {"type": "thinking", "thinking": message.reasoning, "signature": signature}


def _block(one: Media) -> Json:
    if one.data:
        source = {"type": "base64", "media_type": one.media_type, "data": one.data}
    else:
        source = {"type": "url", "url": one.url}
    return {"type": one.kind, "source": source}


def meaning(part: Any) -> str | Media | Seal | None:
    """Tell what a block is."""
    match part:
        case str():
            return part
        case {"type": ("image" | "document") as kind, "source": {"type": "base64", "data": str(data), **rest}}:
            return Media(kind, str(rest.get("media_type") or ""), data, name=str(part.get("title") or ""))
        case {"type": ("image" | "document") as kind, "source": {"type": "url", "url": url}}:
            return media.from_url(kind, url, str(part.get("title") or ""))
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return _about(part, text)
        case {"type": "document", "source": {"type": "content", "content": str(text)}}:
            return _about(part, text)
        case {"type": "document", "source": {"type": "content", "content": list(found)}} if all(
            isinstance(one, dict) and one.get("type") == "text" for one in found
        ):
            return _about(part, _joined(found))
        case {"type": "search_result", "content": list(found)}:
            return _about(part, _joined(found))
        case {"type": "tool_reference", "tool_name": str(name)}:
            return f"The tool {name} can be called now."
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "thinking", "signature": str(value)} | {"type": "redacted_thinking", "data": str(value)}:
            return Seal(value)
    return None


def _joined(blocks: Sequence[Any]) -> str:
    return "\n".join(str(one.get("text") or "") for one in blocks if isinstance(one, dict))


def _about(part: Json, text: str) -> str:
    """Tell the text of a document or a search result, after what its fields say of it: where it is from, too."""
    said = [part.get(key) for key in ("title", "source", "context")]
    return "\n".join(one for one in (*said, text) if isinstance(one, str))


def unsaid(part: Any) -> Iterator[str]:
    """Name the fields of a document or of a search result that no other API has a word for."""
    if isinstance(part, dict) and part.get("type") in ("document", "search_result"):
        if isinstance(citations := part.get("citations"), dict) and citations.get("enabled"):
            yield "citations"
        if part.get("context") and not isinstance(meaning(part), str):
            yield "context of documents"


def kind(part: Any) -> str:
    """Name a block that cannot be told; what was thought before is left out without a word."""
    type_ = str(part.get("type") or "part") if isinstance(part, dict) else "part"
    return "" if type_ in QUIET else type_


def error(failure: Failure, status: int) -> Json:
    """Write an error, by its status."""
    words = re.match(r"(\w+)_error$", failure.kind)
    known = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": failure.kind if words and status == 200 else known, "message": failure.message},
    }
