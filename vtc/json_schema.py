"""Interpret JSON Schemas: the parameters of a tool, which of them are required, and the types of a value.

Schemas are the client's input and may be malformed: invalid parts are ignored, and references are followed to a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

type Schema = Mapping[str, Any]

MAX_SCHEMA_PARTS = 512
"""Maximum number of references and alternatives of a schema that are followed for one value."""
_TYPE_SYNONYMS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
}
"""JSON Schema names of types by the names that some tools declare instead, mostly Python's."""


def normalize_type(name: str) -> str:
    """Return the JSON Schema name of a declared type (`str` -> `string`); unknown names in lower case."""
    return _TYPE_SYNONYMS.get(name.casefold(), name.casefold())


class ObjectSchema:
    """The members of an object schema, with `$ref` and `allOf` resolved; for a tool, its parameters."""

    def __init__(self, schema: Any) -> None:
        is_plain = isinstance(schema, Mapping) and not _REFERENCE_KEYS & schema.keys()
        resolved_schema = schema if is_plain else resolve_schema(schema, schema)
        declared, required = resolved_schema.get("properties"), resolved_schema.get("required")
        self.root: Schema = schema if isinstance(schema, Mapping) else {}
        """The schema itself, against which references are resolved."""
        self.properties: Mapping[str, Schema] = {
            key: resolve_schema(entry, schema) if entry is True or _REFERENCE_KEYS & entry.keys() else entry
            for key, entry in (declared.items() if isinstance(declared, Mapping) else ())
            if entry is True or isinstance(entry, Mapping)
        }
        """Declared members and their schemas."""
        self.required: tuple[str, ...] = (
            tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()
        )
        """Names of the required members."""

    def list_missing(self, given: Collection[str]) -> list[str]:
        """List the required members that are missing in `given`."""
        return [key for key in self.required if key not in given]

    def is_text(self, name: str) -> bool:
        """True if a member is declared and accepts any text and nothing else."""
        return name in self.properties and is_text(self.properties[name], self.root)

    def accepts_text(self, name: str) -> bool:
        """True if a member accepts some text; an undeclared one accepts anything."""
        return name not in self.properties or accepts_text(self.properties[name], self.root)

    @cached_property
    def sole_required_text(self) -> str | None:
        """The only required parameter, if it is text; else None."""
        name = self.required[0] if len(self.required) == 1 else ""
        return name if self.is_text(name) else None

    @property
    def only_parameter(self) -> str | None:
        """The only parameter of a tool, so that a single argument under a wrong name can only denote this one.

        It is required and accepts any text. None if the tool has no such parameter, declares others, or says that it
        accepts undeclared ones (`additionalProperties`; by default JSON Schema accepts them, but few tools mean that).
        """
        accepts_more = len(self.properties) > 1 or self.root.get("additionalProperties")
        return None if accepts_more else self.sole_required_text


def is_text(schema: Schema, root: Schema, *, or_null: bool = False) -> bool:
    """True if a schema accepts any text and nothing else, except null if `or_null`."""
    schema = resolve_schema(schema, root)
    kinds = {kind for kind, _ in list_types(schema, root)} - ({"null"} if or_null else set())
    return kinds == {"string"} and not schema.keys() & {"enum", "const"}


def accepts_text(schema: Schema, root: Schema) -> bool:
    """True if a schema accepts some text."""
    schema = resolve_schema(schema, root)
    options = [*as_list(schema.get("enum")), schema.get("const")]
    kinds = [kind for kind, _ in list_types(schema, root)]
    if "string" in kinds or any(isinstance(option, str) for option in options):
        return True
    has_enum = len(options) > 1
    return not (kinds or has_enum)


def accepts_all(schema: Schema, root: Schema) -> bool:
    """True if a schema accepts any value, because it does not restrict the type."""
    schema = resolve_schema(schema, root)
    return not (list_types(schema, root) or schema.keys() & {"enum", "const"})


_REFERENCE_KEYS = {"$ref", "allOf"}
"""Keys that `resolve_schema` replaces by the members of other schemas."""


class _PartBudget:
    """Number of schema parts that may still be followed, because references may double on each level."""

    def __init__(self) -> None:
        self._parts = MAX_SCHEMA_PARTS

    def take(self) -> bool:
        self._parts -= 1
        return self._parts >= 0


def resolve_reference(root: Any, reference: Any) -> Any:
    """Find the target of a `$ref` in the root of its schema; None if there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    for step in filter(None, reference[1:].split("/")):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def resolve_schema(schema: Any, root: Schema, depth: int = 0, budget: _PartBudget | None = None) -> Schema:
    """Return a schema with its `$ref` and `allOf` merged in.

    Return an empty one if the value is not a schema, is nested too deeply, or `budget` is spent.
    """
    budget = budget or _PartBudget()
    if not isinstance(schema, Mapping) or depth > 16 or not budget.take():
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rest = {key: entry for key, entry in schema.items() if key != "$ref"}
        return {**resolve_schema(resolve_reference(root, reference), root, depth + 1, budget), **rest}
    every = schema.get("allOf")
    if isinstance(every, list):
        merged: dict[str, Any] = {}
        for part in (*every, {key: entry for key, entry in schema.items() if key != "allOf"}):
            resolved = resolve_schema(part, root, depth + 1, budget)
            members: dict[str, Any] = {}
            has_members = False
            for properties in (merged.get("properties"), resolved.get("properties")):
                if isinstance(properties, Mapping):
                    members.update(properties)
                    has_members = True
            required = [*as_list(merged.get("required")), *as_list(resolved.get("required"))]
            merged.update(resolved)
            if has_members:
                merged["properties"] = members
            if required:
                merged["required"] = required
        return merged
    return schema


def list_types(
    schema: Schema, root: Schema, depth: int = 0, budget: _PartBudget | None = None
) -> list[tuple[str, Schema]]:
    """List the allowed types in the schema's order, but strings last because any text is a string."""
    types: list[tuple[str, Schema]] = []
    budget = budget or _PartBudget()
    for member in [*as_list(schema.get("anyOf")), *as_list(schema.get("oneOf"))]:
        if depth < 8 and budget.take():
            types += list_types(resolve_schema(member, root), root, depth + 1, budget)
    declared = schema.get("type")
    for kind in declared if isinstance(declared, list) else [declared]:
        normalized = normalize_type(kind) if isinstance(kind, str) else "any"
        if normalized != "any":
            types.append((normalized, schema))
    if not types:
        if "properties" in schema or "additionalProperties" in schema:
            types.append(("object", schema))
        elif "items" in schema or "prefixItems" in schema:
            types.append(("array", schema))
        elif any(isinstance(option, str) for option in as_list(schema.get("enum"))):
            types.append(("string", schema))
    return sorted(types, key=lambda pair: pair[0] == "string")


def list_options(schema: Mapping[str, Any]) -> list[Any]:
    """List the values that a schema enumerates; none if it does not."""
    options = schema.get("enum")
    listed = options if isinstance(options, list) else []
    return listed or ([schema["const"]] if "const" in schema else [])


def get_type(value: Any) -> str:
    """Return the type of a JSON value, by its name in schemas."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "null" if value is None else "object"


def as_list(value: Any) -> list[Any]:
    """Return a value that should be a list; an empty list if the client sent something else."""
    return value if isinstance(value, list) else []
