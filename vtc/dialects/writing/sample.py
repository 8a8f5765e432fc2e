"""A call of a tool, filled in: values that its schema allows, to show how a call of it is written.

A model that is asked again is shown its own tool's call. Prompts show `...` instead (`example.py`): there models copied
values that look real (benchmarks/README.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vtc.dialects.arguments import values
from vtc.dialects.syntax.description import Description
from vtc.dialects.writing.example import shown, written
from vtc.events import Tool

MOST_DEPTH = 4
"""Objects and lists within each other that are filled."""
_PLAIN = re.compile(r"\w(?:[\w .,:/@+-]{0,60}\w)?")
"""Text of a client's schema that no dialect's markup is in."""
_WORDS = (
    (r"dir|folder", "src"),
    (r"path|file", "notes.txt"),
    (r"command|cmd|script", "ls"),
    (r"city|location|place|town", "Paris"),
    (r"ur[il]|link", "https://example.com/"),
    (r"country", "France"),
    (r"date", "2026-01-31"),
    (r"mail", "ada@example.com"),
    (r"language", "English"),
    (r"pattern|query|search|term|keyword", "apple"),
    (r"content|text|body|message", "Hello"),
    (r"old|before|from", "apple"),
    (r"new|after|to", "pear"),
    (r"name|user|author", "Ada"),
)
"""What a text may be, by words of its parameter's name."""


def usage(dialect: Description, tool: Tool) -> str:
    """Write a call of a tool as a dialect does, filled in."""
    return written(dialect, tool, filled(tool))


def filled(tool: Tool) -> dict[str, Any]:
    """Make a value for all that a tool requires, or all that it takes if that is nothing."""
    declared = values.properties(tool.parameters)
    return {name: _value(name, declared[name], tool.parameters, 0) for name in shown(tool)}


def _value(name: str, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    schema = values.resolved_of(schema, root)
    options = [schema.get(key) for key in ("const", "default")]
    options += [one for key in ("examples", "enum") if isinstance(many := schema.get(key), list) for one in many[:1]]
    for one in options:
        if isinstance(one, bool | int | float) or (isinstance(one, str) and _PLAIN.fullmatch(one)):
            return one
    types = values.types_of(schema, root)
    kind, entry = next((one for one in types if one[0] != "null"), ("string", schema))
    match kind:
        case "boolean":
            return True
        case "integer" | "number":
            least = entry.get("minimum")
            return least if isinstance(least, int) and not isinstance(least, bool) else 1
        case "array":
            return [_value(name, entry.get("items"), root, depth + 1)] if depth < MOST_DEPTH else []
        case "object":
            inner, needed = values.properties(entry), values.required(entry)
            keys = [key for key in inner if key in needed] if depth < MOST_DEPTH else []
            return {key: _value(key, inner[key], root, depth + 1) for key in keys}
    return next((word for words, word in _WORDS if re.search(words, name.lower())), "apple")
