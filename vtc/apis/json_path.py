"""Edit JSON by path: unchanged values stay the same objects and keep their original bytes.

A path lists keys. A number is an index, `*` is any index, and `[a|b]` stays at its object, and continues only if that
has one of these types. Original bytes (`msgspec.Raw`) are decoded only along the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any

import msgspec

from vtc.apis.fields import split_raw_list, split_raw_object

DROPPED = object()
"""Returned by an edit to remove the value from its object or list."""
type Edit = Callable[[Any], Any]
"""Changes a value; returns the same object if nothing changes."""


def edit_at(value: Any, path: Sequence[str], edit: Edit, *, any_key: bool = False) -> Any:
    """Edit the values at a path; with `any_key`, `*` is also any key."""
    for key in reversed(path):
        if key == "*":
            edit = partial(_edit_parts, any_key, edit)
        elif key[:1] == "[":
            edit = partial(_edit_typed, key[1:-1].split("|"), edit)
        else:
            edit = partial(_edit_part, key, edit)
    return edit(value)


def _edit_parts(any_key: bool, edit: Edit, value: Any) -> Any:
    """Edit each entry of a list and, with `any_key`, each field of an object."""
    parts = value if isinstance(value, list) else _split(value)
    if isinstance(parts, list):
        entries = [*map(edit, parts)]
        return value if all(map(is_, entries, parts)) else [entry for entry in entries if entry is not DROPPED]
    if not (any_key and isinstance(parts, dict)):
        return value
    fields = {key: edit(part) for key, part in parts.items()}
    if all(map(is_, fields.values(), parts.values())):
        return value
    return {key: field for key, field in fields.items() if field is not DROPPED}


def _edit_part(key: Any, edit: Edit, value: Any) -> Any:
    """Edit a field of an object or, by its index, an entry of a list."""
    parts = value if isinstance(value, dict) else _split(value)
    if isinstance(parts, dict):
        if key not in parts:
            return value
    elif isinstance(parts, list) and key in map(str, range(len(parts))):
        key = int(key)
    else:
        return value
    new = edit(parts[key])
    if new is parts[key]:
        return value
    edited = parts.copy()
    if new is DROPPED:
        del edited[key]
    else:
        edited[key] = new
    return edited


def _edit_typed(types: Sequence[str], edit: Edit, value: Any) -> Any:
    """Edit an object of one of these types."""
    return edit(value) if isinstance(value, dict) and value.get("type") in types else value


def _split(value: Any) -> Any:
    """Split original bytes into those of their fields or entries; any other value stays."""
    return (split_raw_object(value) or split_raw_list(value)) if isinstance(value, msgspec.Raw) else value


def drop_at(value: Any, path: Sequence[str]) -> Any:
    """Drop the values at a path, in which `*` is any index or key; return the same object if there are none."""
    return edit_at(value, path, lambda _: DROPPED, any_key=True)


def edit_fields(fields: dict[str, Any], drop: Iterable[str], set_: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the values below the dotted paths of `drop`, then set the fields of `set_`."""
    for path in drop:
        if "." in path:
            fields = drop_at(fields, path.split("."))
    return {**fields, **set_}
