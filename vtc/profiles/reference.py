"""The keys of profiles for people to look up: the JSON Schemas with descriptions, and the same as Markdown.

A description is the docstring below a field in the class that the key comes from, so that there is one text for those
who write profiles and those who read the code.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, get_args

import msgspec

from vtc.profiles.loader import KINDS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
ID = "urn:virtual-tool-calling:profiles:"
"""What the schemas are called, each with its kind. No place on the network: `vtc schema --write` puts them beside
the profiles."""


def schema(kind: str) -> dict[str, Any]:
    """Make the JSON Schema of a kind of profile; of `profile`, one that goes by what stands after `kind:`."""
    if kind in KINDS:
        return {"$schema": DRAFT, "$id": f"{ID}{kind}", **_described(msgspec.json.schema(KINDS[kind]), KINDS[kind])}
    refs, components = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    described = _described({"$defs": components}, *KINDS.values())
    return {
        "$schema": DRAFT,
        "$id": f"{ID}{kind}",
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": [*KINDS], "description": "What the profile is about."}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": name}}}, "then": ref}
            for name, ref in zip(KINDS, refs, strict=True)
        ],
        **described,
    }


def markdown() -> str:
    """Write all keys as Markdown: a table for each kind of profile, and one for each mapping inside of them."""
    parts: list[str] = []
    for kind, model in KINDS.items():
        found = schema(kind)
        for name, one in _tables(found, model.__name__):
            title = f"## kind: {kind}" if name == model.__name__ else f"### {name}"
            if title not in parts:  # several kinds share some
                parts += [title, one]
    return "\n\n".join(parts) + "\n"


def table(model: type[msgspec.Struct]) -> str:
    """Write the keys of one class as a Markdown table."""
    one = _described(msgspec.json.schema(model), model)["$defs"][model.__name__]
    return _table(one)


def _tables(found: Mapping[str, Any], top: str) -> Iterator[tuple[str, str]]:
    """The names of a schema's mappings, the profile itself first, and their keys as tables."""
    definitions = found["$defs"]
    for name in sorted(definitions, key=lambda name: (name != top, name)):
        one = definitions[name]
        told = f"{_flat(one['description'])}\n\n" if "description" in one else ""
        yield name, told + _table(one)


def _table(one: Mapping[str, Any]) -> str:
    lines = ["| key | value | |", "|---|---|---|"]
    for key, value in one["properties"].items():
        needed = " (needed)" if key in one.get("required", ()) else ""
        lines.append(f"| `{key}`{needed} | {_cell(_type(value))} | {_cell(_flat(value['description']))} |")
    return "\n".join(lines)


def _type(value: Mapping[str, Any]) -> str:
    """What may stand there, and what holds if nothing does."""
    default = value.get("default")
    if default in (None, "", [], (), {}) or isinstance(default, dict) or len(value.get("enum", "--")) == 1:
        return _kinds(value)
    shown = default if isinstance(default, str) else msgspec.json.encode(default).decode()
    return f"{_kinds(value)} (default: `{shown}`)"


def _kinds(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        name = str(value["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if "anyOf" in value:
        kinds = [_kinds(one) for one in value["anyOf"]]
        return " or ".join(kind for kind in dict.fromkeys(kinds) if kind != "null")
    if value.get("type") == "array":
        return f"list of {_kinds(value.get('items', {}))}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_kinds(value['additionalProperties'])}"
    names = {"string": "text", "boolean": "true, false", "integer": "number", "object": "mapping"}
    kind = str(value.get("type", "anything"))
    return names.get(kind, kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _described(found: dict[str, Any], *models: type[msgspec.Struct]) -> dict[str, Any]:
    """Put the descriptions into a schema that msgspec made."""
    classes = {one.__name__: one for model in models for one in _inside(model)}
    for name, one in found["$defs"].items():
        for key, value in one["properties"].items():
            value["description"] = descriptions(classes[name])[key]
    return found


@cache
def descriptions(model: type[msgspec.Struct]) -> Mapping[str, str]:
    """The docstring of each field of a class, by the field's name."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not (issubclass(one, msgspec.Struct) and one is not msgspec.Struct):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in pairwise(tree.body):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[field.target.id] = inspect.cleandoc(str(below.value.value))
    return found


def _inside(model: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """A class and those of its fields, at any depth."""
    yield model
    for field in msgspec.structs.fields(model):
        for one in _classes(field.type):
            yield from _inside(one)


def _classes(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for one in (*get_args(annotation), getattr(annotation, "__value__", None)):
        if one is not None:
            yield from _classes(one)
