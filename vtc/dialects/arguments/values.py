"""Values between tags: text to JSON by the tool's schema, and back.

The type comes from the schema and never from the look: a string parameter `123` stays `"123"`. What is not
a string is read as JSON, then as a Python literal, since templates show models both. Text that fits no allowed type
stays the string it is.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from vtc.dialects.arguments.json_object import GivenTwiceError, once
from vtc.json_text import referred

type Style = Literal["json", "python", "repr", "nested", "typed"]
type Schema = Mapping[str, Any]

MOST_LITERAL = 100_000
"""Characters beyond which text is not tried as a Python literal (the parser behind it is slow and deep)."""
MOST_DEPTH = 32
"""Nesting of child tags beyond which they are text; a schema may refer to itself without end."""
MOST_PARTS = 512
"""References and alternatives of a schema that are followed for one value."""
_UNFIT = object()
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


def kind_named(name: str) -> str:
    """Return the name of a type in JSON Schema, by the one that a tool declares."""
    return _KINDS.get(name.casefold(), name.casefold())


def properties(schema: Any) -> dict[str, Schema]:
    """The declared parameters of a tool and their schemas, with `$ref` and `allOf` resolved."""
    is_plain = isinstance(schema, Mapping) and not _NOT_PLAIN & schema.keys()
    declared = (schema if is_plain else resolved_of(schema, schema)).get("properties")
    if not isinstance(declared, Mapping):
        return {}
    return {
        key: resolved_of(entry, schema) if entry is True or _NOT_PLAIN & entry.keys() else entry
        for key, entry in declared.items()
        if entry is True or isinstance(entry, Mapping)
    }


def required(schema: Any) -> tuple[str, ...]:
    """Return the names of the parameters that a tool requires."""
    is_plain = isinstance(schema, Mapping) and not _NOT_PLAIN & schema.keys()
    names = (schema if is_plain else resolved_of(schema, schema)).get("required")
    return tuple(name for name in _listed(names) if isinstance(name, str))


def is_text(schema: Schema, root: Schema, *, or_null: bool = False) -> bool:
    """True if any text is a value, as it stands, and nothing else is, `or_null` aside."""
    schema = resolved_of(schema, root)
    kinds = {kind for kind, _ in types_of(schema, root)} - ({"null"} if or_null else set())
    return kinds == {"string"} and not schema.keys() & {"enum", "const"}


def takes_text(schema: Schema, root: Schema) -> bool:
    """True if some text is a value of this schema."""
    schema = resolved_of(schema, root)
    options = [*_listed(schema.get("enum")), schema.get("const")]
    kinds = [kind for kind, _ in types_of(schema, root)]
    return "string" in kinds or any(isinstance(option, str) for option in options) or not (kinds or options[:-1])


def takes_all(schema: Schema, root: Schema) -> bool:
    """True if any value is one of this schema, as it says nothing of the type."""
    schema = resolved_of(schema, root)
    return not (types_of(schema, root) or schema.keys() & {"enum", "const"})


def read(text: str, schema: Schema, root: Schema, depth: int = 0, mark: str = "") -> tuple[Any, bool]:
    """The value that `text` stands for, and whether it fits the schema (a misfit stays a string).

    `mark` is what stands before each child tag of a list or an object, in a dialect that writes them so.
    """
    schema = resolved_of(schema, root)
    options = _listed(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    for option in options:
        if not isinstance(option, str) and text.strip() in (_dumped(option), str(option)):
            return option, True
    types = types_of(schema, root)
    if not types and not options:
        return _untyped(text, root, depth, mark), True
    strings = [pair for pair in types if pair[0] == "string"]
    string = bool(strings)
    # That nothing is written stands for null, [] or {} only where it cannot be a string.
    other_types = [] if string and not text else types[: len(types) - len(strings)]
    attempts = [(kind, entry, True) for kind, entry in other_types]
    # Members that no schema declares, only where none declares them all
    attempts += [(kind, entry, False) for kind, entry in other_types if mark and kind == "object"]
    attempts += [(kind, entry, True) for kind, entry in strings]
    for kind, entry, closed in attempts:
        value = _as(kind, text, entry, root, depth, mark, closed=closed)
        if value is not _UNFIT:
            return value, True
    if string or text in options:
        return text, not options or text in options
    if text.strip() in ("null", "None"):
        return None, False
    return text, False


def unquoted(text: str) -> tuple[Any, bool]:
    """The value of text that is said to be no string, and whether it is one."""
    value = _parsed(text.strip())
    return (text, False) if value is _UNFIT else (value, True)


def write(value: Any, style: Style) -> str:
    """A value as `style` writes it; strings stand as they are."""
    if isinstance(value, str):
        return value
    if style == "repr" or (style == "python" and (value is None or isinstance(value, bool | int | float))):
        return repr(value)
    return _dumped(value)


_NOT_PLAIN = {"$ref", "allOf"}
"""The keys of a schema that says something in another place."""


class _Left:
    """How many more parts of a schema are looked at: references may double on each level."""

    def __init__(self) -> None:
        self._parts = MOST_PARTS

    def take(self) -> bool:
        self._parts -= 1
        return self._parts >= 0


def resolved_of(schema: Any, root: Schema, depth: int = 0, left: _Left | None = None) -> Schema:
    left = left or _Left()
    if not isinstance(schema, Mapping) or depth > 16 or not left.take():
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rest = {key: entry for key, entry in schema.items() if key != "$ref"}
        return {**resolved_of(referred(root, reference), root, depth + 1, left), **rest}
    every = schema.get("allOf")
    if isinstance(every, list):
        merged: dict[str, Any] = {}
        for part in (*every, {key: entry for key, entry in schema.items() if key != "allOf"}):
            resolved = resolved_of(part, root, depth + 1, left)
            known = [part["properties"] for part in (merged, resolved) if isinstance(part.get("properties"), Mapping)]
            needed = [*_listed(merged.get("required")), *_listed(resolved.get("required"))]
            merged.update(resolved)
            if known:
                merged["properties"] = {key: entry for declared in known for key, entry in declared.items()}
            if needed:
                merged["required"] = needed
        return merged
    return schema


def types_of(schema: Schema, root: Schema, depth: int = 0, left: _Left | None = None) -> list[tuple[str, Schema]]:
    """The allowed types in the schema's order, strings last (anything is a string)."""
    types: list[tuple[str, Schema]] = []
    left = left or _Left()
    for member in [*_listed(schema.get("anyOf")), *_listed(schema.get("oneOf"))]:
        if depth < 8 and left.take():
            types += types_of(resolved_of(member, root), root, depth + 1, left)
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if isinstance(kind, str) and (known := kind_named(kind)) != "any":
            types.append((known, schema))
    if not types:
        if "properties" in schema or "additionalProperties" in schema:
            types.append(("object", schema))
        elif "items" in schema or "prefixItems" in schema:
            types.append(("array", schema))
        elif any(isinstance(option, str) for option in _listed(schema.get("enum"))):
            types.append(("string", schema))
    return sorted(types, key=lambda pair: pair[0] == "string")


def _as(kind: str, text: str, schema: Schema, root: Schema, depth: int, mark: str, *, closed: bool) -> Any:
    """`text` read as one type, or `_UNFIT`; if not `closed`, an object in tags may have undeclared members."""
    bare = text.strip()
    match kind:
        case "string":
            options = _listed(schema.get("enum"))
            return text if not options or text in options else _UNFIT
        case "null":
            return None if bare in ("null", "None", "") else _UNFIT
        case "boolean":
            return {"true": True, "false": False}.get(bare.lower(), _UNFIT)
        case "integer":
            value = _parsed(bare)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            return value if isinstance(value, int) and not isinstance(value, bool) else _UNFIT
        case "number":
            value = _parsed(bare)
            return value if isinstance(value, int | float) and not isinstance(value, bool) else _UNFIT
        case "array" | "object":
            wanted = list if kind == "array" else dict
            value = wanted() if not bare else _parsed(bare)
            if not isinstance(value, wanted) and bare.startswith(f"{mark}<") and depth < MOST_DEPTH:
                value = _children(bare, kind, schema, root, depth, mark, closed=closed)
            return value if isinstance(value, wanted) else _UNFIT
    return _UNFIT


def _untyped(text: str, root: Schema, depth: int, mark: str) -> Any:
    """A parameter of which nothing is known: an object or array if it is one, else the text."""
    bare = text.strip()
    if mark and bare.startswith(f"{mark}<") and depth < MOST_DEPTH:
        for kind in ("array", "object"):
            value = _children(bare, kind, {}, root, depth, mark, closed=False)
            if value is not _UNFIT:
                return value
    value = _parsed(bare) if bare[:1] in ("{", "[") else _UNFIT
    return value if isinstance(value, dict | list) else text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=once)
    except GivenTwiceError:
        return _UNFIT  # a literal of Python would leave all but the last out
    except (ValueError, RecursionError):
        pass
    try:
        return python_literal(text)
    except ValueError:
        return _UNFIT


def python_literal(text: str) -> Any:
    """The value of a Python literal, if JSON has such a value; raises ValueError."""
    if len(text) > MOST_LITERAL:
        raise ValueError("too long for a literal")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the likes of `'\d'`, which is how models write them
            value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"no literal: {error}") from None
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("JSON has no such number")
    return value


def _children(text: str, kind: str, schema: Schema, root: Schema, depth: int, mark: str, *, closed: bool) -> Any:
    """`<item>…</item>` children as a list, `<key>…</key>` children as an object; all of the text or nothing."""
    declared, additional = schema.get("properties"), schema.get("additionalProperties")
    entries: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    if kind == "array":
        names = "item"
    else:
        names = "|".join(map(re.escape, entries)) or "(?!)" if closed else _ANY_KEY
    opener = re.compile(rf"\s*{re.escape(mark)}<({names})>")
    children = _split(text, opener, mark, counted=True) or _split(text, opener, mark, counted=False)
    if not children or (kind == "object" and len({key for key, _ in children}) < len(children)):
        return _UNFIT
    if kind == "array":
        first, rest = _listed(schema.get("prefixItems")), schema.get("items")
        kinds = [*first[: len(children)], *[rest] * (len(children) - len(first))]
    else:
        kinds = [entries.get(key, additional) for key, _ in children]
    fitting = [
        read(text, kind if isinstance(kind, Mapping) else {}, root, depth + 1, mark)[0]
        for (_, text), kind in zip(children, kinds, strict=True)
    ]
    return fitting if kind == "array" else {key: value for (key, _), value in zip(children, fitting, strict=True)}


_ANY_KEY = r"[^\s<>\"'=/\\]{1,128}"


def _split(text: str, opener: re.Pattern[str], mark: str, *, counted: bool) -> list[tuple[str, str]]:
    """Return the names and texts of child tags; none if the text is anything else.

    As everywhere, a closer counts only where another child or the end follows it, and if `counted`, only if it is not
    that of an opener inside of the child.
    """
    children: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        opened = opener.match(text, at)
        if not opened:
            return []
        inside = 0
        for tag in re.compile(rf"{re.escape(mark)}<(/?){re.escape(opened[1])}>").finditer(text, opened.end()):
            if not tag[1]:
                inside += counted
            elif inside:
                inside -= 1
            elif tag.end() == len(text) or opener.match(text, tag.end()):
                inner = text[opened.end() : tag.start()]
                children.append((opened[1], inner if mark else _unframed(inner)))
                at = tag.end()
                break
        else:
            return []
    return children


def _listed(value: Any) -> list[Any]:
    """A list of a schema; what a client sends instead of one says nothing."""
    return value if isinstance(value, list) else []


def _unframed(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "\n" else text


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def sole(schema: Schema) -> str | None:
    """Return the one parameter of a tool, if it is required text."""
    declared, needed = properties(schema), required(schema)
    if len(needed) == 1 and needed[0] in declared and is_text(declared[needed[0]], schema):
        return str(needed[0])
    return None
