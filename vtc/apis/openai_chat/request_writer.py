"""Writing requests of chat completions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis import content, request_writer, tool_writer
from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.contract import Json
from vtc.apis.fields import text_at
from vtc.apis.openai_chat import words
from vtc.apis.openai_chat.request import MESSAGE_FIELDS, ROLE_ALIASES, Request, read_custom_tool
from vtc.apis.openai_chat.words import entry_of
from vtc.events import CanonicalRequest, Media, Message, Tool

EFFORT_ALIASES = {"max": "xhigh"}
"""Effort levels that only other APIs have, with the closest one of this API."""


class ChatToolWriter(tool_writer.ToolWriter):
    """Writes the fields about the tools of chat completions."""

    @staticmethod
    def render_declaration(tool: Tool) -> dict[str, Any]:
        return tool.as_openai()

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> dict[str, Any] | None:
        tool = tools.get(self.received.get_name(entry) or "")
        if tool is None:
            return None
        function = entry.get("function")
        if read_custom_tool(entry):
            return {**entry, "custom": {**entry["custom"], "name": tool.name}}
        changes = {"name": tool.name, "parameters": tool.parameters, **({"strict": True} if tool.strict else {})}
        return {**entry, "function": {**function, **changes}} if isinstance(function, dict) else {**entry, **changes}


class ChatRequestWriter(request_writer.RequestWriter):
    """Writes chat completion requests."""

    TOOL_WRITER = ChatToolWriter
    RESULT_ID = "tool_call_id"
    SHARED_FIELDS: ClassVar[Mapping[str, str]] = {name: name for name in request_writer.SHARED_FIELDS}
    STREAM_FIELDS: ClassVar[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}

    @staticmethod
    def build_request(canonical: CanonicalRequest) -> Json:
        """Render a canonical request; it always asks for usage, because other APIs send it."""
        fields: dict[str, Any] = {
            "model": canonical.model,
            "messages": [*_render_messages(canonical.messages, canonical.reasoning_field or REASONING_FIELDS[0])],
            **Request.LAYOUT.write_limits(canonical.limits),
            "stream": canonical.stream,
        }
        if canonical.stream:
            fields |= ChatRequestWriter.STREAM_FIELDS
        if canonical.tools:
            tools = [tool.as_openai() for tool in canonical.tools]
            fields["tools"] = content.put_cache_mark(tools, canonical.tools_mark)
            if canonical.choice != "auto":
                is_word = canonical.choice in ("none", "required")
                one_tool = {"type": "function", "function": {"name": canonical.choice}}
                fields["tool_choice"] = canonical.choice if is_word else one_tool
            if not canonical.parallel:
                fields["parallel_tool_calls"] = False
        if canonical.effort not in (None, "auto"):
            fields["reasoning_effort"] = EFFORT_ALIASES.get(str(canonical.effort), canonical.effort)
        if answer := canonical.answer:
            schema = {"name": answer.name, "description": answer.description, "schema": answer.schema}
            kept = {key: value for key, value in {**schema, "strict": answer.strict}.items() if value is not None}
            form = {"type": "json_schema", "json_schema": kept} if answer.schema else {"type": "json_object"}
            fields["response_format"] = form
        return fields

    @staticmethod
    def constrain(form: str, value: Any) -> Json:
        """Set the grammar of a reply, in the server's own field."""
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

    def _add_message(self, entries: list[Any], message: Message, called: Collection[str | None], form: Any) -> None:
        entries.append(_rewrite_message(message))

    def with_reasoning(self, message: Message, field: str) -> Message:
        if not message.reasoning or words.find_past_entries(message).fields:  # the fields already contain it
            return message
        source = message.source if isinstance(message.source, dict) else {}
        return replace(message, source={**source, field: message.reasoning})

    def with_usual_role(self, message: Message) -> Message:
        source = message.source
        if isinstance(source, dict) and text_at(source, "role") in ROLE_ALIASES and "content" in source:
            return replace(message, source={**source, "role": message.role})
        return message

    def as_text(self, message: Message, *, or_null: bool = False) -> Message:
        source = message.source if isinstance(message.source, dict) else {}
        sent = source.get("content")
        is_null = or_null and sent is not None
        listed = isinstance(sent, list) and all(isinstance(part, str) for part in message.content)
        empty = "" if listed and not (message.content or or_null) else None
        return replace(message, source={**source, "content": empty}) if listed or is_null else message

    def has_null_content(self, message: Message) -> bool:
        if not isinstance(message.source, dict):
            return super().has_null_content(message)
        return not message.content and message.source.get("content") is None


def _render_messages(messages: Sequence[Message], reasoning_field: str) -> Iterator[Mapping[str, Any]]:
    """Render messages; images in results follow in a user message, because results contain only text."""
    shown: list[Mapping[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            yield _mark({"role": "tool", "tool_call_id": message.call_id, "content": _join_text(message)}, message)
            if media := [part for part in content.list_parts(message) if isinstance(part, Media)]:
                about = {"type": "text", "text": f"From the result of {message.name or 'the tool'}:"}
                shown += [about, *map(words.render_media, media)]
            continue
        entry = _mark(_render_entry(message, reasoning_field), message)
        if shown and message.role == "user":
            text = entry["content"]
            more = [{"type": "text", "text": text}] if isinstance(text, str) else text
            entry = {**entry, "content": [*shown, *more]}
        elif shown:
            yield {"role": "user", "content": shown}
        shown = []
        yield entry
    if shown:
        yield {"role": "user", "content": shown}


def _mark(entry: Mapping[str, Any], message: Message) -> Mapping[str, Any]:
    """Put the cache mark of a message on the last part of its content, for gateways that take it."""
    written = entry["content"]
    if not (message.cache_mark and written):
        return entry
    parts = [{"type": "text", "text": written}] if isinstance(written, str) else written
    return {**entry, "content": content.put_cache_mark(parts, message.cache_mark)}


def _render_entry(message: Message, reasoning_field: str) -> Mapping[str, Any]:
    plain = all(isinstance(part, str) for part in message.content) or message.role != "user"
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else words.render_media(part)
        for part in content.list_parts(message)
    ]
    entry: dict[str, Any] = {"role": message.role, "content": _join_text(message) if plain else parts}
    past = words.find_past_entries(message)
    if message.reasoning and _strip_whitespace(words.text_of(words.entries_of(past.fields))) != _strip_whitespace(
        message.reasoning
    ):
        entry[reasoning_field] = message.reasoning
    entry |= past.fields
    if message.calls:
        entry["tool_calls"] = past.put_on([call.as_openai() for call in message.calls])
        entry["content"] = entry["content"] or ("" if message.content == ("",) else None)
    return entry


def _strip_whitespace(text: str) -> str:
    return "".join(text.split())


def _join_text(message: Message) -> str:
    return "\n".join(part for part in message.content if isinstance(part, str))


def _rewrite_message(message: Message) -> dict[str, Any]:
    """Render a changed message: its current content, and the other fields of its source."""
    # Step 1: render the content. If the role was changed (a result became text), the source's own fields are dropped.
    source = message.source if isinstance(message.source, dict) else {}
    role = str(source.get("role", message.role))
    same_role = ROLE_ALIASES.get(role, role) == message.role
    was_result = role == "tool" and not same_role
    past = words.find_past_entries(message)
    written = content.render_content(
        words.drop_reasoning(message), None if was_result else source.get("content"), {"type": "text"}
    )
    entry: dict[str, Any] = {"role": role if same_role else message.role, "content": written}
    source = {**source, **past.fields} if past.fields else source
    # Step 2: render the calls, the id of the result and the name.
    if message.calls:
        entry["tool_calls"] = past.put_on([*map(entry_of, message.calls)])
        is_text = source.get("content") == "" or message.content == ("",)
        entry["content"] = entry["content"] or ("" if is_text else None)
    if message.role == "tool" and message.call_id:
        entry["tool_call_id"] = message.call_id
        if source.get("name"):
            entry["name"] = message.name
    elif message.role != "tool" and same_role and "name" in source:
        entry["name"] = source["name"]
    # Step 3: copy the other fields of the source.
    if same_role:
        for key in source:
            if key not in MESSAGE_FIELDS:
                entry[key] = source[key]
    return entry
