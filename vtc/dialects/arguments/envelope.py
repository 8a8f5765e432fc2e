"""A call in one JSON object: `{"name": …, "arguments": {…}}` and the spellings of it that models use."""

from __future__ import annotations

import json
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


def read(text: str, keys: Envelope, *, needs_arguments: bool) -> Read:
    """Name, arguments (JSON text, as written) and id of a call; raises `NotACall`.

    With `needs_arguments`, an object without an arguments key is an answer and no call.
    """
    fields = _fields(text)
    if "function" in fields and not any(key in fields for key in keys.name):
        # The API's own form, {"type": "function", "function": {…}}.
        fields = {**fields, **_fields(fields["function"])}
    name = _string(fields, keys.name)
    if name is None:
        raise NotACall(f"the JSON has no {keys.name[0]!r}")
    written = next((fields[key] for key in keys.arguments if key in fields), None)
    if written is None:
        if needs_arguments:
            raise NotACall(f"the JSON has no {keys.arguments[0]!r}")
        written = "{}"
    arguments, repairs = _arguments(written)
    if "description" in fields or _is_schema(arguments):
        raise NotACall("it declares a tool, as the list of tools does")
    id_ = _string(fields, (keys.id,)) if keys.id else None
    return Read(name, arguments, id_, repairs)


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
    return value.get("type") == "object" and isinstance(value.get("properties"), dict)
