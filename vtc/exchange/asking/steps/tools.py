"""Tools as servers take them: their schemas, the choice among them, the grammar of a reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from vtc.dialects.arguments import values
from vtc.dialects.arguments.values import Schema
from vtc.dialects.constrain.constraint import Inexpressible, quoting
from vtc.events import CanonicalRequest, Message, Tool
from vtc.exchange.asking.steps.messages import REMINDER, StepContext, joined
from vtc.json_text import encode, referred
from vtc.profiles.document import counted
from vtc.profiles.planner import Constraining

# One JSON Schema made simple: what only narrows is said in the description, the rest as grammars know it.


NARROWS = frozenset(
    (
        *("pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "contains", "minProperties", "maxProperties", "propertyNames"),
        *("patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "not", "if", "then", "else"),
    )
)
"""What only narrows a value whose type is said besides."""
_NOT_PLAIN = frozenset(("$schema", "$id", "$comment", "$anchor", "unevaluatedProperties", "readOnly"))
"""What servers of few words refuse besides, and the model need not be told."""
_UNIONS = ("anyOf", "oneOf")
_INSIDE = frozenset(("properties", "items", "additionalProperties", "prefixItems", "anyOf", "oneOf", "allOf"))
_LOOKED_AT = NARROWS | _NOT_PLAIN | {"$ref", "$defs", "definitions", "const", *_UNIONS}
MOST_DEPTH = 12
"""Schemas within schemas beyond which any value may stand: a schema may refer to itself without end."""
MOST_PARTS = 2000
"""Schemas within one that are looked at."""


class Simple:
    """One schema being simplified."""

    def __init__(self, root: Mapping[str, Any], *, plain: bool, most: int = MOST_PARTS) -> None:
        self.root = root
        self.gone: dict[str, None] = {}
        """What was left out, or is said otherwise."""
        self._plain = plain
        self.parts = 0
        """Schemas that were looked at."""
        self._most = min(most, MOST_PARTS)

    def of(self, schema: Any, within: tuple[str, ...] = ()) -> Any:
        """Simplify a schema and those inside; return the very one if there is nothing to it.

        `within` are the references that led here, and the keys: one that leads to itself ends with its type.
        """
        self.parts += 1
        if not isinstance(schema, Mapping):
            return {"type": "string"} if schema is True else schema
        reference = schema.get("$ref")
        if len(within) > MOST_DEPTH or self.parts > self._most or reference in within:
            self.gone["depth"] = None
            simple = there if isinstance(there := referred(self.root, reference), Mapping) else schema
            kind = simple.get("type") if within else "object"  # arguments are one
            return {"type": kind if isinstance(kind, str) else _kind(simple)}
        depth, within = len(within), (*within, reference if isinstance(reference, str) else "")
        keys = schema.keys()
        is_simple = isinstance(schema.get("type"), str) and keys.isdisjoint(_LOOKED_AT)
        simple = schema if is_simple else self._simplified(schema, depth)
        inside = {
            key: new
            for key in _INSIDE & simple.keys()
            if (new := self._inside(key, simple[key], within)) is not simple[key]
        }
        simple = {**simple, **inside} if inside else simple
        if self._plain and simple.get("additionalProperties") is False:
            self.gone["additionalProperties"] = None
            simple = {key: value for key, value in simple.items() if key != "additionalProperties"}
        if depth == 0 and simple.get("type") == "object" and "properties" not in simple:
            simple = {**simple, "properties": {}}
        if depth == 0 and "$ref" in self.gone:
            simple = {key: value for key, value in simple.items() if key not in ("$defs", "definitions")}
        return simple

    def _simplified(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """Simplify a schema, but not those inside."""
        flat = self._flat(schema)
        lost = {key: value for key, value in flat.items() if key in NARROWS}
        silent = _NOT_PLAIN & flat.keys() if self._plain else frozenset[str]()
        kinds = flat.get("type")
        is_known = isinstance(kinds, str) or not flat.keys().isdisjoint({"enum", "const", "allOf", *_UNIONS})
        if flat is schema and is_known and not (lost or silent or (self._plain and "const" in flat)):
            return schema
        out = {key: value for key, value in flat.items() if key not in lost and key not in silent}
        if self._plain and "const" in out:
            out["enum"] = [out.pop("const")]
            self.gone["const"] = None
        others = [value for value in kinds if value != "null"] if isinstance(kinds, list) else []
        if len(others) == 1:
            out["type"] = others[0]
            self.gone["null"] = None
        elif not (is_known or kinds):
            out["type"] = "object" if depth == 0 else _kind(out)
            self.gone["no type"] = None
        self.gone.update(dict.fromkeys((*lost, *silent)))
        if lost:
            description = str(out.get("description") or "")
            hint = "; ".join(f"{key}: {_short(value)}" for key, value in lost.items())
            out["description"] = f"{description}\n({hint})" if description else f"({hint})"
        return out

    def _flat(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Resolve a reference, and a union of which only one member is not null."""
        for _ in range(MOST_DEPTH):
            if "$ref" in schema:
                self.gone["$ref"] = None
                there = referred(self.root, schema["$ref"])
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = {**there, **rest} if isinstance(there, Mapping) else rest
                continue
            key = next((key for key in _UNIONS if isinstance(schema.get(key), list)), None)
            others = [value for value in schema[key] if value != {"type": "null"}] if key else []
            if not key or len(others) != 1 or not isinstance(others[0], Mapping):
                break
            self.gone[key] = None
            schema = {**others[0], **{name: value for name, value in schema.items() if name != key}}
        return schema

    def _inside(self, key: str, value: Any, within: tuple[str, ...]) -> Any:
        if key == "properties" and isinstance(value, Mapping):
            new: Any = {name: self.of(inner, within) for name, inner in value.items()}
            return value if all(new[name] is inner for name, inner in value.items()) else new
        if isinstance(value, list):
            new = [self.of(inner, within) for inner in value]
            return value if all(inner is old for inner, old in zip(new, value, strict=True)) else new
        return self.of(value, within) if isinstance(value, Mapping) else value


def _kind(schema: Mapping[str, Any]) -> str:
    """Tell the type of a value by what is said of it; a text if nothing is."""
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


# Schemas of tools, for servers that make a grammar of each: one that is beyond them takes all tools with it.
#
# What only narrows is said in the description, where the model still reads it; what a call must fit is checked here,
# against the schema that the client sent. `plain` is for servers that refuse keys besides: `$schema`, `const`,
# `additionalProperties`.


MOST_PARTS_OF_ALL = 12000
"""Schemas within those of all tools that are looked at."""
MOST_TOLD = 6
"""Tools that are named in the report."""


def schemas(request: CanonicalRequest, value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Simplify the schemas that say more than types, names and choices."""
    tools: list[Tool] = []
    lines: list[str] = []
    left = MOST_PARTS_OF_ALL
    for tool in request.tools:
        simple = Simple(tool.parameters, plain=value == "plain", most=left)
        parameters = simple.of(tool.parameters)
        left -= simple.parts
        if parameters is not tool.parameters:
            lines.append(f"{tool.name}: {', '.join([*simple.gone])}" if simple.gone else tool.name)
            tool = with_fields(tool, parameters=parameters)
        tools.append(tool)
    if not lines:
        return request, ""
    shown = "; ".join(lines[:MOST_TOLD]) + "; …" * (len(lines) > MOST_TOLD)
    return replace(request, tools=tuple(tools)), f"{counted(len(lines), 'schema')} simplified ({shown})"


# Tools for a conversation that holds calls and declares none, as agents send it to be summed up.


CALLED = "Was called before in this conversation. It cannot be called now."


def declared(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Declare the tools that were called, where none is declared."""
    if request.tools or context.request.offer.declared:
        return request, ""
    named = (name for message in request.messages for name in (*(call.name for call in message.calls), _of(message)))
    tools = tuple(Tool(name, CALLED, {"type": "object", "properties": {}}) for name in dict.fromkeys(named) if name)
    if not tools:
        return request, ""
    return replace(request, tools=tools), f"{counted(len(tools), 'tool')} declared that the conversation calls"


def _of(message: Message) -> str:
    return message.name or "" if message.role == "tool" else ""


# The choice of a tool, for a server that does not heed it.


def choice(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Send no tools where none may be called, and one where that must be: this is worth more than the prompt cache."""
    if request.choice == "auto" or not request.tools:
        return request, ""
    if request.choice == "none":
        return replace(request, tools=(), choice="auto"), "no tools offered, as none may be called"
    named = tuple(tool for tool in request.tools if tool.name == request.choice)
    demand = REMINDER.format(f"Call the tool {request.choice}." if named else "Call one of the tools.")
    last = request.messages[-1:]
    message = Message("user", (demand,))
    joins = bool(last) and last[0].role == "user"
    messages = (*request.messages[:-1], joined([last[0], message], "\n")) if joins else (*request.messages, message)
    line = f"tool_choice {request.choice}: said in the prompt"
    return replace(request, messages=messages, tools=named or request.tools, choice="auto"), line


# The grammar of a reply, for a server that decodes by one; and tools that are strict, for one that makes it itself.
#
# Fails open: what cannot be said is told, and the request goes without.


def constrain(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Send the grammar of the dialect, filled in with the tools."""
    assert isinstance(value, Constraining)
    if (mark := quoting(value.dialect)) and _holds(context.request.messages, mark):
        return request, f"no grammar: the conversation quotes {mark}, which no value could hold"
    try:
        grammar = value.written()
    except Inexpressible as error:
        return request, f"no grammar: {error}"
    constraint = (value.form, grammar)
    if not context.server.constrain(*constraint):
        return request, f"no grammar: {context.server.name} has no field for it"
    if constraint == request.constraint:
        return request, ""
    return replace(request, constraint=constraint), f"a grammar of {value.dialect.name} sent ({value.form})"


def _holds(messages: Iterable[Message], mark: str) -> bool:
    """True if a text of the conversation, or the arguments of a call, hold a mark: a value may have to hold it, too."""
    return any(
        mark in text
        for message in messages
        if message.role != "system"
        for text in (message.text, *(call.arguments for call in message.calls))
    )


def strict(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Declare tools as strict, where each of their objects can be closed; those without parameters stay."""
    tools = tuple(
        with_fields(tool, strict=True, parameters=parameters)
        if not tool.strict and _has_members(tool.parameters) and (parameters := closed(tool.parameters)) is not None
        else tool
        for tool in request.tools
    )
    changed = sum(new is not old for new, old in zip(tools, request.tools, strict=True))
    if not changed:
        return request, ""
    return replace(request, tools=tools), f"{counted(changed, 'tool')} declared as strict"


def _has_members(schema: Schema) -> bool:
    """True if an object declares members. What they are is not looked at: references may double on each level."""
    return bool(values.resolved_of(schema, schema).get("properties"))


class _OpenObject(ValueError):
    """An object may have any members."""


def closed(schema: Any) -> Mapping[str, Any] | None:
    """Close the objects of a schema that say nothing of other members; None if one of them is open."""
    try:
        return _closed(schema, 0)
    except _OpenObject:
        return None


def _closed(schema: Any, depth: int) -> Mapping[str, Any]:
    if depth > MOST_DEPTH or not isinstance(schema, Mapping):
        raise _OpenObject
    declared = schema.get("properties")
    is_object = declared is not None or schema.get("type") == "object"
    if is_object and not (declared and schema.get("additionalProperties", False) is False):
        raise _OpenObject
    members = {key: _inside(key, value, depth + 1) for key, value in schema.items()}
    return {**members, "additionalProperties": False} if is_object else members


def _inside(key: str, inside: Any, depth: int) -> Any:
    if key == "items":
        return _closed(inside, depth)
    if key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(inside, list):
        return [_closed(value, depth) for value in inside]
    if key in ("properties", "$defs", "definitions") and isinstance(inside, Mapping):
        return {name: _closed(value, depth) for name, value in inside.items()}
    return inside
