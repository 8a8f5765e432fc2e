"""The grammar of a reply, for a server that decodes by one; and tools that are strict, for one that makes it itself.

Fails open: what cannot be said is told, and the request goes without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from vtc.dialects.arguments import values
from vtc.dialects.arguments.values import Schema
from vtc.dialects.constrain.constraint import Inexpressible, quoting
from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted
from vtc.profiles.constraining import Constraining

MOST_DEPTH = 12
"""Schemas within schemas that are closed."""


def constrain(asked: Asked, value: Any, given: Given) -> tuple[Asked, str]:
    """Send the grammar of the dialect, filled in with the tools."""
    assert isinstance(value, Constraining)
    if (mark := quoting(value.dialect)) and _holds(given.request.messages, mark):
        return asked, f"no grammar: the conversation quotes {mark}, which no value could hold"
    try:
        made = value.written()
    except Inexpressible as error:
        return asked, f"no grammar: {error}"
    constraint = (value.form, made)
    if not given.server.constrain(*constraint):
        return asked, f"no grammar: {given.server.name} has no field for it"
    if constraint == asked.constraint:
        return asked, ""
    return replace(asked, constraint=constraint), f"a grammar of {value.dialect.name} sent ({value.form})"


def _holds(messages: Iterable[Message], mark: str) -> bool:
    """True if a text of the conversation, or the arguments of a call, hold a mark: a value may have to hold it, too."""
    return any(
        mark in text
        for message in messages
        if message.role != "system"
        for text in (message.text, *(call.arguments for call in message.calls))
    )


def strict(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Declare tools as strict, where each of their objects can be closed; those without parameters stay."""
    tools = tuple(
        with_fields(tool, strict=True, parameters=found)
        if not tool.strict and _has_members(tool.parameters) and (found := closed(tool.parameters)) is not None
        else tool
        for tool in asked.tools
    )
    changed = sum(one is not other for one, other in zip(tools, asked.tools, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, tools=tools), f"{counted(changed, 'tool')} declared as strict"


def _has_members(schema: Schema) -> bool:
    """True if an object declares members. What they are is not looked at: references may double on each level."""
    return bool(values.resolved_of(schema, schema).get("properties"))


class _Open(ValueError):
    """An object may have any members."""


def closed(schema: Any) -> Mapping[str, Any] | None:
    """Close the objects of a schema that say nothing of other members; None if one of them is open."""
    try:
        return _closed(schema, 0)
    except _Open:
        return None


def _closed(schema: Any, depth: int) -> Mapping[str, Any]:
    if depth > MOST_DEPTH or not isinstance(schema, Mapping):
        raise _Open
    declared = schema.get("properties")
    is_object = declared is not None or schema.get("type") == "object"
    if is_object and not (declared and schema.get("additionalProperties", False) is False):
        raise _Open
    found = {key: _inside(key, one, depth + 1) for key, one in schema.items()}
    return {**found, "additionalProperties": False} if is_object else found


def _inside(key: str, inside: Any, depth: int) -> Any:
    if key == "items":
        return _closed(inside, depth)
    if key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(inside, list):
        return [_closed(one, depth) for one in inside]
    if key in ("properties", "$defs", "definitions") and isinstance(inside, Mapping):
        return {name: _closed(one, depth) for name, one in inside.items()}
    return inside
