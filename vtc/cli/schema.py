"""`vtc schema`: the keys of profiles as JSON Schema, for editors, or as Markdown.

The description of a key is the docstring of the field that defines it, so that authors of profiles and readers of the
code share one text.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from vtc.profiles.loader import KINDS

JSON_SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_ID_PREFIX = "urn:virtual-tool-calling:profiles:"
"""Start of the identifier of a schema, followed by its kind. A URN, because the schemas are files next to the profiles
(`vtc schema --write`) and not on the network."""


@click.command(short_help="Print the JSON Schema of profiles, for editors.")
@click.argument("kind", type=click.Choice([*KINDS, "profile"]), default="profile")
@click.option(
    "--write",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write all schemas to this directory: client.json, dialect.json and so on.",
)
@click.option("--markdown", is_flag=True, help="Print all keys as Markdown tables, for people.")
def schema(kind: str, directory: Path | None, markdown: bool) -> None:
    """Print the JSON Schema of one kind of profile, or of files with any kind (`profile`, the default).

    An editor with the YAML language server checks and completes a file that begins with
    `# yaml-language-server: $schema=schema/profile.json`, the path from the file to the schema.
    """
    if markdown:
        click.echo(render_markdown(), nl=False)
        return
    if directory is None:
        click.echo(_format_schema(kind), nl=False)
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name in (*KINDS, "profile"):
        (directory / f"{name}.json").write_text(_format_schema(name), "utf-8")
    click.echo(f"{len(KINDS) + 1} schemas written to {directory}")


def _format_schema(kind: str) -> str:
    return json.dumps(build_schema(kind), indent=2, ensure_ascii=False) + "\n"


def build_schema(kind: str) -> dict[str, Any]:
    """Build the JSON Schema of a kind of profile; the one of `profile` depends on the value of `kind`."""
    if kind in KINDS:
        return {
            "$schema": JSON_SCHEMA_DRAFT,
            "$id": f"{SCHEMA_ID_PREFIX}{kind}",
            **_add_descriptions(msgspec.json.schema(KINDS[kind]), KINDS[kind]),
        }
    refs, components = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    described = _add_descriptions({"$defs": components}, *KINDS.values())
    return {
        "$schema": JSON_SCHEMA_DRAFT,
        "$id": f"{SCHEMA_ID_PREFIX}{kind}",
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": [*KINDS], "description": "Subject of the profile."}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": name}}}, "then": ref}
            for name, ref in zip(KINDS, refs, strict=True)
        ],
        **described,
    }


def render_markdown() -> str:
    """Render all keys as Markdown: a table for each kind of profile and for each mapping inside a profile."""
    parts: list[str] = []
    for kind, model in KINDS.items():
        for name, text in _iter_tables(build_schema(kind), model.__name__):
            title = f"## kind: {kind}" if name == model.__name__ else f"### {name}"
            if title not in parts:  # kinds share some mappings
                parts += [title, text]
    return "\n\n".join(parts) + "\n"


def render_table(model: type[msgspec.Struct]) -> str:
    """Render the keys of one class as a Markdown table."""
    return _render_mapping(_add_descriptions(msgspec.json.schema(model), model)["$defs"][model.__name__])


def _iter_tables(schema: Mapping[str, Any], top: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the table of keys of each mapping in a schema; `top`, the profile itself, is the first."""
    definitions = schema["$defs"]
    for name in sorted(definitions, key=lambda name: (name != top, name)):
        mapping = definitions[name]
        description = f"{_join_lines(mapping['description'])}\n\n" if "description" in mapping else ""
        yield name, description + _render_mapping(mapping)


def _render_mapping(mapping: Mapping[str, Any]) -> str:
    lines = ["| key | value | |", "|---|---|---|"]
    for key, value in mapping["properties"].items():
        needed = " (needed)" if key in mapping.get("required", ()) else ""
        lines.append(
            f"| `{key}`{needed} | {_cell(_format_value(value))} | {_cell(_join_lines(value['description']))} |"
        )
    return "\n".join(lines)


def _format_value(value: Mapping[str, Any]) -> str:
    """Format the type of a key's value, and its default."""
    default = value.get("default")
    if default in (None, "", [], (), {}) or isinstance(default, dict) or len(value.get("enum", "--")) == 1:
        return _format_type(value)
    shown = default if isinstance(default, str) else msgspec.json.encode(default).decode()
    return f"{_format_type(value)} (default: `{shown}`)"


def _format_type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        name = str(value["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    if "anyOf" in value:
        kinds = [_format_type(branch) for branch in value["anyOf"]]
        return " or ".join(kind for kind in dict.fromkeys(kinds) if kind != "null")
    if value.get("type") == "array":
        return f"list of {_format_type(value.get('items', {}))}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_format_type(value['additionalProperties'])}"
    names = {"string": "text", "boolean": "true, false", "integer": "number", "object": "mapping"}
    kind = str(value.get("type", "anything"))
    return names.get(kind, kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _add_descriptions(schema: dict[str, Any], *models: type[msgspec.Struct]) -> dict[str, Any]:
    """Add the descriptions of `models` to a schema from msgspec; return the schema."""
    classes = {part.__name__: part for model in models for part in _iter_structs(model)}
    for name, mapping in schema["$defs"].items():
        for key, value in mapping["properties"].items():
            if "description" not in value:
                value["description"] = read_descriptions(classes[name])[key]
    return schema


@cache
def read_descriptions(model: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the docstring of each field of a class, including inherited ones, by the field's name."""
    docstrings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, msgspec.Struct) and base is not msgspec.Struct):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in pairwise(tree.body):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                docstrings[field.target.id] = inspect.cleandoc(str(below.value.value))
    return docstrings


def _iter_structs(model: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield a class and the classes of its fields, at any depth."""
    yield model
    for field in msgspec.structs.fields(model):
        for part in _find_structs(field.type):
            yield from _iter_structs(part)


def _find_structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in (*get_args(annotation), getattr(annotation, "__value__", None)):
        if part is not None:
            yield from _find_structs(part)
