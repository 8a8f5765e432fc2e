"""The tool list as a model is shown it: Jinja2 templates in a sandbox, fed with plain data.

A tool's own texts are data here: what looks like a template in a description is never evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vtc.dialects.syntax.pattern import PatternError
from vtc.events import Tool


def _tojson(value: object, indent: int | None = None) -> str:
    # Not Jinja's own filter: that one escapes for HTML, and a model shall see the text as it is.
    return json.dumps(value, ensure_ascii=False, indent=indent)


_environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, undefined=jinja2.StrictUndefined
)
_environment.filters["tojson"] = _tojson


@lru_cache(maxsize=256)
def _template(text: str) -> jinja2.Template:
    return _environment.from_string(text)


_PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "A path."}}, "required": []}
_SAMPLE = Tool("read", "Reads a file.", _PARAMETERS)


def check(text: str) -> None:
    """Raise `PatternError` if `text` is no template, or cannot be rendered for a plain tool."""
    try:
        _rendered(text, [_SAMPLE], {"must_call": "", "example": ""})
    except jinja2.TemplateSyntaxError as error:
        raise PatternError("prompt", f"line {error.lineno} of the template: {error.message}") from None
    except Exception as error:
        raise PatternError("prompt", f"the template fails: {error}") from None


def render(text: str, tools: Sequence[Tool], variables: Mapping[str, Any]) -> str:
    """The prompt for `tools`, each with `name`, `description`, `parameters` (JSON Schema) and `fields`.

    A schema that is none, as the template needs it, is left out: it costs its tool the parameters, and no other tool.
    """
    try:
        return _rendered(text, tools, variables)
    except Exception:
        return _rendered(text, [_renderable(text, tool, variables) for tool in tools], variables)


def _renderable(text: str, tool: Tool, variables: Mapping[str, Any]) -> Tool:
    try:
        _rendered(text, [tool], variables)
    except Exception:
        return replace(tool, parameters={"type": "object", "properties": {}})
    return tool


def _rendered(text: str, tools: Sequence[Tool], variables: Mapping[str, Any]) -> str:
    shown = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "fields": fields(tool.parameters),
            "declaration": tool.as_openai(),
        }
        for tool in tools
    ]
    return _template(text).render(tools=shown, **variables).strip()


def fields(schema: Mapping[str, Any], depth: int = 0) -> list[dict[str, Any]]:
    """A schema's properties, flattened for a list: name, type in words, required, description, depth.

    The fields of nested objects and of array items follow their parent one level deeper.
    """
    required = schema.get("required") or ()
    found: list[dict[str, Any]] = []
    for name, entry in (schema.get("properties") or {}).items():
        entry = entry if isinstance(entry, dict) else {}
        found.append(
            {
                "name": name,
                "type": type_in_words(entry),
                "required": name in required,
                "description": entry.get("description", ""),
                "enum": entry.get("enum"),
                "default": entry.get("default"),
                "has_default": "default" in entry,
                "depth": depth,
            }
        )
        inner = entry.get("items") if isinstance(entry.get("items"), dict) else entry
        if depth < 4 and isinstance(inner, dict) and inner.get("properties"):
            found += fields(inner, depth + 1)
    return found


def type_in_words(schema: Mapping[str, Any]) -> str:
    """`string`, `array of object`, `integer or null` …"""
    union = schema.get("anyOf") or schema.get("oneOf")
    if union:
        return " or ".join(dict.fromkeys(type_in_words(member) for member in union if isinstance(member, dict)))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind)
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"array of {type_in_words(schema['items'])}"
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "any"
