"""Steps about tools: declarations, the choice among them, the grammar of the reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from vtc import json_schema
from vtc.dialects.constrain.constraint import Inexpressible, find_reserved_opener
from vtc.events import CanonicalRequest, Message, Tool
from vtc.exchange.asking.steps.messages import REMINDER, StepContext, join_messages
from vtc.json_schema import Schema
from vtc.profiles.document import format_count
from vtc.profiles.reply_constraint import ReplyConstraint

CALLED_BEFORE = "Was called before in this conversation. It cannot be called now."


def declare_called_tools(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Declare the tools of past calls if none are declared, as agents do when they ask for a summary."""
    if request.tools or context.request.offer.declared:
        return request, ""
    named = (
        name
        for message in request.messages
        for name in (*(call.name for call in message.calls), _get_result_tool(message))
    )
    tools = tuple(
        Tool(name, CALLED_BEFORE, {"type": "object", "properties": {}}) for name in dict.fromkeys(named) if name
    )
    if not tools:
        return request, ""
    return replace(
        request, tools=tools
    ), f"{format_count(len(tools), 'tool')} declared because the conversation calls them"


def _get_result_tool(message: Message) -> str:
    return message.name or "" if message.role == "tool" else ""


def express_choice(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Replace a choice that the server ignores: offer no tools or only the demanded one.

    This is worth the loss of the prompt cache.
    """
    if request.choice == "auto" or not request.tools:
        return request, ""
    if request.choice == "none":
        return replace(request, tools=(), choice="auto"), "no tools offered, because none may be called"
    named = tuple(tool for tool in request.tools if tool.name == request.choice)
    demand = REMINDER.format(f"Call the tool {request.choice}." if named else "Call one of the tools.")
    last = request.messages[-1:]
    message = Message("user", (demand,))
    joins = bool(last) and last[0].role == "user"
    messages = (
        (*request.messages[:-1], join_messages([last[0], message], "\n")) if joins else (*request.messages, message)
    )
    line = f"tool_choice {request.choice}: expressed in the prompt"
    return replace(request, messages=messages, tools=named or request.tools, choice="auto"), line


# Constrained decoding: a grammar from VTC, or strict tools from which the server makes its own.
#
# These steps fail open: if a grammar is impossible, the reason is reported and the request is sent without one.


def send_grammar(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Send the grammar of the dialect, filled in with the tools."""
    assert isinstance(value, ReplyConstraint)
    if (mark := find_reserved_opener(value.dialect)) and _contains_marker(context.request.messages, mark):
        return request, f"no grammar: the conversation quotes {mark}, which no value could contain"
    try:
        grammar = value.render()
    except Inexpressible as error:
        return request, f"no grammar: {error}"
    constraint = (value.form, grammar)
    if not context.server.writer.constrain(*constraint):
        return request, f"no grammar: {context.server.name} has no field for it"
    if constraint == request.constraint:
        return request, ""
    return replace(request, constraint=constraint), f"a grammar of {value.dialect.name} sent ({value.form})"


def _contains_marker(messages: Iterable[Message], mark: str) -> bool:
    """Return True if the conversation contains a marker, because a value of the reply may need to contain it, too."""
    return any(
        mark in text
        for message in messages
        if message.role != "system"
        for text in (message.text, *(call.arguments for call in message.calls))
    )


def declare_strict(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Declare tools as strict if all of their objects can be closed; tools without parameters stay."""
    tools = tuple(
        replace(tool, strict=True, parameters=parameters)
        if not tool.strict
        and _has_members(tool.parameters)
        and (parameters := close_objects(tool.parameters)) is not None
        else tool
        for tool in request.tools
    )
    changed = sum(new is not old for new, old in zip(tools, request.tools, strict=True))
    if not changed:
        return request, ""
    return replace(request, tools=tools), f"{format_count(changed, 'tool')} declared as strict"


def _has_members(schema: Schema) -> bool:
    """Return True if an object declares members, without inspecting them: references may double per level."""
    return bool(json_schema.resolve_schema(schema, schema).get("properties"))


MAX_STRICT_DEPTH = 12
"""Nesting depth of the schemas of strict tools."""


class _OpenObject(ValueError):
    """An object accepts arbitrary members."""


def close_objects(schema: Any) -> Mapping[str, Any] | None:
    """Close the objects of a schema that do not mention additional members; None if one of them is open."""
    try:
        return _close_schema(schema, 0)
    except _OpenObject:
        return None


def _close_schema(schema: Any, depth: int) -> Mapping[str, Any]:
    if depth > MAX_STRICT_DEPTH or not isinstance(schema, Mapping):
        raise _OpenObject
    declared = schema.get("properties")
    is_object = declared is not None or schema.get("type") == "object"
    if is_object and not (declared and schema.get("additionalProperties", False) is False):
        raise _OpenObject
    members = {key: _close_nested(key, value, depth + 1) for key, value in schema.items()}
    return {**members, "additionalProperties": False} if is_object else members


def _close_nested(key: str, inside: Any, depth: int) -> Any:
    if key == "items":
        return _close_schema(inside, depth)
    if key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(inside, list):
        return [_close_schema(value, depth) for value in inside]
    if key in ("properties", "$defs", "definitions") and isinstance(inside, Mapping):
        return {name: _close_schema(value, depth) for name, value in inside.items()}
    return inside
