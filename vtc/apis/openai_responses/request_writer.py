"""Writing requests of Responses."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis import content, request_writer, tool_writer
from vtc.apis import request as base
from vtc.apis.contract import Json
from vtc.apis.fields import text_at
from vtc.apis.openai_chat.request_writer import EFFORT_ALIASES
from vtc.apis.openai_responses.items import ResponseForm, render_item, render_media
from vtc.apis.openai_responses.request import (
    CANONICAL_ROLES,
    OUTPUT_KINDS,
    TOOL_KINDS,
    OpaqueItem,
    Request,
    find_tool_lists,
    is_tools_item,
    kind_of,
    list_declarations,
)
from vtc.apis.request_writer import NO_CHANGES, Changes
from vtc.events import CanonicalRequest, Message, Opaque, Thought, Tool, ToolCall
from vtc.json_text import decode_json, encode_json


class ResponsesToolWriter(tool_writer.ToolWriter):
    """Writes the fields about the tools of Responses."""

    @staticmethod
    def render_declaration(tool: Tool) -> Json:
        """Declare a function as not strict, because the API's default is strict and a text client's tools are not."""
        return {"type": "function", **tool.as_openai()["function"], "strict": False}

    def declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        super().declare(kept, tools)
        hosted = [entry for entry in self.received.fields.get("tools") or () if entry.get("type") not in TOOL_KINDS]
        if hosted:
            kept["tools"] = [*hosted, *kept.get("tools", ())]

    def withhold_entries(self, entries: Sequence[Any], names: Collection[str]) -> Iterator[Json]:
        for entry in entries:
            declared = list_declarations([entry])
            remaining = [tool.entry for tool in declared if tool.full_name not in names]
            if remaining:
                yield {**entry, "tools": remaining} if entry.get("type") == "namespace" else entry

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Json | None:
        """Rewrite the parameters of the functions in a declaration.

        Names in a namespace are preserved; a custom tool has no parameters.
        """
        declared = [*list_declarations([entry])]
        written: list[Json] = []
        for one in declared:
            tool = tools.get(one.full_name)
            if tool and one.entry.get("type") == "function":
                strict = {"strict": True} if tool.strict else {}
                written.append({**one.entry, "parameters": tool.parameters, **strict})
            else:
                written.append(one.entry)
        if entry.get("type") == "namespace":
            return {**entry, "tools": written} if any(one.full_name in tools for one in declared) else None
        (sole,) = declared
        tool = tools.get(sole.full_name)
        return {**written[0], "name": tool.name} if tool and sole.name else None


class ResponsesRequestWriter(request_writer.RequestWriter):
    """Writes requests for a response."""

    TOOL_WRITER = ResponsesToolWriter
    RESULT_ID = "call_id"
    SHARED_FIELDS: ClassVar[Mapping[str, str]] = {
        **{name: name for name in request_writer.SHARED_FIELDS},
        "verbosity": "text.verbosity",
    }

    @staticmethod
    def build_request(canonical: CanonicalRequest) -> Json:
        """Render a canonical request, with `store` off.

        Reasoning is omitted unless this same server produced it, because the server may require the content that it
        encrypted.
        """
        prompt, messages = canonical.split_system_prompt()
        fields: dict[str, Any] = {"model": canonical.model}
        if prompt is not None:
            fields["instructions"] = prompt
        fields |= {
            "input": [item for message in messages for item in _render_canonical_items(message)],
            **Request.LAYOUT.write_limits(canonical.limits),
        }
        fields |= {"stream": canonical.stream, "store": False}
        if canonical.tools:
            declared = ({**tool.as_openai()["function"], "strict": tool.strict} for tool in canonical.tools)
            fields["tools"] = [{"type": "function", **tool} for tool in declared]
            if canonical.choice != "auto":
                is_word = canonical.choice in ("none", "required")
                fields["tool_choice"] = canonical.choice if is_word else {"type": "function", "name": canonical.choice}
            if not canonical.parallel:
                fields["parallel_tool_calls"] = False
        reasoning: dict[str, Any] = {}
        if canonical.effort not in (None, "auto"):
            reasoning["effort"] = EFFORT_ALIASES.get(str(canonical.effort), canonical.effort)
        if canonical.thinking.shown and canonical.effort != "none":
            reasoning["summary"] = "auto"  # OpenAI's servers send no reasoning without it
        if reasoning:
            fields["reasoning"] = reasoning
        if canonical.effort not in (None, "none"):
            fields["include"] = ["reasoning.encrypted_content"]  # without `store`, the client must send it back itself
        if answer := canonical.answer:
            form: dict[str, Any] = {"type": "json_object"}
            if answer.schema:
                form = {
                    "type": "json_schema",
                    "name": answer.name,
                    "schema": answer.schema,
                    "strict": bool(answer.strict),
                    **({"description": answer.description} if answer.description else {}),
                }
            fields["text"] = {"format": form}
        return fields

    def apply_changes(self, request: base.Request, changes: Changes = NO_CHANGES) -> dict[str, Any]:
        kept = super().apply_changes(request, changes)
        keeps_tools = changes.tools is None
        if not any(find_tool_lists(request.fields)) or (
            keeps_tools and not changes.withheld and not changes.redeclared
        ):
            return kept

        tools = self.TOOL_WRITER(request.tool_fields)

        def rewrite_tools(entries: Sequence[Json]) -> list[Json]:
            remaining = tools.withhold_entries(entries, changes.withheld)
            return [tools.rewrite_declaration(entry, changes.redeclared) or entry for entry in remaining]

        items = decode_json(encode_json(kept["input"]))
        items = [{**item, "tools": rewrite_tools(item["tools"])} if is_tools_item(item) else item for item in items]
        return {
            **kept,
            "input": [item for item in items if not is_tools_item(item) or (keeps_tools and item["tools"])],
        }

    def _add_message(self, entries: list[Any], message: Message, called: Collection[str | None], form: Any) -> None:
        entries += _render_items(message, form)

    def with_usual_role(self, message: Message) -> Message:
        source = message.source
        if isinstance(source, dict) and text_at(source, "role") in CANONICAL_ROLES:
            return replace(message, source={**source, "role": message.role})
        return message


def _render_canonical_items(message: Message) -> Iterator[Json]:
    if message.role == "tool":
        plain = all(isinstance(part, str) for part in message.content)
        output = "\n".join(map(str, message.content)) if plain else _render_parts(message, "input_text")
        yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
        return
    if message.recalled_reasoning:
        yield _render_reasoning(Thought(message.recalled_reasoning))
    kind = "output_text" if message.role == "assistant" else "input_text"
    for is_content, some in groupby(message.sequence, _is_content_part):
        if is_content:
            content_ = tuple(part for part in some if not isinstance(part, ToolCall))
            yield {
                "type": "message",
                "role": message.role,
                "content": _render_parts(replace(message, content=content_), kind),
            }
        else:
            yield from map(_render_part_item, some)


def _is_content_part(part: str | Opaque | ToolCall) -> bool:
    """True for a part that belongs in the content of a message item."""
    return not isinstance(part, ToolCall) and (isinstance(part, str) or part.thought is None)


def _render_part_item(part: str | Opaque | ToolCall) -> Json:
    """Render a call or reasoning as an item."""
    if isinstance(part, ToolCall):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
    return _render_reasoning((part.thought if isinstance(part, Opaque) else None) or Thought())


def _render_reasoning(thought: Thought) -> Json:
    """Render the model's reasoning as an item: encrypted if possible, otherwise as text.

    The id is a hash of the text, so it is the same in every turn. Encrypted reasoning has no id, because its server
    would recognize a made-up one as foreign.
    """
    if thought.encrypted or not thought.text:
        return {"type": "reasoning", "summary": [], "encrypted_content": thought.encrypted}
    id_ = hashlib.sha256(thought.text.encode(errors="surrogatepass")).hexdigest()[:24]
    return {
        "type": "reasoning",
        "id": f"rs_{id_}",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": thought.text}],
    }


def _render_parts(message: Message, kind: str) -> list[Json]:
    return [
        {"type": kind, "text": part} if isinstance(part, str) else render_media(part)
        for part in content.list_parts(message)
    ]


def _render_items(message: Message, form: ResponseForm) -> Iterable[Json]:
    """Render a changed message as items."""
    source = message.source
    first = source if isinstance(source, dict) else {}
    if isinstance(source, list):
        first = next((item for item in source if kind_of(item) == "message"), {})
    first = {"role": first.get("role") or "developer"} if is_tools_item(first) else first
    if message.role == "tool":
        custom = first.get("type") == "custom_tool_call_output" or message.name in form.custom_tools
        kind = "custom_tool_call_output" if custom else "function_call_output"
        output = content.render_content(message.content, first.get("output"), {"type": "input_text"})
        rest = first if first.get("type") in OUTPUT_KINDS else {}
        return [{**rest, "type": kind, "call_id": message.call_id, "output": output}]
    role = str(first.get("role"))
    if CANONICAL_ROLES.get(role, role) != message.role:
        first, role = {}, message.role
    new = {"type": "output_text", "annotations": []} if role == "assistant" else {"type": "input_text"}
    items: list[Json] = []
    kept = first  # fields of the original, for the first message item only
    for is_item, some in groupby(message.sequence, _is_item):
        if is_item:
            items += [_render_own_item(part, form) for part in some]
        else:
            spoken = [part for part in some if not isinstance(part, ToolCall)]
            parts = content.render_parts(spoken, first.get("content"), new)
            items.append({**kept, "type": "message", "role": role, "content": parts})
            kept = {}
    return items


def _is_item(part: str | Opaque | ToolCall) -> bool:
    """True for a part that is rendered as a separate item."""
    return isinstance(part, ToolCall) or (
        isinstance(part, Opaque) and (part.thought is not None or isinstance(part.part, OpaqueItem))
    )


def _render_own_item(part: str | Opaque | ToolCall, form: ResponseForm) -> Json:
    """Render a part as an item; an item from the client is returned unchanged."""
    if isinstance(part, ToolCall):
        return render_item(part, form)
    return part.part if isinstance(part, Opaque) and part.thought is None else _render_part_item(part)
