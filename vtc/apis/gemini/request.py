"""Requests of generateContent. A request keeps the bytes of every field and content that is not changed.

    {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "systemInstruction": {"parts": [{"text": …}]},
     "tools": [{"functionDeclarations": [{"name": "read", "parameters": {…}}]}]}

Each result (`functionResponse`) in a user's content is a message of its own; calls and results often have no ids, and are
matched by name and order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from vtc.apis import request
from vtc.apis.fields import part_of
from vtc.apis.gemini.decoder import parts_of
from vtc.apis.gemini.encoder import part_of_call
from vtc.apis.tool_calls import arguments_text
from vtc.events import Message, Opaque, Tool, ToolCall

_MODES = {"ANY": "required", "NONE": "none"}
_DECLARED = ("functionDeclarations", "function_declarations")


class Request(request.Request):
    """A request; the model, and whether a stream is asked for, stand in its path."""

    NAME = "request of generateContent"
    ENTRIES = "contents"
    PROMPT = "systemInstruction"

    def _decode(self) -> None:
        model, _, method = unquote(self.path.partition("?")[0]).rpartition("/")[2].partition(":")
        self.model, self.stream = model, method.casefold().startswith("stream")
        self.call_ids = frozenset[str]()
        config = part_of(part_of(self.fields, "toolConfig"), "functionCallingConfig")
        self.tool_choice = _MODES.get(str(config.get("mode")), "auto")
        if isinstance(allowed := config.get("allowedFunctionNames"), list) and allowed:
            self.tools = [one for one in self.tools if one.name in allowed]
        for entry in self._conversation:
            parts_of(entry)

    @staticmethod
    def _tools(fields: Mapping[str, Any]) -> list[Tool]:
        return [
            Tool(
                one["name"],
                str(one.get("description") or ""),
                one.get("parametersJsonSchema") or part_of(one, "parameters"),
            )
            for entry in fields.get("tools") or ()
            for one in _functions(entry)
        ]

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        others = [one for one in self.fields.get("tools") or () if not _functions(one)]
        said = [{"functionDeclarations": [*map(self._declaration, tools)]}] if tools else []
        kept.update({"tools": [*others, *said]} if others or said else {})

    @staticmethod
    def _declaration(tool: Tool) -> Mapping[str, Any]:
        return {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.parameters)}

    def _names(self, entries: Sequence[Any]) -> Iterator[str]:
        return (one["name"] for entry in entries for one in _functions(entry))

    def _offered(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        for entry in entries:
            key = next((one for one in _DECLARED if one in entry), "")
            left = [one for one in _functions(entry) if one["name"] not in names]
            if left or not key:
                yield {**entry, key: left} if key else entry

    def _read(self) -> Iterator[request.Group]:
        return ((_messages(entry), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        role = {"assistant": "model", "tool": "user"}.get(message.role, "user")
        said = [one.part if isinstance(one, Opaque) else {"text": one} for one in message.content]
        if message.role == "tool" and message.name:
            said = [{"functionResponse": {"name": message.name, "response": {"output": message.text}}}]
        said += map(part_of_call, message.calls)
        if entries and isinstance(entries[-1], dict) and entries[-1]["role"] == role == "user":
            entries[-1]["parts"] += said
        elif said:
            entries.append({"role": role, "parts": said})

    def _prompt(self, messages: Sequence[Message]) -> Any:
        return {"parts": [{"text": one.text} for one in messages]}


def _functions(entry: Any) -> list[dict[str, Any]]:
    """The functions that an entry of `tools` declares."""
    found = next((entry[key] for key in _DECLARED if key in entry), None)
    return [one for one in found or () if isinstance(one.get("name"), str)]


def _messages(entry: Mapping[str, Any]) -> list[Message]:
    """Read a content as canonical messages."""
    role = {"model": "assistant"}.get(str(entry.get("role")), "user")
    said: list[str | Opaque] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    thoughts = ""
    for part in parts_of(entry):
        if isinstance(call := part.get("functionCall"), dict):
            calls.append(
                ToolCall(str(call.get("name")), arguments_text(call.get("args")) or "{}", call.get("id"), part)
            )
        elif isinstance(found := part.get("functionResponse"), dict):
            answer = found.get("response")
            text = answer.get("output", answer.get("result", answer)) if isinstance(answer, dict) else answer
            shown = text if isinstance(text, str) else arguments_text(text)
            results.append(Message("tool", (shown,), (), found.get("id"), str(found.get("name")), part))
        elif part.get("thought"):
            thoughts += str(part.get("text") or "")
        else:
            said.append(part["text"] if isinstance(part.get("text"), str) else Opaque(part))
    own = [Message(role, (*said,), (*calls,), source=entry, reasoning=thoughts)] if said or calls or not results else []
    return [*results, *own]
