"""Requests of chat completions. A request keeps the bytes of every field and message that is not changed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vtc.apis import fields
from vtc.apis.base import Cache
from vtc.apis.openai_chat.calls import entry_of, function_of
from vtc.events import Message, Opaque, Tool, ToolCall

ROLES = {"developer": "system", "function": "tool"}
"""Roles by another name."""
OWN_FIELDS = ("role", "content", "tool_calls", "function_call", "tool_call_id", "name")
"""What a message says of itself."""


class Request(fields.FieldsRequest):
    """A chat completion request. `form` is True for the older form of tools, which the reply must have, too."""

    TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")

    NAME = "chat completion request"

    def _decode(self, body: bytes, cache: Cache | None) -> None:
        self._raw, self.fields, self.tools = fields.raws(body, ("tools", "functions"), _tools, cache)
        messages = self.fields.get("messages", [])
        if not isinstance(messages, list):
            raise TypeError("`messages` is no list")
        self.call_ids = _call_ids(messages)
        self.model = str(self.fields.get("model") or "")
        self.stream = self.fields.get("stream") is True
        self.form = not self.fields.get("tools") and bool(self.fields.get("functions"))
        self.declared = _declared_names(self.fields)
        self.tool_choice = _tool_choice(self.fields)
        self.parallel = self.fields.get("parallel_tool_calls") is not False and not self.form

    def _read(self) -> Iterator[fields.Group]:
        messages = self.read_messages(self.fields.get("messages", []))
        return (((message,), (place,)) for place, message in enumerate(messages))

    def read_messages(self, entries: Sequence[Mapping[str, Any]]) -> list[Message]:
        """Decode the messages; an API that declares tools in the same way may have others."""
        return _messages(entries)

    def write_message(self, message: Message) -> dict[str, Any]:
        """Encode a message that was changed, with the fields of the original that VTC does not know."""
        return _encoded(message)

    def _put(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        raws = fields.items(self._raw.get("messages", b"[]"), self.fields.get("messages", []))
        kept["messages"] = self._entries(raws, messages, lambda out, message: out.append(self.write_message(message)))

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        if tools:
            kept["tools"] = [tool.as_openai() for tool in tools]

    def _withhold(self, fields: dict[str, Any], names: Collection[str]) -> None:
        """Leave out what declares the tools named, and what demands one of them."""
        for key in ("tools", "functions"):
            entries = self.fields.get(key)
            if isinstance(entries, list) and key in fields:
                kept = [one for one in entries if _name(one) not in names]
                fields[key] = kept
                if not kept:
                    for gone in self.TOOL_FIELDS:
                        fields.pop(gone, None)
        if self.tool_choice in names:
            fields.pop("tool_choice", None)
            fields.pop("function_call", None)


def _declared_names(fields: Mapping[str, Any]) -> list[str]:
    lists = (fields.get(key) for key in ("tools", "functions"))
    return [name for entries in lists if isinstance(entries, list) for one in entries if (name := _name(one))]


def _name(declared: Any) -> str | None:
    """The name of a declared tool, in any form."""
    name = (function_of(declared) or declared).get("name") if isinstance(declared, dict) else None
    return name if isinstance(name, str) else None


def _tools(fields: Mapping[str, Any]) -> list[Tool]:
    entries = [
        entry.get("function") for entry in fields.get("tools") or [] if entry.get("type", "function") == "function"
    ]
    tools = []
    for entry in [*entries, *(fields.get("functions") or [])]:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            description, parameters = entry.get("description"), entry.get("parameters")
            tools.append(
                Tool(
                    entry["name"],
                    description if isinstance(description, str) else "",
                    parameters if isinstance(parameters, dict) else {},
                )
            )
    return tools


def _tool_choice(fields: Mapping[str, Any]) -> str:
    choice = fields.get("tool_choice") or fields.get("function_call") or "auto"
    if isinstance(choice, dict):
        choice = (choice.get("function") or choice.get("custom") or choice).get("name") or "auto"
    return "required" if choice == "any" else str(choice)  # as Mistral calls it


def _call_ids(entries: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(
        one["id"] for entry in entries for one in entry.get("tool_calls") or () if isinstance(one.get("id"), str)
    )


def _messages(entries: Sequence[Mapping[str, Any]]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}  # a result names its call by id, or in the older form not at all
    for entry in entries:
        role = str(entry.get("role") or "")
        calls = tuple(_call(one) for one in entry.get("tool_calls") or ())
        if legacy := entry.get("function_call"):
            calls = (*calls, ToolCall(str(legacy.get("name")), legacy.get("arguments") or "{}"))
        names.update({one.id: one.name for one in calls if one.id})
        call_id = entry.get("tool_call_id")
        messages.append(
            Message(
                role=ROLES.get(role, role),
                content=_content(entry.get("content")),
                calls=calls,
                call_id=call_id,
                name=names.get(call_id or "") or entry.get("name"),
                source=entry,
                reasoning=_reasoning(entry),
            )
        )
    return messages


def _reasoning(entry: Mapping[str, Any]) -> str:
    found = entry.get("reasoning_content") or entry.get("reasoning")
    return found if isinstance(found, str) else ""


def _call(entry: Mapping[str, Any]) -> ToolCall:
    """Read one entry of `tool_calls`."""
    function = entry.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some send the object itself
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(str(function.get("name")), arguments or "{}", entry.get("id"), entry)


def _content(content: Any) -> tuple[str | Opaque, ...]:
    if isinstance(content, str):
        return (content,) if content else ()
    return tuple(
        part["text"]
        if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") == "text"
        else Opaque(part)
        for part in content or ()
    )


def _encoded(message: Message) -> dict[str, Any]:
    """A message that was changed: what it says now, and every field of its source that says nothing of that."""
    source = message.source if isinstance(message.source, dict) else {}
    role, parts = source.get("role", message.role), source.get("content")
    same_role = ROLES.get(role, role) == message.role
    entry: dict[str, Any] = {"role": role if same_role else message.role}
    if isinstance(parts, list) or any(isinstance(part, Opaque) for part in message.content):
        entry["content"] = _written_parts(message, parts if isinstance(parts, list) else [])
    else:
        entry["content"] = message.text
    if message.calls:
        entry["tool_calls"] = [entry_of(call) for call in message.calls]
        entry["content"] = entry["content"] or None
    if message.role == "tool" and message.call_id:
        entry["tool_call_id"] = message.call_id
    elif message.role != "tool" and same_role and "name" in source:
        entry["name"] = source["name"]
    if same_role:
        entry.update((key, value) for key, value in source.items() if key not in OWN_FIELDS)
    return entry


def _written_parts(message: Message, originals: Sequence[Any]) -> list[Any]:
    """The parts of a message's content; one that says what it said before keeps its fields (`cache_control`)."""
    parts: list[Any] = []
    for index, part in enumerate(message.content):
        original = originals[index] if index < len(originals) else None
        if isinstance(part, Opaque):
            parts.append(part.part)
        elif isinstance(original, dict) and original.get("text") == part:
            parts.append(original)
        else:
            parts.append({"type": "text", "text": part})
    return parts
