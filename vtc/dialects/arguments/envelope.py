"""A call in one JSON object: `{"name": …, "arguments": {…}}` and the spellings of it that models use."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import NamedTuple

from vtc.dialects.arguments.json_object import JsonBody, members
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.description import Envelope


class NotACall(ValueError):
    """The JSON is no call; the message says why."""


class Read(NamedTuple):
    name: str
    arguments: str
    id: str | None
    repairs: tuple[str, ...]


SYNONYMS = ("args", "input", "params", "parameters", "kwargs", "tool_input", "arguments")
"""Keys that hold the arguments of models that use none of the dialect's."""
_ABOUT_THE_CALL = ("id", "type", "index", "function")


LISTS = ("tool_calls", "function_calls")
"""Keys of an object that holds nothing but a list of calls."""


def listed(text: str) -> str | None:
    """Return the list in an object that holds nothing but a list of calls, as JSON text; None for any other."""
    fields = _fields(text)
    lists = [value for key, value in fields.items() if key in LISTS and value.startswith("[")]
    return lists[0] if len(fields) == len(lists) == 1 else None


def read(
    text: str, keys: Envelope, *, needs_arguments: bool, declared: Callable[[str], Collection[str]] = lambda _: ()
) -> Read:
    """Name, arguments (JSON text, as written) and id of a call; raises `NotACall`.

    With `needs_arguments`, an object without an arguments key is an answer and no call. `declared` are the parameters
    of a tool by its written name: no argument may be dropped, under whatever key it stands.
    """
    fields = _fields(text)
    if "function" in fields and not any(key in fields for key in keys.name):
        # The API's own form, {"type": "function", "function": {…}}.
        fields = {**fields, **_fields(fields["function"])}
    name = _string(fields, keys.name)
    if name is None:
        raise NotACall(f"the JSON has no {keys.name[0]!r}")
    written = next((fields[key] for key in keys.arguments if key in fields), None)
    if written is None and needs_arguments:
        raise NotACall(f"the JSON has no {keys.arguments[0]!r}")
    if "description" in fields or _is_schema(written or "{}"):
        raise NotACall("it declares a tool, as the list of tools does")
    others = {key: value for key, value in fields.items() if key not in (*keys.name, *_ABOUT_THE_CALL, keys.id)}
    found: tuple[str, ...] = ()
    if written is None:
        written, found = _elsewhere(others, declared(name))
    elif beside := [key for key in others if key not in keys.arguments and key in declared(name)]:
        if written not in ("{}", "null", '""'):
            raise NotACall(f"{beside[0]!r} stands beside its arguments")
        written, found = _object({key: others[key] for key in beside}), (Repair.FLAT_ARGUMENTS,)
    arguments, repairs = _arguments(written)
    repairs = (*found, *repairs)
    if _is_schema(arguments):
        raise NotACall("it declares a tool, as the list of tools does")
    id_ = _string(fields, (keys.id,)) if keys.id else None
    return Read(name, arguments, id_, repairs)


def _elsewhere(others: dict[str, str], declared: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Find the arguments of a call that has none of the dialect's keys for them."""
    if not others:
        return "{}", ()
    ((key, value), *more) = others.items()
    if not more and key in SYNONYMS and key not in declared and value.startswith(("{", '"{')):
        return value, (Repair.ARGUMENTS_KEY,)
    if all(key in declared for key in others):
        return _object(others), (Repair.FLAT_ARGUMENTS,)
    raise NotACall(
        f"{next(key for key in others if key not in declared)!r} is no parameter, and may hold its arguments"
    )


def _object(members: dict[str, str]) -> str:
    return f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)}: {value}' for key, value in members.items())}}}"


def _fields(text: str) -> dict[str, str]:
    try:
        return members(text)
    except ValueError:
        raise NotACall("the JSON is no object") from None


def _string(fields: dict[str, str], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        if key in fields:
            value = json.loads(fields[key])
            return value if isinstance(value, str) else None
    return None


def _arguments(written: str) -> tuple[str, tuple[str, ...]]:
    """Strict text of an object; arguments that were encoded twice are decoded once more."""
    if written.startswith('"'):
        inner = json.loads(written).strip() or "{}"
        body = JsonBody(lenient=False)
        end = body.feed(inner, 0, final=True)
        if body.done and end == len(inner) and inner.startswith("{"):
            return body.text(), (Repair.ARGUMENTS_ENCODED_TWICE,)
        raise NotACall("its arguments are a string")
    if written == "null":
        return "{}", ()
    if not written.startswith("{"):
        raise NotACall("its arguments are no object")
    return written, ()


def _is_schema(arguments: str) -> bool:
    value = json.loads(arguments)
    return isinstance(value, dict) and value.get("type") == "object" and isinstance(value.get("properties"), dict)
