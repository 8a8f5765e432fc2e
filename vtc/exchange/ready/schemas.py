"""Schemas of tools, for servers that make a grammar of each: one that is beyond them takes all tools with it.

What only narrows is said in the description, where the model still reads it; what a call must fit is checked here,
against the schema that the client sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Tool
from vtc.exchange.ready.given import Given, counted
from vtc.json_text import encode, referred

NARROWS = (
    *("pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "uniqueItems", "contains", "minProperties", "maxProperties", "propertyNames"),
    *("patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "not", "if", "then", "else"),
)
"""What only narrows a value whose type is said besides."""
_SILENT = ("$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "unevaluatedProperties", "readOnly")
"""What is left out without a word: nothing of it is for the model."""
_MANY = ("anyOf", "oneOf")
_INSIDE = ("properties", "items", "additionalProperties", "prefixItems", "anyOf", "oneOf", "allOf")
MOST_DEPTH = 12
"""Schemas within schemas beyond which any value may stand: a schema may refer to itself without end."""
MOST_TOLD = 6


class _Simple:
    """One schema being simplified."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.gone: dict[str, None] = {}
        self.left = 2000  # parts that are looked at

    def of(self, schema: Any, depth: int = 0) -> Any:
        """Simplify a schema and those inside; return the very one if there is nothing to it."""
        self.left -= 1
        if not isinstance(schema, Mapping):
            return {"type": "string"} if schema is True else schema
        if depth > MOST_DEPTH or self.left < 0:
            self.gone["depth"] = None
            return {"type": schema["type"]} if isinstance(schema.get("type"), str) else {"type": "string"}
        found = self._flat(schema)
        lost = {key: found[key] for key in NARROWS if key in found}
        out = {key: one for key, one in found.items() if key not in lost and key not in _SILENT}
        if out.get("additionalProperties") is False:
            del out["additionalProperties"]
            self.gone["additionalProperties"] = None
        if "const" in out:
            out["enum"] = [out.pop("const")]
            self.gone["const"] = None
        for key in _INSIDE:
            if key in out:
                out[key] = self._inside(key, out[key], depth)
        if not out.keys() & {"type", "enum", "anyOf", "oneOf", "allOf"}:
            out["type"] = "object" if depth == 0 else _kind(out)
            self.gone["no type"] = None
        kinds = out.get("type")
        if isinstance(kinds, list) and len(others := [one for one in kinds if one != "null"]) == 1:
            out["type"] = others[0]
            self.gone["null"] = None
        if depth == 0 and out.get("type") == "object":
            out.setdefault("properties", {})
        if lost:
            self.gone.update(dict.fromkeys(lost))
            said = str(out.get("description") or "")
            hint = "; ".join(f"{key}: {_short(one)}" for key, one in lost.items())
            out["description"] = f"{said}\n({hint})" if said else f"({hint})"
        return schema if out == schema else out

    def _flat(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Resolve a reference, and a union of which only one member is not null."""
        for _ in range(MOST_DEPTH):
            if "$ref" in schema:
                self.gone["$ref"] = None
                there = referred(self.root, schema["$ref"])
                rest = {key: one for key, one in schema.items() if key != "$ref"}
                schema = {**there, **rest} if isinstance(there, Mapping) else rest
                continue
            key = next((key for key in _MANY if isinstance(schema.get(key), list)), None)
            others = [one for one in schema[key] if one != {"type": "null"}] if key else []
            if not key or len(others) != 1 or not isinstance(others[0], Mapping):
                break
            self.gone[key] = None
            schema = {**others[0], **{name: one for name, one in schema.items() if name != key}}
        return schema

    def _inside(self, key: str, value: Any, depth: int) -> Any:
        if key == "properties" and isinstance(value, Mapping):
            return {name: self.of(one, depth + 1) for name, one in value.items()}
        if isinstance(value, list):
            return [self.of(one, depth + 1) for one in value]
        return self.of(value, depth + 1) if isinstance(value, Mapping) else value


def schemas(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Simplify the schemas that say more than types, names and choices."""
    tools: list[Tool] = []
    told: list[str] = []
    for tool in asked.tools:
        simple = _Simple(tool.parameters)
        parameters = simple.of(tool.parameters)
        if parameters is not tool.parameters:
            told.append(f"{tool.name}: {', '.join([*simple.gone])}" if simple.gone else tool.name)
            tool = with_fields(tool, parameters=parameters)
        tools.append(tool)
    if not told:
        return asked, ""
    shown = "; ".join(told[:MOST_TOLD]) + "; …" * (len(told) > MOST_TOLD)
    return replace(asked, tools=tuple(tools)), f"{counted(len(told), 'schema')} simplified ({shown})"


def _kind(schema: Mapping[str, Any]) -> str:
    """Tell the type of a value by what is said of it; a text if nothing is."""
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()
