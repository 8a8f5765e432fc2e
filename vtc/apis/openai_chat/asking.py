"""Requests of chat completions that stand for those of another API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtc.apis import media
from vtc.apis.asking import placed
from vtc.apis.base import FULL, Json
from vtc.apis.openai_chat import details
from vtc.events import Asked, Failure, Media, Message

LIMITS: Mapping[str, Sequence[str]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens"),
    **{
        name: (name,)
        for name in ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty")
    },
}
CARRIED: Sequence[str] = (
    *("model", "messages", "stream", "stream_options", "tools", "functions", "tool_choice", "function_call"),
    *("parallel_tool_calls", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed"),
    *("stop", "presence_penalty", "frequency_penalty", "reasoning_effort", "response_format", "n", "user", "store"),
    *("metadata", "prompt_cache_key", "safety_identifier"),
)
EFFORTS = {"max": "xhigh"}
"""Words for how much to think that only other APIs have."""


def ask(asked: Asked) -> Json:
    """Write a request; usage is always asked for, as other APIs tell it."""
    fields: dict[str, Any] = {
        "model": asked.model,
        "messages": [*_entries(asked.messages, asked.thoughts)],
        **placed(asked.limits, LIMITS),
        "stream": asked.stream,
    }
    if asked.stream:
        fields["stream_options"] = {"include_usage": True}
    if asked.tools:
        fields["tools"] = [tool.as_openai() for tool in asked.tools]
        if asked.choice != "auto":
            fields["tool_choice"] = chosen(asked.choice)
        if not asked.parallel:
            fields["parallel_tool_calls"] = False
    if asked.effort not in (None, "auto"):
        fields["reasoning_effort"] = EFFORTS.get(str(asked.effort), asked.effort)
    if answer := asked.answer:
        schema = {"name": answer.name, "schema": answer.schema, "strict": answer.strict}
        kept = {key: value for key, value in schema.items() if value is not None}
        form = {"type": "json_schema", "json_schema": kept} if answer.schema else {"type": "json_object"}
        fields["response_format"] = form
    return fields


def constrain(form: str, value: Any) -> Json:
    """Tell the grammar of a reply, in the field that the server has for it."""
    match form:
        case "structural_tag":
            return {"response_format": {"type": "structural_tag", "format": value}}
        case "gbnf":
            return {"grammar": value}
        case "gbnf_string":
            return {"grammar_string": value}
        case "gbnf_format":
            return {"response_format": {"type": "grammar", "grammar": value}}
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "call", "schema": value, "strict": True}}
    }


def chosen(choice: str) -> Any:
    """Write the choice of a tool."""
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _entries(messages: Sequence[Message], thoughts: str) -> Iterator[Mapping[str, Any]]:
    """Write messages; images in results are shown by the user behind all of them, as results hold text alone."""
    shown: list[Mapping[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            yield {"role": "tool", "tool_call_id": message.call_id, "content": _text(message)}
            if found := [part for part in media.parts_of(message) if isinstance(part, Media)]:
                about = {"type": "text", "text": f"From the result of {message.name or 'the tool'}:"}
                shown += [about, *map(_part, found)]
            continue
        entry = _entry(message, thoughts)
        if shown and message.role == "user":
            said = entry["content"]
            more = [{"type": "text", "text": said}] if isinstance(said, str) else said
            entry = {**entry, "content": [*shown, *more]}
        elif shown:
            yield {"role": "user", "content": shown}
        shown = []
        yield entry
    if shown:
        yield {"role": "user", "content": shown}


def _entry(message: Message, thoughts: str) -> Mapping[str, Any]:
    plain = all(isinstance(part, str) for part in message.content) or message.role != "user"
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else _part(part) for part in media.parts_of(message)
    ]
    entry: dict[str, Any] = {"role": message.role, "content": _text(message) if plain else parts}
    past = [*details.past(message)]
    if found := [one for one in past if one.get("type") != details.CALL]:
        entry[details.FIELD] = found
    if message.reasoning and _squeezed(details.text_of(found)) != _squeezed(message.reasoning):
        entry[thoughts] = message.reasoning
    if message.calls:
        entry["tool_calls"] = details.on_calls([call.as_openai() for call in message.calls], past)
        entry["content"] = entry["content"] or ("" if message.content == ("",) else None)
    return entry


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _text(message: Message) -> str:
    return "\n".join(part for part in message.content if isinstance(part, str))


def _part(one: Media) -> Mapping[str, Any]:
    if one.kind == "image":
        detail = {"detail": one.detail} if one.detail else {}
        return {"type": "image_url", "image_url": {"url": media.to_url(one), **detail}}
    if one.data:
        return {"type": "file", "file": {"filename": one.name or "document.pdf", "file_data": media.to_url(one)}}
    return {"type": "text", "text": media.note(one)}


def meaning(part: Any) -> str | Media | None:
    """Tell what a part of a message is."""
    match part:
        case str():
            return part
        case {"type": "image_url", "image_url": {"url": url, **rest}}:
            return media.from_url("image", url, detail=rest.get("detail"))
        case {"type": "image_url", "image_url": str(url)}:
            return media.from_url("image", url)
        case {"type": "file", "file": {"file_data": url, **rest}}:
            return media.from_url("document", url, str(rest.get("filename") or ""))
        case {"text": str(text)} | {"refusal": str(text)}:
            return text
    return None


def error(failure: Failure, status: int) -> Json:
    """Write an error."""
    if failure.kind == FULL:
        kind, code = "invalid_request_error", FULL
    else:
        kind, code = failure.kind or ("invalid_request_error" if status < 500 else "server_error"), None
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}
