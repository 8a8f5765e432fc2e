"""Writing requests of Ollama's chat API."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from vtc.apis.content import list_parts
from vtc.apis.contract import Json
from vtc.apis.ollama_chat.request import Request, separate_images
from vtc.apis.openai_chat.request_writer import ChatRequestWriter
from vtc.events import CanonicalRequest, Message, ToolCall

_EFFORT_ALIASES = {"minimal": "low", "xhigh": "high", "max": "high"}
"""Effort levels that this API does not have, with the closest ones that it has."""


class OllamaRequestWriter(ChatRequestWriter):
    """Writes chat requests; tools are declared as in chat completions."""

    @staticmethod
    def build_request(canonical: CanonicalRequest) -> Json:
        """Render a canonical request. Only effort levels are sent: a bare switch is an error for many models."""
        fields: dict[str, Any] = {
            "model": canonical.model,
            "messages": [_render_message(message) for message in canonical.messages],
            "stream": canonical.stream,
            **Request.LAYOUT.write_limits(canonical.limits),
        }
        if canonical.tools:
            fields["tools"] = [tool.as_openai() for tool in canonical.tools]
        if canonical.effort not in (None, "auto"):
            fields["think"] = (
                False if canonical.effort == "none" else _EFFORT_ALIASES.get(str(canonical.effort), canonical.effort)
            )
        if canonical.answer:
            fields["format"] = canonical.answer.schema or "json"
        return fields

    @staticmethod
    def constrain(form: str, value: Any) -> Json:
        """Set the JSON Schema of a reply, the only grammar that this API has."""
        return {"format": value} if form == "json_schema" else {}

    def _add_message(self, entries: list[Any], message: Message, called: Collection[str | None], form: Any) -> None:
        super()._add_message(entries, message, called, form)
        entry = entries[-1]
        entry["content"] = entry["content"] or ""
        if message.calls:
            entry["tool_calls"] = [entry_of(call, ids=form) for call in message.calls]
        if message.role == "tool":
            entry["tool_name"] = message.name

    def with_reasoning(self, message: Message, field: str) -> Message:
        return super().with_reasoning(message, "thinking")

    def as_text(self, message: Message, *, or_null: bool = False) -> Message:
        return super().as_text(message)  # this API has no null content

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.name) and not (result.source.get("tool_name") or result.source.get("name"))


def entry_of(call: ToolCall, *, ids: bool) -> dict[str, Any]:
    """Render a call; with an id only for clients that use ids, because others fail at it."""
    function = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "function": function} if ids else {"function": function}


def _render_message(message: Message) -> Json:
    texts, images = separate_images(list_parts(message))
    entry: dict[str, Any] = {"role": message.role, "content": "\n".join(texts)}
    if images:
        entry["images"] = images
    if message.reasoning:
        entry["thinking"] = message.reasoning
    if message.calls:
        entry["tool_calls"] = [entry_of(call, ids=True) for call in message.calls]
    if message.role == "tool":
        entry |= {"tool_name": message.name, "tool_call_id": message.call_id}
    return entry
