"""Calls that upstream made in the API's structured form, put in order: by the repairs and types that text gets.

Most servers parse calls themselves, and many parse badly: arguments encoded twice, written twice, cut, or after an
empty object; raw line breaks; numbers and lists as strings; names with a prefix, with what is left of markup, or with
the whole call. A clean call stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from vtc.apis.raw_input import INPUT
from vtc.apis.tool_calls import raw_input
from vtc.dialects.arguments import fitting, values
from vtc.dialects.arguments.broken_json import Expected
from vtc.dialects.reading import repairs as repairs_of_text
from vtc.dialects.reading.cut import json_closers
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import SYNONYMS
from vtc.events import Call, Tool, ToolCall

MOST_OBJECTS = 16
"""Objects in the arguments of one call beyond which they are not taken apart."""
MOST_ENCODED = 3
"""Times that an object is found to be encoded too often."""
_NAME = re.compile(r"[\w.:/=-]+")
_AS_ID = re.compile(r"(?P<prefix>(?:functions?|tools?|default_api)[._:/=]+)?(?P<name>.+?)(?P<number>[:_]\d+)?\Z")
"""A name as the id of a call has it: `functions.read:0`, `functions_read_2`, `function=read`, `functions/read`."""
_TAG = r"(?:</?[\w:.-]{1,64}/?>|<[|｜][^<>|｜\s]{1,64}[|｜]>)"
_MARKUP = re.compile(rf"(?:{_TAG}\s*(?:(?:commentary|analysis|final|json)\b)?|</?[\w:.-]*\Z)")
"""A tag, or the beginning of one, and what stands after tags of harmony."""
_BEFORE = re.compile(rf"(?:\s|{_TAG}|json\b)*+(?=[{{\[`])")
_LAST_TAG = re.compile(rf"{_TAG}\Z")
MOST_TAGS = 16
"""Tags after the arguments of a call that are taken away."""
LONGEST_TAG = 70
_NO_ARGUMENTS = ("", "{}", "null", "None")


class NotInOrder(ValueError):
    """The arguments of a call are no object, and cannot be made one."""


class InOrder(NamedTuple):
    """The calls that one call of upstream's stands for, and the repairs that it took to see that."""

    calls: list[ToolCall]
    repairs: tuple[str, ...]


def in_order(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    lenient: bool,
    complete: bool = True,
    read: Callable[[str], Call | None] = lambda _: None,
) -> InOrder:
    """Put a call in order; the same call, and no repairs, if it is. Broken JSON is mended only if `lenient`.

    Raises `NotInOrder`. A call of a tool that is not offered, or of a custom tool, is left alone. In a reply that is
    not `complete` an object may lack more than its end. `read` takes the text of a call from its name on.
    """
    found = Meant(call.name) if call.name in tools else meant(call.name, tools)
    if found is None or (call.is_custom and tools[found.tool].parameters == INPUT):
        return InOrder([call], ())
    call = as_function(call)
    name, repairs = found.tool, list[str]() if call.name in tools else [Repair.TOOL_NAME]
    if re.search(r"\w", _MARKUP.sub("", found.rest)):
        return _from_name(call, name, read)
    schema = tools[name].parameters
    objects, notes = _objects(call.arguments, schema, lenient=lenient, complete=complete)
    if lenient and len(objects) == 1 and (inner := _wrapped(objects[0][1], name, schema)):
        objects, notes = [(None, inner)], [*notes, Repair.ARGUMENTS_KEY]
    repairs += notes
    calls: list[ToolCall] = []
    for text, value in objects:
        fitted, notes = fitting.fitted(value, schema, lenient=lenient)
        repairs += [note for note in notes if note not in repairs]
        text = json.dumps(fitted, ensure_ascii=False) if notes or text is None else text
        id_ = None if calls else call.id  # of several calls only the first can have it
        calls.append(ToolCall(name, text, id_, call.source))
    return InOrder(calls, tuple(repairs))


def as_function(call: ToolCall) -> ToolCall:
    """Make a call of a function of one of a custom tool: its raw input stands for the arguments."""
    if not call.is_custom:
        return call
    source = {key: one for key, one in call.source.items() if key not in ("type", "custom", "input")}
    said = raw_input(call.arguments)
    arguments = said if said == call.arguments else json.dumps(said, ensure_ascii=False)
    return replace(call, arguments=arguments, source=source)


class Meant(NamedTuple):
    """The offered tool that a name means, and what else stands in the name."""

    tool: str
    rest: str = ""


def meant(written: str, tools: Mapping[str, Tool]) -> Meant | None:
    """Find the tool that a name means; None if there is none, or if it can mean several."""
    bare = written.strip()
    half = bare[: len(bare) // 2]
    found = _NAME.match(bare)
    stem = found[0] if found else ""
    for candidate in (bare, half if half * 2 == bare else "", stem):
        if candidate and (name := _resolved(candidate, tools)):
            return Meant(name, bare[len(stem) :] if candidate == stem else "")
    return None


def _resolved(written: str, tools: Mapping[str, Tool]) -> str | None:
    """Find the one tool that a name can mean: in the id of a call an underscore and a number may be the name's own."""
    bare = tool_names.bare(written)
    if bare in tools:
        return bare
    names: set[str] = set()
    if found := _AS_ID.match(written):
        names |= {found["name"] + (found["number"] or "")} if found["prefix"] else set()
        names |= {found["name"]} if found["prefix"] or (found["number"] or "").startswith(":") else set()
    offered = {tool for one in names if (tool := tool_names.resolve(one, tools))}
    if len(offered) > 1:
        return None
    return tool_names.resolve(written, tools) or next(iter(offered), None)


def _from_name(call: ToolCall, name: str, read: Callable[[str], Call | None]) -> InOrder:
    """Read a call whose text stands in its name."""
    arguments = "" if call.arguments.strip() in _NO_ARGUMENTS else call.arguments
    found = read(call.name.strip() + arguments)
    if not found or found.call.name != name:
        raise NotInOrder("its name holds more than a name, and cannot be read")
    one = ToolCall(name, found.call.arguments, call.id, call.source)
    return InOrder([one], (Repair.CALL_IN_NAME, *found.repairs))


type Objects = tuple[list[tuple[str | None, Any]], list[str]]
"""Each object with its text, None if it must be written anew, and the repairs that it took."""


def _objects(text: str, schema: Mapping[str, Any], *, lenient: bool, complete: bool, depth: int = 0) -> Objects:
    """Read arguments; raises `NotInOrder`."""
    bare = text.strip()
    if bare in _NO_ARGUMENTS and bare != "{}":
        return [(None, {})], [Repair.NO_ARGUMENTS]
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return _broken(bare, schema, lenient=lenient, complete=complete)
    if isinstance(value, dict):
        return [(text, value)], []
    if isinstance(value, list):
        return _broken(bare, schema, lenient=lenient, complete=complete)
    if isinstance(value, str) and depth < MOST_ENCODED:
        sole = None if depth else values.sole(schema)
        try:
            found, notes = _objects(value, schema, lenient=lenient, complete=complete, depth=depth + 1)
        except NotInOrder:
            if sole and re.match(rf"""\s*\{{\s*["']?{re.escape(sole)}["']?\s*:""", value):
                raise  # an object that broke, and not the parameter's value
            found, notes = [], []
        if value and sole and not all(not one or sole in one for _, one in found or [(None, {"": ""})]):
            return [(None, {sole: value})], [Repair.SOLE_PARAMETER]
        if found and value.strip():
            return [(None, one) for _, one in found], [*{Repair.ARGUMENTS_ENCODED_TWICE: None, **dict.fromkeys(notes)}]
    raise NotInOrder("its arguments are no JSON object")


def _wrapped(value: Mapping[str, Any], name: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Find the arguments within what stands for them, under one of the keys that whole calls have; None if none do."""
    needed, declared = values.required(schema), values.properties(schema)
    others = {key: one for key, one in value.items() if (key, one) != ("name", name)}
    if not needed or len(others) != 1 or any(key in declared for key in value):
        return None
    ((key, inner),) = others.items()
    return inner if key in SYNONYMS and isinstance(inner, dict) and inner.keys() >= {*needed} else None


def _broken(text: str, schema: Mapping[str, Any], *, lenient: bool, complete: bool) -> Objects:
    """Read what is no JSON: several objects, or one with the faults that are mended in text, too."""
    body, notes = _without_markup(text)
    cut_short = text.endswith(body) and json_closers(body, ()) is None  # a tag after it says that it is whole
    found = None if cut_short else repairs_of_text.json_bodies(body, (), Expected(schema))
    objects = [json.loads(one) for one in found.values] if found and len(found.values) <= MOST_OBJECTS else []
    if found is None or not objects or not all(isinstance(one, dict) for one in objects):
        raise NotInOrder("its arguments are not a whole JSON object")
    notes += [note for note in found.repairs if note != Repair.SEVERAL_OBJECTS]
    notes += [Repair.ARRAY_OF_CALLS] if body.startswith("[") else []
    needed, declared = {*values.required(schema)}, values.properties(schema)
    cut = Repair.JSON_CUT in notes and not (complete and all(one.keys() >= needed for one in objects))
    strange = Repair.ARRAY_OF_CALLS in notes and any(key not in declared for one in objects for key in one)
    if cut or strange or (notes and not lenient):
        raise NotInOrder("its arguments are not a whole JSON object")
    meaning = [one for one in objects if one or not needed] or objects
    different = [one for place, one in enumerate(meaning) if one not in meaning[:place]]
    notes += [Repair.EMPTY_OBJECT] if len(meaning) < len(objects) else []
    notes += [Repair.WRITTEN_TWICE] if len(different) < len(meaning) else []
    notes += [Repair.SEVERAL_OBJECTS] if len(different) > 1 else []
    return [(None, one) for one in different], notes


def _without_markup(text: str) -> tuple[str, list[str]]:
    """Return arguments without the tags around them."""
    before = _BEFORE.match(text)
    body = bare = text.strip()
    for _ in range(MOST_TAGS):
        found = _LAST_TAG.search(body, max(0, len(body) - LONGEST_TAG))
        if not found:
            break
        body = body[: found.start()].rstrip()
    body = body[before.end() if before else 0 :]
    return body, [Repair.MARKUP_AROUND] if body != bare else []
