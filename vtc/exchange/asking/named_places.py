"""Describe the places in a request that a server's error names, in one form for all spellings of a path and of types.

Each server words a type mismatch differently, but the path, the value there and the types decide:

    Invalid type for 'messages[2].content': expected a string, but got null  ->  messages.*.content is null
    '/messages/2/content': type mismatch, 'array' not in 'string'            ->  messages.*.content is list, not string
    body -> tools -> 0 -> name: Field required                               ->  tools.* lacks name
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from vtc.exchange.asking.corrections import EVERY
from vtc.exchange.asking.outline import MAX_KEYS_PER_NAME, MAX_NAMES_PER_ERROR, split_path
from vtc.json_schema import get_type

MAX_EXAMINED_ENTRIES = 500
"""Entries of a list that are examined if a path has no index."""
MAX_SEARCHED_ENTRIES = 8
"""Entries of a list that are searched for another spelling of a key."""
MAX_KEYS_PER_PATH = 16
_PATH = re.compile(r"(?<![\w$*-])([A-Za-z_$][\w$-]*+(?:(?:\[|[./])'?[\w$*-]++'?\]?+)++)", re.A)
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
    places: dict[str, None] = {}
    resolved: dict[str, _Resolved] = {}
    for statement in statements:
        for match in islice(_PATH.finditer(statement), MAX_NAMES_PER_ERROR):
            path = match[1]
            if path not in resolved and len(resolved) < MAX_NAMES_PER_ERROR:
                resolved[path] = _resolve(split_path(path)[:MAX_KEYS_PER_PATH], body)
            if (place := resolved.get(path)) and place.path:
                words = f"{statement[: match.start()]} {statement[match.end() :]}"
                places.update(dict.fromkeys(_describe_place(place, words)))
    return [*places][:MAX_NAMES_PER_ERROR]


class _Resolved(NamedTuple):
    """A path of an error in a body."""

    path: str
    """The path with `EVERY` for indices; empty if the body has none of its keys."""
    values: Collection[tuple[str, str]]
    """The kinds of the values there, each with its description."""
    missing: str
    """The last key, if the body does not have it."""


def _describe_place(place: _Resolved, words: str) -> Iterator[str]:
    """Describe a place that an error names in these words."""
    if place.missing and _MISSING.search(words):
        yield f"{place.path} lacks {place.missing}"
    else:
        named = {kind.lastgroup for kind in _KIND.finditer(words) if kind.lastgroup}
        # Of several values, those whose kind the error names are rejected.
        for kind, value in [each for each in place.values if each[0] in named] or place.values:
            others = " or ".join(sorted(named - {kind}))
            yield f"{place.path} is {value}" + f", not {others}" * bool(others)


def _resolve(keys: Sequence[str], body: Any) -> _Resolved:
    """Follow a path into a body.

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
        folded = key.replace("_", "").lower()
        spelled = [(entry, key) for entry in objects if key in entry] or [
            (entry, name)
            for entry in objects[:MAX_SEARCHED_ENTRIES]
            for name in islice(entry, MAX_KEYS_PER_NAME)
            if name.replace("_", "").lower() == folded
        ]
        if spelled:
            path += [EVERY] * bool(lists) + [spelled[0][1]]
            values = [entry[name] for entry, name in spelled]
        missing = "" if spelled else key
    joined = ".".join(path)
    found = values if path else ()
    kinds = dict.fromkeys([(kind := _name_kind(value), _describe(value, kind, joined)) for value in found])
    return _Resolved(joined, kinds, missing)


def _name_kind(value: Any) -> str:
    """Name the kind of a value, as `_TYPES` does."""
    type_ = get_type(value)
    return {"array": "list", "integer": "number"}.get(type_, type_)


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
