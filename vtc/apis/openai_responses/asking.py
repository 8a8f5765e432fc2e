"""Requests of Responses that stand for those of another API.

What the model thought is left out, unless this very server told it: it may want the content that it encrypted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from vtc.apis import media
from vtc.apis.asking import placed
from vtc.apis.base import Json
from vtc.apis.openai_chat import asking as openai_chat
from vtc.events import Asked, Failure, Media, Message, Opaque, Seal

LIMITS: Mapping[str, Sequence[str]] = {
    "max_tokens": ("max_output_tokens",),
    **{name: (name,) for name in ("temperature", "top_p")},
}
CARRIED: Sequence[str] = (
    *("model", "input", "instructions", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls"),
    *("max_output_tokens", "temperature", "top_p", "reasoning.effort", "reasoning.summary", "text.format"),
    *("store", "include", "metadata", "user"),
    *("prompt_cache_key", "client_metadata", "safety_identifier", "service_tier"),
)


def ask(asked: Asked) -> Json:
    """Write a request; the server is to keep nothing of it."""
    opening = asked.messages[0] if asked.messages else Message("user")
    is_prompt = opening.role == "system"
    fields: dict[str, Any] = {"model": asked.model}
    if is_prompt:
        fields["instructions"] = opening.text
    rest = asked.messages[1:] if is_prompt else asked.messages
    fields |= {"input": [item for message in rest for item in _items(message)], **placed(asked.limits, LIMITS)}
    fields |= {"stream": asked.stream, "store": False}
    if asked.tools:
        declared = ({**one.as_openai()["function"], "strict": one.strict} for one in asked.tools)
        fields["tools"] = [{"type": "function", **one} for one in declared]
        if asked.choice != "auto":
            is_word = asked.choice in ("none", "required")
            fields["tool_choice"] = asked.choice if is_word else {"type": "function", "name": asked.choice}
        if not asked.parallel:
            fields["parallel_tool_calls"] = False
    if asked.effort not in (None, "auto"):
        fields["reasoning"] = {"effort": openai_chat.EFFORTS.get(str(asked.effort), asked.effort)}
    if asked.effort not in (None, "none"):
        fields["include"] = ["reasoning.encrypted_content"]  # else it could not come back, as the server keeps nothing
    if answer := asked.answer:
        form: dict[str, Any] = {"type": "json_object"}
        if answer.schema:
            form = {"type": "json_schema", "name": answer.name, "schema": answer.schema, "strict": bool(answer.strict)}
        fields["text"] = {"format": form}
    return fields


def _items(message: Message) -> Iterator[Json]:
    if message.role == "tool":
        plain = all(isinstance(part, str) for part in message.content)
        output = "\n".join(map(str, message.content)) if plain else _parts(message, "input_text")
        yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
        return
    if message.seal and (message.reasoning or message.seal.encrypted):
        yield thinking(message)
    kind = "output_text" if message.role == "assistant" else "input_text"
    for thought, some in groupby(message.content, lambda one: one.thought if isinstance(one, Opaque) else None):
        if thought:
            yield {"type": "reasoning", "summary": [], "encrypted_content": thought.encrypted}
        else:
            yield {"type": "message", "role": message.role, "content": _parts(replace(message, content=(*some,)), kind)}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def thinking(message: Message) -> Json:
    """Write the item of what the model thought: the encrypted one alone, else its text.

    Its id is the same in every turn. What is encrypted has none, as its server would know that as another's.
    """
    sealed = message.seal.encrypted if message.seal else ""
    if sealed or not message.reasoning:
        return {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    id_ = hashlib.sha256(message.reasoning.encode(errors="surrogatepass")).hexdigest()[:24]
    return {
        "type": "reasoning",
        "id": f"rs_{id_}",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": message.reasoning}],
    }


def _parts(message: Message, kind: str) -> list[Json]:
    return [{"type": kind, "text": part} if isinstance(part, str) else _part(part) for part in media.parts_of(message)]


def _part(one: Media) -> Json:
    if one.kind == "image":
        return {"type": "input_image", "image_url": media.to_url(one), **({"detail": one.detail} if one.detail else {})}
    if one.url:
        return {"type": "input_file", "file_url": one.url}
    return {"type": "input_file", "filename": one.name or "document.pdf", "file_data": media.to_url(one)}


def meaning(part: Any) -> str | Media | Seal | None:
    """Tell what a part of a message, or an item, is."""
    match part:
        case str():
            return part
        case {"type": "input_image", "image_url": url, **rest}:
            return media.from_url("image", url, detail=rest.get("detail"))
        case {"type": "input_file", **rest}:
            url = rest.get("file_data") or rest.get("file_url")
            return media.from_url("document", url, str(rest.get("filename") or ""))
        case {"type": "refusal", "refusal": str(text)} | {"text": str(text)}:
            return text
        case {"type": str(kind), "content": str(text)} if kind != "reasoning":
            return text
        case {"type": str(kind), "content": list(parts)} if kind != "reasoning":
            return "\n".join(said for one in parts if isinstance(said := meaning(one), str)) or None
        case {"type": "reasoning", "encrypted_content": str(value)}:
            return Seal(encrypted=value)
        case {"type": str(kind), "output": str(text)} if kind.endswith("_output"):
            return text
    return None


def kind(part: Any) -> str:
    """Name an item that cannot be told; what was thought before, and tools that are told elsewhere, are no news."""
    type_ = str(part.get("type") or "part") if isinstance(part, dict) else "part"
    return "" if type_ in ("reasoning", "additional_tools") else type_


def error(failure: Failure, status: int) -> Json:
    """Write an error, as chat completions have it."""
    return openai_chat.error(failure, status)
