"""One JSON Schema made simple: what only narrows is said in the description, the rest as grammars know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.json_text import encode, referred

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
            found = there if isinstance(there := referred(self.root, reference), Mapping) else schema
            kind = found.get("type") if within else "object"  # arguments are one
            return {"type": kind if isinstance(kind, str) else _kind(found)}
        depth, within = len(within), (*within, reference if isinstance(reference, str) else "")
        keys = schema.keys()
        is_simple = isinstance(schema.get("type"), str) and keys.isdisjoint(_LOOKED_AT)
        found = schema if is_simple else self._simplified(schema, depth)
        inside = {
            key: new
            for key in _INSIDE & found.keys()
            if (new := self._inside(key, found[key], within)) is not found[key]
        }
        found = {**found, **inside} if inside else found
        if self._plain and found.get("additionalProperties") is False:
            self.gone["additionalProperties"] = None
            found = {key: one for key, one in found.items() if key != "additionalProperties"}
        if depth == 0 and found.get("type") == "object" and "properties" not in found:
            found = {**found, "properties": {}}
        if depth == 0 and "$ref" in self.gone:
            found = {key: one for key, one in found.items() if key not in ("$defs", "definitions")}
        return found

    def _simplified(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """Simplify a schema, but not those inside."""
        found = self._flat(schema)
        lost = {key: one for key, one in found.items() if key in NARROWS}
        silent = _NOT_PLAIN & found.keys() if self._plain else frozenset[str]()
        kinds = found.get("type")
        is_known = isinstance(kinds, str) or not found.keys().isdisjoint({"enum", "const", "allOf", *_UNIONS})
        if found is schema and is_known and not (lost or silent or (self._plain and "const" in found)):
            return schema
        out = {key: one for key, one in found.items() if key not in lost and key not in silent}
        if self._plain and "const" in out:
            out["enum"] = [out.pop("const")]
            self.gone["const"] = None
        others = [one for one in kinds if one != "null"] if isinstance(kinds, list) else []
        if len(others) == 1:
            out["type"] = others[0]
            self.gone["null"] = None
        elif not (is_known or kinds):
            out["type"] = "object" if depth == 0 else _kind(out)
            self.gone["no type"] = None
        self.gone.update(dict.fromkeys((*lost, *silent)))
        if lost:
            said = str(out.get("description") or "")
            hint = "; ".join(f"{key}: {_short(one)}" for key, one in lost.items())
            out["description"] = f"{said}\n({hint})" if said else f"({hint})"
        return out

    def _flat(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Resolve a reference, and a union of which only one member is not null."""
        for _ in range(MOST_DEPTH):
            if "$ref" in schema:
                self.gone["$ref"] = None
                there = referred(self.root, schema["$ref"])
                rest = {key: one for key, one in schema.items() if key != "$ref"}
                schema = {**there, **rest} if isinstance(there, Mapping) else rest
                continue
            key = next((key for key in _UNIONS if isinstance(schema.get(key), list)), None)
            others = [one for one in schema[key] if one != {"type": "null"}] if key else []
            if not key or len(others) != 1 or not isinstance(others[0], Mapping):
                break
            self.gone[key] = None
            schema = {**others[0], **{name: one for name, one in schema.items() if name != key}}
        return schema

    def _inside(self, key: str, value: Any, within: tuple[str, ...]) -> Any:
        if key == "properties" and isinstance(value, Mapping):
            new: Any = {name: self.of(one, within) for name, one in value.items()}
            return value if all(new[name] is one for name, one in value.items()) else new
        if isinstance(value, list):
            new = [self.of(one, within) for one in value]
            return value if all(one is came for one, came in zip(new, value, strict=True)) else new
        return self.of(value, within) if isinstance(value, Mapping) else value


def _kind(schema: Mapping[str, Any]) -> str:
    """Tell the type of a value by what is said of it; a text if nothing is."""
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()
