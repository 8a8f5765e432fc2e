"""Describe the places in a request that a server's error names, in one form for all spellings of a path and of types.

Each server words a type mismatch differently, but the path, the value there and the types decide:

    Invalid type for 'messages[2].content': expected a string, but got null  ->  messages.*.content is null
    '/messages/2/content': type mismatch, 'array' not in 'string'            ->  messages.*.content is list, not string
    body -> tools -> 0 -> name: Field required                               ->  tools.* lacks name
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from vtc.exchange.asking.corrections import EVERY
from vtc.exchange.asking.outline import MAX_KEYS_PER_NAME, MAX_NAMES_PER_ERROR, split_path

MAX_EXAMINED_ENTRIES = 2000
"""Entries of a list that are examined if a path has no index."""
_PATH = re.compile(r"(?<![\w$])([A-Za-z_$][\w$-]*+(?:(?:\[|[./])'?[\w$*-]++'?\]?+)*+)", re.A)
_TYPES = {
    "string": "string|str|text|字符串|文本",
    "list": "array|list|sequence|slice|数组|列表",
    "object": "object|dict|dictionary|map|mapping|struct|对象",
    "number": "number|integer|int|float|数字|整数",
    "boolean": "boolean|bool|布尔",
    "null": "null|none|nil|nonetype|空值",
}
"""Kinds of values, with their names in errors."""
_KIND = re.compile("|".join(rf"(?P<{kind}>\b(?:{names})s?\b)" for kind, names in _TYPES.items()), re.I)
_MISSING = re.compile(r"missing|required|缺少|缺失|必填|必须提供", re.I)
_WORD = re.compile(r"[a-z_]{1,32}")


def describe_places(statements: Iterable[str], body: Any) -> list[str]:
    """Describe the places of a body that statements of an error name, each once."""
    found = chain.from_iterable(_describe_statement(statement, body) for statement in statements)
    return [*dict.fromkeys(islice(found, MAX_NAMES_PER_ERROR))]


def _describe_statement(statement: str, body: Any) -> Iterator[str]:
    for match in islice(_PATH.finditer(statement), MAX_NAMES_PER_ERROR):
        path, values, missing = _resolve(split_path(match[1])[:MAX_KEYS_PER_NAME], body)
        words = f"{statement[: match.start()]} {statement[match.end() :]}"
        if path and missing and _MISSING.search(words):
            yield f"{path} lacks {missing}"
        elif path:
            named = {kind.lastgroup for kind in _KIND.finditer(words) if kind.lastgroup}
            # Of several values, those whose kind the error names are rejected.
            for value in [value for value in values if _name_kind(value) in named] or values:
                kind = _name_kind(value)
                others = " or ".join(sorted(named - {kind}))
                yield f"{path} is {_describe(value, kind, path)}" + f", not {others}" * bool(others)


def _resolve(keys: Sequence[str], body: Any) -> tuple[str, Sequence[Any], str]:
    """Follow a path into a body; return the path with `EVERY` for indices, the values there, and the last missing key.

    Keys without a field are skipped, because errors name things that are no fields (`body`, a kind of message). Without
    an index, all entries of a list are examined.
    """
    path: list[str] = []
    values, missing = [body], ""
    for key in keys:
        if key.isdigit() and any(isinstance(value, list) for value in values):
            values = [value[int(key)] for value in values if isinstance(value, list) and int(key) < len(value)]
            path.append(EVERY)
            continue
        lists = [value for value in values if isinstance(value, list)]
        entries = chain(values, *lists)
        objects = [entry for entry in islice(entries, MAX_EXAMINED_ENTRIES) if isinstance(entry, dict)]
        spelled = [(entry, name) for entry in objects if (name := _find_key(entry, key)) is not None]
        if spelled:
            path += [EVERY] * bool(lists) + [spelled[0][1]]
            values = [entry[name] for entry, name in spelled]
        missing = "" if spelled else key
    return ".".join(path), values, missing


def _find_key(fields: dict[str, Any], key: str) -> str | None:
    if key in fields:
        return key
    folded = _fold(key)
    return next((name for name in islice(fields, MAX_KEYS_PER_NAME) if _fold(name) == folded), None)


def _fold(name: str) -> str:
    """Fold the spellings of a name into one: `top_k`, `topK`, `TopK`."""
    return name.replace("_", "").lower()


def _name_kind(value: Any) -> str:
    """Name the kind of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "list"
    return "object"


def _describe(value: Any, kind: str, path: str) -> str:
    """Describe a value by its kind and, if it has parts, their types; also by its text if that is a role or a type."""
    if isinstance(value, str):
        return f"{kind} {value}" if path.endswith((".role", ".type")) and _is_word(value) else kind
    parts = value if isinstance(value, list) else [value]
    types = dict.fromkeys(
        part.get("type", "") for part in islice(parts, MAX_EXAMINED_ENTRIES) if isinstance(part, dict)
    )
    return f"{kind} of {'+'.join(filter(_is_word, types))}" if any(map(_is_word, types)) else kind


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None
