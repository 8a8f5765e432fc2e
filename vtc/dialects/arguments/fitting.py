"""Fit the arguments of an object to a tool's schema, where there is but one way to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from vtc.dialects.arguments import parameter, values
from vtc.dialects.arguments.json_object import dumped, encodable, members, written
from vtc.dialects.repair import Repair
from vtc.events import Tool

_NAME = re.compile(r"[\w.:-]+")
_TEXT = {"type": "string"}
"""What is known of a parameter that is not declared: any value may stay."""


def declares(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """True if a tool declares all of these arguments, and they are all that it requires."""
    return arguments.keys() <= values.properties(tool.parameters).keys() and (
        {*values.required(tool.parameters)} <= arguments.keys()
    )


def fitted(
    arguments: Mapping[str, Any], schema: Mapping[str, Any], *, lenient: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return arguments and the repairs that they took: names with markup, and what is text although none is allowed."""
    declared = values.properties(schema)
    found: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in arguments.items():
        name = key
        if key not in declared:
            stem = _NAME.match(key.strip())
            if stem and stem[0] in declared and stem[0] not in arguments:
                name = stem[0]
                notes.append(Repair.PARAMETER_NAME.of(name))
        own = declared.get(name, _TEXT)
        if isinstance(value, str) and own.get("type") != "string" and not values.takes_text(own, schema):
            typed, repair = parameter.read(value, name, own, schema, is_string=True, lenient=lenient)
            if repair != Repair.UNTYPED.of(name):
                value = typed
                notes.append(repair)
        found[name] = value
    return found, notes


def only(schema: Mapping[str, Any]) -> str | None:
    """Return the parameter that a single argument is, whatever it is called; None if it may be another.

    It is required text, and the tool takes nothing else.
    """
    takes_more = len(values.properties(schema)) > 1 or schema.get("additionalProperties")
    return None if takes_more else values.sole(schema)


def renamed(
    text: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any], list[str]]:
    """Give a single argument that is not declared the name of the tool's only parameter, if that is text; else keep it.

    Return the JSON text, the arguments and the repairs.
    """
    name, ((key, value), *more) = only(schema), arguments.items() or [("", None)]
    stem = _NAME.match(key.strip())
    if name is None or more or not isinstance(value, str) or (stem and stem[0] == name):
        return text, arguments, []
    return encodable(written({name: members(text)[key]})), {name: value}, [Repair.ONLY_PARAMETER.of(name)]


def undeclared(arguments: Collection[str], schema: Mapping[str, Any]) -> list[str]:
    """List the repairs for parameters that a tool does not declare, unless its schema says that there may be more."""
    declared = values.properties(schema)
    if not declared or schema.get("additionalProperties"):
        return []
    stems = (_NAME.match(key.strip()) for key in arguments)
    named = {stem[0] if stem and stem[0] in declared else key for key, stem in zip(arguments, stems, strict=True)}
    return [Repair.UNDECLARED.of(key) for key in arguments if key in named - declared.keys()]


def missing(arguments: Collection[str], schema: Mapping[str, Any]) -> list[str]:
    """List the required parameters that are not there."""
    return [key for key in values.required(schema) if key not in arguments]


def fitted_text(
    text: str, arguments: Mapping[str, Any], schema: Mapping[str, Any], *, lenient: bool = True
) -> tuple[str, list[str]]:
    """Do so for arguments that are JSON text as well: what fits stays as it is written."""
    found, notes = fitted(arguments, schema, lenient=lenient) if schema else (arguments, [])
    if not notes:
        return text, notes
    raws = members(text)
    pairs = zip(arguments.items(), found.items(), strict=True)
    fitting = {name: raws[key] if new is value else dumped(new) for (key, value), (name, new) in pairs}
    return encodable(written(fitting)), notes
