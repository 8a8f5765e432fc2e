"""Repair values of request bodies that are out of shape, if their meaning is certain.

    {"properties": []} -> {"properties": {}}                      PHP has one empty list for both
    {"arguments": "{\\"a\\": 1}"} -> {"arguments": {"a": 1}}        a history from another API

Each API lists its shapes (`BodyLayout.shapes`) and has further functions of its own. All of them return the same object
if it is in shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from vtc.apis.calls import format_arguments, parse_object
from vtc.apis.content import parse_media_url
from vtc.apis.json_path import edit_at
from vtc.events import Media

ARGUMENTS_ARE_OBJECTS = "arguments of past calls converted to objects"
ARGUMENTS_ARE_TEXT = "arguments of past calls converted to text"
RESULTS_ARE_TEXT = "results that are no text converted to JSON"
SCHEMAS_HAVE_OBJECTS = "empty lists in schemas converted to objects"
OWN_PARTS = "parts converted from another API's form"
OWN_TOOLS = "tools converted from another API's form"
NO_STRICT = "`strict: null` of tools removed"
"""Lines of the report."""


def object_for_list(value: Any) -> Any:
    """Replace an empty list by the empty object that it denotes."""
    return {} if value == [] else value


def arguments_object(value: Any) -> Any:
    """Convert the arguments of a past call to an object; incomplete ones stay, because a later step handles them."""
    if value in ([], "[]"):
        return {}
    arguments = parse_object(value) if isinstance(value, str) else None
    return value if arguments is None else arguments


def arguments_string(value: Any) -> Any:
    """Convert the arguments of a past call to text."""
    return (format_arguments(value) or "{}") if isinstance(value, dict | list) else value


_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""JSON Schema keywords whose value maps names to schemas."""
_SINGLE_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
"""JSON Schema keywords with one schema."""
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
"""JSON Schema keywords with a list of schemas."""
_KEYWORDS = frozenset((*_SCHEMA_MAPS, *_SINGLE_SCHEMAS, *_SCHEMA_LISTS))
NO_PARAMETERS_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}


def fix_schema(schema: Any) -> Any:
    """Repair the schema of a tool's parameters: replace an empty list by an object if no list is possible there."""
    return {**NO_PARAMETERS_SCHEMA} if schema == [] else _fix_schema(schema)


def _fix_schema(schema: Any) -> Any:
    if schema == []:
        return {}
    if not isinstance(schema, dict) or _KEYWORDS.isdisjoint(schema):
        return schema
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        new = value
        if key in _SCHEMA_MAPS:
            new = object_for_list(value)
            if isinstance(new, dict):
                new = edit_at(new, ("*",), _fix_schema, any_key=True)
        elif key in _SINGLE_SCHEMAS:
            new = _fix_schema(value)
        elif key in _SCHEMA_LISTS:
            new = edit_at(value, ("*",), _fix_schema)
        if new is not value:
            changed[key] = new
    return {**schema, **changed} if changed else schema


def without_null_strict(function: Any) -> Any:
    """Remove a `strict` that is null from a function: Copilot sends it, and servers require true or false."""
    if not isinstance(function, dict) or function.get("strict", False) is not None:
        return function
    return {key: value for key, value in function.items() if key != "strict"}


_PART_TYPES = frozenset(
    ("text", "image_url", "input_text", "input_image", "output_text", "image", "document", "file", "input_file")
)
"""Types of parts that are a content's only value."""


def wrap_part(value: Any) -> Any:
    """Wrap a content that is a single part in a list."""
    return [value] if isinstance(value, dict) and value.get("type") in _PART_TYPES else value


def fix_result(value: Any) -> Any:
    """Convert the result of a tool to text or parts; any other value becomes JSON."""
    value = wrap_part(value)
    if value is None or isinstance(value, str):
        return value
    is_parts = isinstance(value, list) and all(isinstance(part, str) or _is_part(part) for part in value)
    return value if is_parts else json.dumps(value, ensure_ascii=False)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def read_foreign_part(part: Any, kinds: Collection[str]) -> str | Media | None:
    """Interpret a part of these types, which belong to other APIs; None for any other part."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in kinds:
        return None
    match part:
        case {"text": str(text)}:
            return text
        case {"type": "image_url" | "input_image", "image_url": {"url": url, **rest}}:
            return parse_media_url("image", url, detail=rest.get("detail"))
        case {"type": "image_url" | "input_image", "image_url": url, **rest}:
            return parse_media_url("image", url, detail=rest.get("detail"))
        case {"type": "image", "source": {"type": "base64", "data": str(data), "media_type": str(media_type)}}:
            return Media("image", media_type, data)
        case {"type": "image", "source": {"type": "url", "url": url}}:
            return parse_media_url("image", url)
    return None


def fix_part(part: Any, kinds: Collection[str], text: str, write: Callable[[Media], Any]) -> Any:
    """Convert a part of these types to the API's form: texts get the type `text`, media are rendered by `write`."""
    meaning = read_foreign_part(part, kinds)
    if isinstance(meaning, str):
        return {**part, "type": text}
    marked = {"cache_control": part["cache_control"]} if meaning and "cache_control" in part else {}
    return {**write(meaning), **marked} if meaning else part


class ForeignFunction(NamedTuple):
    """A function in the declaration of another API."""

    name: str
    about: Mapping[str, Any]
    """Its `description` and `strict`, if present."""
    parameters: Any
    """The schema; None if there is none."""

    def render_flat(self, field: str) -> dict[str, Any]:
        """Render the declaration with the schema in this field."""
        schema = NO_PARAMETERS_SCHEMA if self.parameters is None else self.parameters
        return {"name": self.name, **self.about, field: schema}


_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
"""The fields of the schema in all APIs."""


def read_function(entry: Any) -> ForeignFunction | None:
    """Read the declaration of a function in the form of any API; None for any other declaration."""
    if not isinstance(entry, dict) or entry.get("type", "function") not in ("function", "custom"):
        return None
    declared = entry
    if isinstance(function := entry.get("function"), dict):
        declared = {**entry, **function}
    name = declared.get("name")
    field = next((field for field in _PARAMETERS if field in declared), None)
    if not isinstance(name, str) or (field is None and entry.get("type") != "function"):
        return None
    about = {key: declared[key] for key in ("description", "strict") if key in declared}
    return ForeignFunction(name, about, declared[field] if field else None)
