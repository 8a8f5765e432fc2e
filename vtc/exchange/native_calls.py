"""Calls that upstream made in the API's structured form, put in order: by the repairs and types that text gets.

Most servers parse calls themselves, and many parse badly: arguments encoded twice, written twice, or with a raw line
break; numbers and lists as strings; names with a prefix or with what is left of markup. A clean call stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from vtc.dialects.arguments import fitting, values
from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.events import Tool, ToolCall

MOST_OBJECTS = 16
"""Objects in the arguments of one call beyond which they are not taken apart."""
_NAME = re.compile(r"[\w.:-]+")
_decoder = json.JSONDecoder()


class NotInOrder(ValueError):
    """The arguments of a call are no object, and cannot be made one."""


class InOrder(NamedTuple):
    """The calls that one call of upstream's stands for, and the repairs that it took to see that."""

    calls: list[ToolCall]
    repairs: tuple[str, ...]


def in_order(call: ToolCall, tools: Mapping[str, Tool], *, lenient: bool) -> InOrder:
    """Put a call in order; the same call, and no repairs, if it is. Broken JSON is mended only if `lenient`.

    Raises `NotInOrder`. A call of a tool that is not offered, or of a custom tool, is left alone.
    """
    name, repairs = _named(call.name, tools)
    if name is None or call.is_custom:
        return InOrder([call], ())
    schema = tools[name].parameters
    objects, notes = _objects(call.arguments, schema, lenient=lenient)
    repairs += notes
    calls: list[ToolCall] = []
    for text, value in objects:
        fitted, notes = fitting.fitted(value, schema)
        repairs += [note for note in notes if note not in repairs]
        text = json.dumps(fitted, ensure_ascii=False) if notes or text is None else text
        id_ = None if calls else call.id  # of several calls only the first can have it
        calls.append(ToolCall(name, text, id_, call.source))
    return InOrder(calls, tuple(repairs))


def _named(written: str, tools: Mapping[str, Tool]) -> tuple[str | None, list[str]]:
    """Find the tool that a name means; None if there is none."""
    if written in tools:
        return written, []
    if name := tool_names.resolve(written.strip(), tools):
        return name, [Repair.TOOL_NAME]
    found = _NAME.match(written.strip())
    stem = found[0] if found else ""
    half = written[: len(written) // 2]
    for candidate in (stem, half if half * 2 == written else ""):
        if candidate and (name := tool_names.resolve(candidate, tools)):
            return name, [Repair.TOOL_NAME]
    return None, []


def _objects(
    text: str, schema: Mapping[str, Any], *, lenient: bool, depth: int = 0
) -> tuple[list[tuple[str | None, Any]], list[str]]:
    """Read arguments: each object with its text, None if it must be written anew, and the repairs that it took."""
    bare = text.strip()
    if bare in ("", "null", "None"):
        return [(None, {})], [Repair.NO_ARGUMENTS]
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return _broken(bare, lenient=lenient)
    if isinstance(value, dict):
        return [(text, value)], []
    if isinstance(value, str) and not depth:
        try:
            found, notes = _objects(value, schema, lenient=lenient, depth=1)
        except NotInOrder:
            if value and (sole := values.sole(schema)):
                return [(None, {sole: value})], [Repair.SOLE_PARAMETER]
            raise
        if value.strip():
            return [(None, one) for _, one in found], [Repair.ARGUMENTS_ENCODED_TWICE, *notes]
    raise NotInOrder("its arguments are no JSON object")


def _broken(text: str, *, lenient: bool) -> tuple[list[tuple[str | None, Any]], list[str]]:
    """Read what is no JSON: several objects, or one with the faults that are mended in text, too."""
    found: list[Any] = []
    at = 0
    try:
        while at < len(text) and len(found) <= MOST_OBJECTS:
            value, at = _decoder.raw_decode(text, at)
            found.append(value)
            at += len(text[at:]) - len(text[at:].lstrip())
    except (ValueError, RecursionError):
        found = []
    if 1 < len(found) <= MOST_OBJECTS and all(isinstance(one, dict) for one in found):
        different = [one for place, one in enumerate(found) if one not in found[:place]]
        repair = Repair.WRITTEN_TWICE if len(different) == 1 else Repair.SEVERAL_OBJECTS
        return [(None, one) for one in different], [repair]
    body = JsonBody(lenient=lenient)
    end = body.feed(text, 0, final=True)
    if body.done and not text[end:].strip():
        value = json.loads(body.text())
        if isinstance(value, dict):
            return [(None, value)], [*body.repairs]
    raise NotInOrder("its arguments are not a whole JSON object")
