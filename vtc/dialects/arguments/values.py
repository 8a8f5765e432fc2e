"""Values between tags: text to JSON by the tool's schema, and back.

The type comes from the schema and never from the appearance: a string parameter `123` stays `"123"`. Other types are
parsed as JSON, then as a Python literal, because templates show models both. Text that fits no allowed type stays a
string.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from vtc.dialects.arguments import python
from vtc.dialects.arguments.json_object import DuplicateKeyError, reject_duplicate_keys
from vtc.json_schema import Schema, as_list, list_types, resolve_schema

type Style = Literal["json", "python", "repr", "nested", "typed"]

MAX_LITERAL_LENGTH = 100_000
"""Maximum length of text that is parsed as a Python literal, since Python's parser is slow and recursive."""
MAX_TAG_DEPTH = 32
"""Maximum nesting of child tags; deeper ones are text, because a schema may refer to itself."""
_MISFIT = object()


def read(text: str, schema: Schema, root: Schema, depth: int = 0, mark: str = "") -> tuple[Any, bool]:
    """Return the value of `text`, and whether it fits the schema (a misfit stays a string).

    `mark` precedes each child tag of a list or an object, in a dialect that writes these as tags.
    """
    schema = resolve_schema(schema, root)
    options = as_list(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    for option in options:
        if not isinstance(option, str) and text.strip() in (_dump_json(option), str(option)):
            return option, True
    types = list_types(schema, root)
    if not types and not options:
        return _parse_untyped(text, root, depth, mark), True
    strings = [pair for pair in types if pair[0] == "string"]
    string = bool(strings)
    # Empty text means null, [] or {} only if it cannot be a string.
    other_types = [] if string and not text else types[: len(types) - len(strings)]
    attempts = [(kind, entry, True) for kind, entry in other_types]
    # Objects with undeclared members are tried only after those without.
    attempts += [(kind, entry, False) for kind, entry in other_types if mark and kind == "object"]
    attempts += [(kind, entry, True) for kind, entry in strings]
    for kind, entry, closed in attempts:
        value = _convert(kind, text, entry, root, depth, mark, closed=closed)
        if value is not _MISFIT:
            return value, True
    if string or text in options:
        return text, not options or text in options
    if text.strip() in ("null", "None"):
        return None, False
    return text, False


def parse_unquoted(text: str) -> tuple[Any, bool]:
    """Return the value of text that is declared not to be a string, and whether it is a value."""
    value = _parse_json(text.strip())
    return (text, False) if value is _MISFIT else (value, True)


def write(value: Any, style: Style) -> str:
    """Render a value in a `style`; strings are unchanged."""
    if isinstance(value, str):
        return value
    if style == "repr" or (style == "python" and (value is None or isinstance(value, bool | int | float))):
        return repr(value)
    return _dump_json(value)


def _convert(kind: str, text: str, schema: Schema, root: Schema, depth: int, mark: str, *, closed: bool) -> Any:
    """Convert `text` to one type or return `_UNFIT`. Unless `closed`, an object in tags may have undeclared members."""
    bare = text.strip()
    match kind:
        case "string":
            options = as_list(schema.get("enum"))
            return text if not options or text in options else _MISFIT
        case "null":
            return None if bare in ("null", "None", "") else _MISFIT
        case "boolean":
            return {"true": True, "false": False}.get(bare.lower(), _MISFIT)
        case "integer":
            value = _parse_json(bare)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            return value if isinstance(value, int) and not isinstance(value, bool) else _MISFIT
        case "number":
            value = _parse_json(bare)
            return value if isinstance(value, int | float) and not isinstance(value, bool) else _MISFIT
        case "array" | "object":
            wanted = list if kind == "array" else dict
            value = wanted() if not bare else _parse_json(bare)
            if not isinstance(value, wanted) and bare.startswith(f"{mark}<") and depth < MAX_TAG_DEPTH:
                value = _parse_children(bare, kind, schema, root, depth, mark, closed=closed)
            return value if isinstance(value, wanted) else _MISFIT
    return _MISFIT


def _parse_untyped(text: str, root: Schema, depth: int, mark: str) -> Any:
    """Parse a parameter without a known type: an object or array if it is one, otherwise the text."""
    bare = text.strip()
    if mark and bare.startswith(f"{mark}<") and depth < MAX_TAG_DEPTH:
        for kind in ("array", "object"):
            value = _parse_children(bare, kind, {}, root, depth, mark, closed=False)
            if value is not _MISFIT:
                return value
    value = _parse_json(bare) if bare[:1] in ("{", "[") else _MISFIT
    return value if isinstance(value, dict | list) else text


def _parse_json(text: str) -> Any:
    try:
        return json.loads(
            text, parse_float=_parse_finite, parse_constant=_parse_finite, object_pairs_hook=reject_duplicate_keys
        )
    except DuplicateKeyError:
        return _MISFIT  # a Python literal would keep only the last value
    except (ValueError, RecursionError):
        pass
    try:
        # Python joins adjacent strings, but more often a comma is missing between them.
        return parse_python_literal(text) if python.read_literal(text[:MAX_LITERAL_LENGTH], strict=True) else _MISFIT
    except ValueError:
        return _MISFIT


def parse_python_literal(text: str) -> Any:
    """Return the value of a Python literal that JSON can express. Raises ValueError."""
    if len(text) > MAX_LITERAL_LENGTH:
        raise ValueError("too long for a literal")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes like `'\d'`, which models write
            value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"no literal: {error}") from None
    return value


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("JSON has no such number")
    return value


def _parse_children(text: str, kind: str, schema: Schema, root: Schema, depth: int, mark: str, *, closed: bool) -> Any:
    """Parse `<item>…</item>` children as a list, `<key>…</key>` children as an object; all of the text or nothing."""
    declared, additional = schema.get("properties"), schema.get("additionalProperties")
    entries: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    if kind == "array":
        names = "item"
    else:
        names = "|".join(map(re.escape, entries)) or "(?!)" if closed else _ANY_KEY
    opener = re.compile(rf"\s*{re.escape(mark)}<({names})>")  # used with match
    children = _split_children(text, opener, mark, counted=True) or _split_children(text, opener, mark, counted=False)
    if not children or (kind == "object" and len({key for key, _ in children}) < len(children)):
        return _MISFIT
    if kind == "array":
        first, rest = as_list(schema.get("prefixItems")), schema.get("items")
        kinds = [*first[: len(children)], *[rest] * (len(children) - len(first))]
    else:
        kinds = [entries.get(key, additional) for key, _ in children]
    fitting = [
        read(text, kind if isinstance(kind, Mapping) else {}, root, depth + 1, mark)[0]
        for (_, text), kind in zip(children, kinds, strict=True)
    ]
    return fitting if kind == "array" else {key: value for (key, _), value in zip(children, fitting, strict=True)}


_ANY_KEY = r"[^\s<>\"'=/\\]{1,128}"


def _split_children(text: str, opener: re.Pattern[str], mark: str, *, counted: bool) -> list[tuple[str, str]]:
    """Return the names and texts of child tags; none if there is any other text.

    As everywhere, a closer counts only before another child or the end; and if `counted`, only if it does not pair with
    an opener inside the child.
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
                children.append((opened[1], inner if mark else _strip_frame(inner)))
                at = tag.end()
                break
        else:
            return []
    return children


def _strip_frame(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "\n" else text


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
