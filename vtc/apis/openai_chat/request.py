"""Requests of chat completions. A request keeps the bytes of every field and message that is not changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace as with_fields
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis import content, request
from vtc.apis.crossing import FIELDS
from vtc.apis.fields import part_of
from vtc.apis.openai_chat import asking, details
from vtc.apis.openai_chat.calls import entry_of, function_of
from vtc.apis.openai_chat.words import Form
from vtc.apis.raw_input import freeform
from vtc.apis.tool_calls import arguments_text
from vtc.events import Message, Tool, ToolCall

ROLES = {"developer": "system", "function": "tool"}
"""Roles by another name."""
THOUGHTS = (*FIELDS, "thinking")
"""Fields that hold what the model thought, by servers."""
OWN_FIELDS = ("role", "content", "tool_calls", "function_call", "tool_call_id", "name")
"""What a message says of itself."""


class Request(request.Request):
    """A chat completion request; a reply has the older form of tools if the request has it."""

    NAME = "chat completion request"
    LIMITS = asking.LIMITS
    CARRIED = asking.CARRIED
    SAID: ClassVar[Collection[str]] = ("refusal", details.FIELD, "cache_control")
    """Fields of a message besides those of every one, that other APIs are told of, or that mean nothing to them."""
    meaning = staticmethod(asking.meaning)

    def _decode(self) -> None:
        calls = (one for entry in self._conversation for one in entry.get("tool_calls") or ())
        self.call_ids = frozenset(one["id"] for one in calls if isinstance(one.get("id"), str))
        legacy = not self.fields.get("tools") and bool(self.fields.get("functions"))
        told = not self.stream or part_of(self.fields, "stream_options").get("include_usage") is True
        custom = frozenset(tool.name for tool in map(_custom, self.fields.get("tools") or ()) if tool)
        self.form: Any = Form(legacy, told, custom=custom)
        self.parallel = self.parallel and not legacy

    def _read(self) -> Iterator[request.Group]:
        return (((_message(entry),), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        entries.append(_encoded(message))

    def form_with(self, thoughts: tuple[str, ...]) -> Any:
        return replace(self.form, thoughts=thoughts) if isinstance(self.form, Form) else self.form

    def declined(self, message: Message) -> str:
        said = message.source.get("refusal") if isinstance(message.source, dict) else None
        return said if isinstance(said, str) else ""

    def unsaid(self, message: Message) -> Iterable[str]:
        source = message.source if isinstance(message.source, dict) else {}
        told = {*OWN_FIELDS, *THOUGHTS, *self.SAID}
        if message.role != "tool" and source.get("name"):
            yield "name"
        yield from (key for key, one in source.items() if key not in told and one)

    def has_thoughts(self, message: Message) -> bool:
        source = message.source if isinstance(message.source, dict) else {}
        return any(source.get(key) for key in (*THOUGHTS, details.FIELD))

    def has_seal(self, message: Message) -> bool:
        source = message.source if isinstance(message.source, dict) else {}
        return details.is_sealed(details.entries_of(source)) or bool(details.of_calls(source))

    def with_thoughts(self, message: Message, field: str) -> Message:
        source = message.source if isinstance(message.source, dict) else {}
        past = [*details.past(message)]
        if found := [one for one in past if one.get("type") != details.CALL]:
            source = {**source, details.FIELD: found}
        elif message.reasoning and not self.has_thoughts(message):
            source = {**source, field: message.reasoning}
        entries = details.on_calls([entry_of(call) for call in message.calls], past)
        calls = tuple(with_fields(call, source=one) for call, one in zip(message.calls, entries, strict=True))
        return replace(message, source=source, calls=calls)

    @staticmethod
    def _tools(fields: Mapping[str, Any]) -> list[Tool]:
        tools = [
            _custom(one) or _function(one.get("function") if one.get("type", "function") == "function" else None)
            for one in fields.get("tools") or ()
        ]
        return [tool for tool in (*tools, *map(_function, fields.get("functions") or ())) if tool]

    @staticmethod
    def _name(entry: Any) -> str | None:
        name = (function_of(entry) or entry).get("name") if isinstance(entry, dict) else None
        return name if isinstance(name, str) else None

    @staticmethod
    def _declaration(tool: Tool) -> dict[str, Any]:
        return tool.as_openai()

    def _redeclared(self, entry: Any, tools: Mapping[str, Tool]) -> dict[str, Any] | None:
        tool = tools.get(self._name(entry) or "")
        if tool is None:
            return None
        function = entry.get("function")
        if _custom(entry):
            return {**entry, "custom": {**entry["custom"], "name": tool.name}}
        said = {"name": tool.name, "parameters": tool.parameters, **({"strict": True} if tool.strict else {})}
        return {**entry, "function": {**function, **said}} if isinstance(function, dict) else {**entry, **said}

    # What only some servers take

    def usual(self, message: Message) -> Message:
        source = message.source
        if isinstance(source, dict) and source.get("role") in ROLES and "content" in source:
            return replace(message, source={**source, "role": message.role})
        return message

    def as_text(self, message: Message) -> Message:
        source = message.source
        listed = isinstance(source, dict) and isinstance(source.get("content"), list)
        if not listed or not all(isinstance(part, str) for part in message.content):
            return message
        return replace(message, source={**source, "content": None})

    def is_null(self, message: Message) -> bool:
        if not isinstance(message.source, dict):
            return super().is_null(message)
        return not message.content and message.source.get("content") is None


def _function(entry: Any) -> Tool | None:
    """Read the declaration of a function; None if it is none."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    return Tool(entry["name"], str(entry.get("description") or ""), part_of(entry, "parameters"))


def _custom(entry: Mapping[str, Any]) -> Tool | None:
    """Read the declaration of a custom tool; None if it is another."""
    said = _function(entry.get("custom")) if entry.get("type") == "custom" else None
    grammar = part_of(part_of(part_of(entry, "custom"), "format"), "grammar")
    return freeform(said.name, said.description, grammar.get("definition")) if said else None


def _message(entry: Mapping[str, Any]) -> Message:
    """Read a message, with the fields that Ollama has for the same."""
    role, legacy = str(entry.get("role") or ""), entry.get("function_call")
    calls = [_call(function_of(one), one) for one in entry.get("tool_calls") or ()]
    if legacy:
        calls.append(_call(legacy))
    thought = next((entry[key] for key in THOUGHTS if entry.get(key)), None) or details.text_of(
        details.entries_of(entry)
    )
    return Message(
        role=ROLES.get(role, role),
        content=content.read(entry.get("content")),
        calls=tuple(calls),
        call_id=entry.get("tool_call_id"),
        name=entry.get("name") or entry.get("tool_name"),
        source=entry,
        reasoning=thought if isinstance(thought, str) else "",
    )


def _call(function: Mapping[str, Any], entry: Mapping[str, Any] | None = None) -> ToolCall:
    """Read a call; that of a custom tool has its raw input as the one argument."""
    id_ = entry.get("id") if entry else None
    said = {"input": function.get("input") or ""} if entry and entry.get("custom") else function.get("arguments")
    return ToolCall(str(function.get("name")), arguments_text(said) or "{}", id_, entry)


def _encoded(message: Message) -> dict[str, Any]:
    """A message that was changed: what it says now, and every field of its source that says nothing of that."""
    source = message.source if isinstance(message.source, dict) else {}
    role = source.get("role", message.role)
    same_role = ROLES.get(role, role) == message.role
    was_result = role == "tool" and not same_role
    said = content.written(message.content, None if was_result else source.get("content"), {"type": "text"})
    entry: dict[str, Any] = {"role": role if same_role else message.role, "content": said}
    if message.calls:
        entry["tool_calls"] = [entry_of(call) for call in message.calls]
        is_text = source.get("content") == "" or message.content == ("",)
        entry["content"] = entry["content"] or ("" if is_text else None)
    if message.role == "tool" and message.call_id:
        entry["tool_call_id"] = message.call_id
    elif message.role != "tool" and same_role and "name" in source:
        entry["name"] = source["name"]
    if same_role:
        entry.update((key, value) for key, value in source.items() if key not in OWN_FIELDS)
    return entry
