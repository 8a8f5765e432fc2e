"""What a JSON Schema says: the parameters of a tool and which of them it requires, and the types of a value.

Schemas are the client's, and may be anything: what is none says nothing, and references are followed only so far.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

type Schema = Mapping[str, Any]

MAX_SCHEMA_PARTS = 512
"""References and alternatives of a schema that are followed for one value."""
_KINDS = {
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
"""Types that tools declare in practice, by the names of Python and others, as JSON Schema calls them."""


def normalize_type(name: str) -> str:
    """Return the name of a type in JSON Schema, by the one that a tool declares."""
    return _KINDS.get(name.casefold(), name.casefold())


class ObjectSchema:
    """The members of an object, with `$ref` and `allOf` resolved: of a tool's, its parameters."""

    def __init__(self, schema: Any) -> None:
        is_plain = isinstance(schema, Mapping) and not _NOT_PLAIN & schema.keys()
        resolved = schema if is_plain else resolve_schema(schema, schema)
        declared, required = resolved.get("properties"), resolved.get("required")
        self.root: Schema = schema if isinstance(schema, Mapping) else {}
        """The schema itself, in which references are followed."""
        self.properties: Mapping[str, Schema] = {
            key: resolve_schema(entry, schema) if entry is True or _NOT_PLAIN & entry.keys() else entry
            for key, entry in (declared.items() if isinstance(declared, Mapping) else ())
            if entry is True or isinstance(entry, Mapping)
        }
        """Those that it declares, and their schemas."""
        self.required: tuple[str, ...] = (
            tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()
        )
        """The names of those that it requires."""

    def list_missing(self, given: Collection[str]) -> list[str]:
        """List the required members that are not there."""
        return [key for key in self.required if key not in given]

    def is_text(self, name: str) -> bool:
        """True if a member is declared, and is text and nothing else, whichever."""
        return name in self.properties and is_text(self.properties[name], self.root)

    def accepts_text(self, name: str) -> bool:
        """True if some text is a value of a member; of one that is not declared any may be."""
        return name not in self.properties or accepts_text(self.properties[name], self.root)

    @cached_property
    def sole_required_text(self) -> str | None:
        """The one parameter that a tool requires, if that is text; else None."""
        name = self.required[0] if len(self.required) == 1 else ""
        return name if self.is_text(name) else None

    @property
    def only_parameter(self) -> str | None:
        """The parameter that a single argument is, whatever it is called; None if it may be another.

        It is required text, and the tool takes nothing else.
        """
        takes_more = len(self.properties) > 1 or self.root.get("additionalProperties")
        return None if takes_more else self.sole_required_text


def is_text(schema: Schema, root: Schema, *, or_null: bool = False) -> bool:
    """True if any text is a value, as it stands, and nothing else is, `or_null` aside."""
    schema = resolve_schema(schema, root)
    kinds = {kind for kind, _ in list_types(schema, root)} - ({"null"} if or_null else set())
    return kinds == {"string"} and not schema.keys() & {"enum", "const"}


def accepts_text(schema: Schema, root: Schema) -> bool:
    """True if some text is a value of this schema."""
    schema = resolve_schema(schema, root)
    options = [*as_list(schema.get("enum")), schema.get("const")]
    kinds = [kind for kind, _ in list_types(schema, root)]
    return "string" in kinds or any(isinstance(option, str) for option in options) or not (kinds or options[:-1])


def accepts_all(schema: Schema, root: Schema) -> bool:
    """True if any value is one of this schema, as it says nothing of the type."""
    schema = resolve_schema(schema, root)
    return not (list_types(schema, root) or schema.keys() & {"enum", "const"})


_NOT_PLAIN = {"$ref", "allOf"}
"""The keys of a schema that says something in another place."""


class _PartBudget:
    """How many more parts of a schema are looked at: references may double on each level."""

    def __init__(self) -> None:
        self._parts = MAX_SCHEMA_PARTS

    def take(self) -> bool:
        self._parts -= 1
        return self._parts >= 0


def resolve_reference(root: Any, reference: Any) -> Any:
    """Find what a `$ref` of a JSON Schema refers to in its own root; None if there is nothing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    for step in filter(None, reference[1:].split("/")):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def resolve_schema(schema: Any, root: Schema, depth: int = 0, left: _PartBudget | None = None) -> Schema:
    """Return a schema with what its `$ref` and `allOf` say in it; an empty one for what is none."""
    left = left or _PartBudget()
    if not isinstance(schema, Mapping) or depth > 16 or not left.take():
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rest = {key: entry for key, entry in schema.items() if key != "$ref"}
        return {**resolve_schema(resolve_reference(root, reference), root, depth + 1, left), **rest}
    every = schema.get("allOf")
    if isinstance(every, list):
        merged: dict[str, Any] = {}
        for part in (*every, {key: entry for key, entry in schema.items() if key != "allOf"}):
            resolved = resolve_schema(part, root, depth + 1, left)
            known = [part["properties"] for part in (merged, resolved) if isinstance(part.get("properties"), Mapping)]
            needed = [*as_list(merged.get("required")), *as_list(resolved.get("required"))]
            merged.update(resolved)
            if known:
                merged["properties"] = {key: entry for declared in known for key, entry in declared.items()}
            if needed:
                merged["required"] = needed
        return merged
    return schema


def list_types(
    schema: Schema, root: Schema, depth: int = 0, left: _PartBudget | None = None
) -> list[tuple[str, Schema]]:
    """The allowed types in the schema's order, strings last (anything is a string)."""
    types: list[tuple[str, Schema]] = []
    left = left or _PartBudget()
    for member in [*as_list(schema.get("anyOf")), *as_list(schema.get("oneOf"))]:
        if depth < 8 and left.take():
            types += list_types(resolve_schema(member, root), root, depth + 1, left)
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if isinstance(kind, str) and (known := normalize_type(kind)) != "any":
            types.append((known, schema))
    if not types:
        if "properties" in schema or "additionalProperties" in schema:
            types.append(("object", schema))
        elif "items" in schema or "prefixItems" in schema:
            types.append(("array", schema))
        elif any(isinstance(option, str) for option in as_list(schema.get("enum"))):
            types.append(("string", schema))
    return sorted(types, key=lambda pair: pair[0] == "string")


def as_list(value: Any) -> list[Any]:
    """Return a list of a schema; what a client sends instead of one says nothing."""
    return value if isinstance(value, list) else []
