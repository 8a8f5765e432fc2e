"""A call that is one JSON object, and the whole reply, as JSON Schema: for servers that take nothing else.

References are followed, as each tool has its own, and objects are closed, as these servers hold their models to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vtc import json_text
from vtc.dialects.arguments import values
from vtc.dialects.arguments.values import Schema
from vtc.dialects.constrain.schema import MOST_DEPTH
from vtc.dialects.constrain.tree import Inexpressible, Nodes
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.events import Tool

MOST = 512 << 10
"""Characters of a schema."""
SAID = ("type", "enum", "const", "required")
"""What is kept of a schema besides the schemas in it."""


def write(dialect: Description, tools: Sequence[Tool]) -> Mapping[str, Any]:
    """Write the schema of a reply that is one call. Raises `Inexpressible` if a call is anything but JSON."""
    in_section = dialect.sections and (dialect.section_required or dialect.section_anchor == "anywhere")
    around = dialect.sections[0].replace("{calls}", "") if in_section else ""
    if pattern.body(dialect.calls[0]) != "json" or dialect.calls[0] != "{json}" or around not in ("", "[]"):
        raise Inexpressible(f"dialect {dialect.name}: a call is not a JSON object that is the whole reply")
    if not tools:
        raise Inexpressible("no tools are offered")
    nodes = Nodes(MOST)
    calls = [_call(dialect, tool, nodes) for tool in tools]
    call = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {"type": "array", "items": call, "minItems": 1} if around else call


def _call(dialect: Description, tool: Tool, nodes: Nodes) -> Mapping[str, Any]:
    name, arguments = dialect.json.name[0], dialect.json.arguments[0]
    said = {
        name: {"const": tool.name},
        arguments: {"type": "object", **closed(tool.parameters, tool.parameters, nodes)},
    }
    return {"type": "object", "properties": said, "required": [name, arguments], "additionalProperties": False}


def closed(schema: Any, root: Schema, nodes: Nodes, depth: int = 0) -> Mapping[str, Any]:
    """Leave of a schema types, names and choices, and close its objects; beyond some depth any value may stand."""
    nodes.make()
    schema = values.resolved_of(schema, root)
    if depth > MOST_DEPTH:
        return {}
    found: dict[str, Any] = {key: schema[key] for key in SAID if key in schema}
    nodes.write(len(json_text.write(found)))
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            found["anyOf"] = [closed(one, root, nodes, depth + 1) for one in options]
    if isinstance(items := schema.get("items"), Mapping):
        found["items"] = closed(items, root, nodes, depth + 1)
    if isinstance(declared := schema.get("properties"), Mapping):
        nodes.write(sum(len(key) + 5 for key in declared))
        found["properties"] = {key: closed(one, root, nodes, depth + 1) for key, one in declared.items()}
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        found["additionalProperties"] = closed(others, root, nodes, depth + 1)
    elif (declared or depth == 0) and not others:
        found["additionalProperties"] = False
        found.setdefault("properties", {})
    return found
