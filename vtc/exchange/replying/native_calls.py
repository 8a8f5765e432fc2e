"""Normalize native tool calls, with the repairs and types that text tool calls get.

Most servers parse calls themselves, and many do so badly: arguments encoded twice, written twice, truncated, or after
an empty object; raw line breaks; numbers and lists as strings; names with a prefix, with leftover markup, or with the
whole call. A clean call is not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from vtc.apis.calls import RAW_INPUT_SCHEMA, parse_raw_input
from vtc.dialects.arguments import parameter
from vtc.dialects.arguments.broken_json import ExpectedObject
from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.reading import repairs as repairs_of_text
from vtc.dialects.reading.reader import Reader
from vtc.dialects.reading.repairs import list_json_closers
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import pattern, tool_names
from vtc.dialects.syntax.description import ARGUMENT_KEYS, Description
from vtc.events import Call, Text, Tool, ToolCall
from vtc.exchange.replying.value_ends import ValueEnds
from vtc.json_schema import ObjectSchema

# A call whose text was mistaken for its name by the server's parser; it is parsed in the dialects of the plan.
#
# name: read<arg_key>filePath</arg_key><arg_value>/a</arg_value> arguments: {}


MAX_NAME_CHARACTERS = 1 << 18
"""Characters beyond which a name is not parsed, because each opener is tried."""
_NAME_WITH_CALL = pattern.Slot("name")


def make_name_reader(dialects: Sequence[Description], reader: Callable[[], Reader]) -> Callable[[str], Call | None]:
    """Return a function that parses the text of a call from its name on; it returns None for other text.

    Without the opener, dialects may differ in which line breaks belong to a value; the first dialect wins.
    """

    def read(text: str) -> Call | None:
        openers = _list_openers(dialects) if len(text) <= MAX_NAME_CHARACTERS else []
        calls = [call for opener in openers if (call := _read_single_call(reader(), opener + text))]
        is_one = calls and all(_parse_meaning(call) == _parse_meaning(calls[0]) for call in calls)
        return calls[0] if is_one else None

    return read


def _read_single_call(reader: Reader, text: str) -> Call | None:
    events = reader.read_whole(text)
    calls = [event for event in events if isinstance(event, Call)]
    spoken = any(isinstance(event, Text) and not event.raw.isspace() for event in events)
    return calls[0] if len(calls) == 1 and not spoken else None


def _parse_meaning(call: Call) -> tuple[str, dict[str, Any]]:
    arguments = json.loads(call.call.arguments)
    return call.call.name, {key: value.strip() if isinstance(value, str) else value for key, value in arguments.items()}


def _list_openers(dialects: Sequence[Description]) -> list[str]:
    """List the texts that the dialects write before a call's name."""
    openers: dict[str, None] = {}
    for dialect in dialects:
        for call in dialect.calls:
            match pattern.parse(call, "call"):
                case [str(opener), slot, *_] if slot == _NAME_WITH_CALL:
                    openers[opener] = None
    return list(openers)


NO_MARKERS = ValueEnds()
MAX_NAME_CHARACTERS = 1024
"""Characters of a name beyond which only the exact name denotes a tool."""
MAX_OBJECTS = 16
"""Objects in the arguments of one call beyond which they are not split into calls."""
MAX_ENCODINGS = 3
"""Levels of repeated encoding that are undone."""
_NAME = re.compile(r"[\w.:/=-]+")
_AS_ID = re.compile(r"(?P<prefix>(?:functions?|tools?|default_api)[._:/=]+)?(?P<name>.+?)(?P<number>[:_]\d+)?\Z")
"""A name in the form of a call's id: `functions.read:0`, `functions_read_2`, `function=read`, `functions/read`."""
_TAG = r"(?:</?[\w:.-]{1,64}/?>|<[|｜][^<>|｜\s]{1,64}[|｜]>)"
_MARKUP = re.compile(rf"(?:{_TAG}\s*(?:(?:commentary|analysis|final|json)\b)?|</?[\w:.-]*\Z)")
"""A tag or its beginning, with the channel names that follow tags of harmony."""
_BEFORE = re.compile(rf"(?:\s|{_TAG}|json\b)*+(?=[{{\[`])")  # used with match
_LAST_TAG = re.compile(rf"{_TAG}\Z")
MAX_TAGS_AFTER_ARGUMENTS = 16
"""Tags after the arguments of a call that are removed."""
LONGEST_TAG = 70
NOT_WHOLE_REASON = "its arguments are not a whole JSON object"
NO_ARGUMENTS = ("", "{}", "null", "None")


class MalformedCall(ValueError):
    """The arguments of a call are no object and cannot be repaired."""


class NormalizedCall(NamedTuple):
    """The calls that one native call denotes, and the repairs to get them."""

    calls: list[ToolCall]
    repairs: tuple[str, ...]


def normalize_call(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    lenient: bool,
    complete: bool = True,
    read: Callable[[str], Call | None] = lambda _: None,
    ends: ValueEnds = NO_MARKERS,
) -> NormalizedCall:
    """Normalize a call; a clean call is returned unchanged, without repairs. Broken JSON is repaired only if `lenient`.

    Raises `MalformedCall`. A call of an unknown tool, or of a custom tool, is not changed. In a reply that is not
    `complete` an object may lack more than its end. `read` parses the text of a call from its name on, and `ends` knows
    the markers that may remain in values.
    """
    intended = ResolvedTool(call.name) if call.name in tools else resolve_tool(call.name, tools)
    if intended is None or (call.is_custom and tools[intended.tool].parameters == RAW_INPUT_SCHEMA):
        return NormalizedCall([call], ())
    received = call
    call = as_function(call)
    name, repairs = intended.tool, list[str]() if call.name in tools else [Repair.TOOL_NAME]
    if re.search(r"\w", _MARKUP.sub("", intended.rest)):
        return _read_from_name(call, name, read)
    schema = tools[name].schema
    arguments, before = _strip_name(call.arguments, name, tools)
    tagged = lenient and complete and not intended.without_server
    if tagged and (event := _read_tagged_arguments(arguments, name, read)):
        return NormalizedCall(
            [replace(call, name=name, arguments=event.call.arguments)], (Repair.CALL_IN_NAME, *event.repairs)
        )
    ended = ends.end_object(arguments) if lenient and complete else None
    objects, notes = _read_objects(arguments if ended is None else ended, schema, lenient=lenient, complete=complete)
    notes = [*before, *([] if ended is None else [Repair.MARKUP_IN_VALUE]), *notes]
    if lenient and len(objects) == 1 and (inner := _unwrap_arguments(objects[0][1], name, schema)):
        objects, notes = [(None, inner)], [*notes, Repair.ARGUMENTS_KEY]
    if intended.without_server and not all(parameter.is_complete(tools[name], value) for _, value in objects):
        return NormalizedCall([received], ())
    repairs += notes
    calls: list[ToolCall] = []
    for text, value in objects:
        has_markers = lenient and ends.may_occur(call.arguments) and _strip_markers(value, ends)
        fitted, notes = parameter.fit_arguments(value, schema, lenient=lenient)
        notes = [*notes, *([Repair.MARKUP_IN_VALUE] if has_markers else [])]
        repairs += [note for note in notes if note not in repairs]
        text = json.dumps(fitted, ensure_ascii=False) if notes or before or text is None else text
        id_ = None if calls else call.id  # only the first of several calls keeps the id
        calls.append(ToolCall(name, text, id_, call.source))
    return NormalizedCall(calls, tuple(repairs))


def as_function(call: ToolCall) -> ToolCall:
    """Convert a call of a custom tool into a function call whose arguments are the raw input."""
    if not call.is_custom:
        return call
    source = {key: value for key, value in call.source.items() if key not in ("type", "custom", "input")}
    text = parse_raw_input(call.arguments)
    arguments = text if text == call.arguments else json.dumps(text, ensure_ascii=False)
    return replace(call, arguments=arguments, source=source)


class ResolvedTool(NamedTuple):
    """The offered tool that a name denotes, and the rest of the name."""

    tool: str
    rest: str = ""
    without_server: bool = False
    """True if the name lacks its server: the tool is meant only if it accepts the arguments."""


def resolve_tool(written: str, tools: Mapping[str, Tool]) -> ResolvedTool | None:
    """Resolve a name to an offered tool; None if there is none, or if the name is ambiguous."""
    bare = written.strip()
    half = bare[: len(bare) // 2]
    match = _NAME.match(bare)
    stem = match[0] if match else ""
    for candidate in (bare, half if half * 2 == bare else "", stem):
        if candidate and (name := _resolve_name(candidate, tools)):
            return ResolvedTool(name, bare[len(stem) :] if candidate == stem else "")
    found = tool_names.find_with_server(stem, tools) if stem == bare and len(bare) <= MAX_NAME_CHARACTERS else None
    return ResolvedTool(found, without_server=True) if found else None


def _resolve_name(written: str, tools: Mapping[str, Tool]) -> str | None:
    """Resolve a name to one tool; in the form of an id, an underscore and a number may belong to the name."""
    bare = tool_names.strip_name(written)
    if bare in tools:
        return bare
    if len(written) > MAX_NAME_CHARACTERS:
        return None
    names: set[str] = set()
    if match := _AS_ID.match(written):
        names |= {match["name"] + (match["number"] or "")} if match["prefix"] else set()
        names |= {match["name"]} if match["prefix"] or (match["number"] or "").startswith(":") else set()
    offered = {tool for name in names if (tool := tool_names.resolve(name, tools))}
    if len(offered) > 1:
        return None
    return tool_names.resolve(written, tools) or next(iter(offered), None)


def _read_tagged_arguments(arguments: str, name: str, read: Callable[[str], Call | None]) -> Call | None:
    """Parse arguments that are in the tags of a dialect, as if the name of the tool preceded them."""
    if not arguments.lstrip().startswith("<"):
        return None
    events = [event for separator in ("", ">") if (event := read(f"{name}{separator}\n{arguments}"))]
    return events[0] if len(events) == 1 and events[0].call.name == name else None


def _read_from_name(call: ToolCall, name: str, read: Callable[[str], Call | None]) -> NormalizedCall:
    """Parse a call whose whole text is in its name."""
    arguments = "" if call.arguments.strip() in NO_ARGUMENTS else call.arguments
    event = read(call.name.strip() + arguments)
    if not event or event.call.name != name:
        raise MalformedCall("its name holds more than a name, and cannot be read")
    renamed = ToolCall(name, event.call.arguments, call.id, call.source)
    return NormalizedCall([renamed], (Repair.CALL_IN_NAME, *event.repairs))


def _strip_markers(value: dict[str, Any], ends: ValueEnds) -> bool:
    """Remove the markers at the end of all texts in an object, in place; return True if there were any."""
    has_changed = False
    containers: list[Any] = [value]
    for container in containers:
        for key, entry in container.items() if isinstance(container, dict) else enumerate(container):
            kind = type(entry)
            if kind is str and (text := ends.strip(entry)) != entry:
                container[key] = text
                has_changed = True
            elif entry and (kind is dict or kind is list):
                containers.append(entry)
    return has_changed


_BEFORE_OBJECT = re.compile(r"\s*\.?(?P<name>[\w.:/=-]{1,200}+)\s*(?=[{<])")  # used with match


def _strip_name(arguments: str, name: str, tools: Mapping[str, Tool]) -> tuple[str, list[str]]:
    """Remove the name or the id of the call in front of its arguments."""
    match = _BEFORE_OBJECT.match(arguments)
    if not match or _resolve_name(match["name"], tools) != name:
        return arguments, []
    return arguments[match.end() :], [Repair.NAME_BEFORE]


type Objects = tuple[list[tuple[str | None, Any]], list[str]]
"""Each object with its text, None if it must be re-encoded; and the repairs."""


def _read_objects(text: str, schema: ObjectSchema, *, lenient: bool, complete: bool, depth: int = 0) -> Objects:
    """Parse arguments; raises `MalformedCall`."""
    bare = text.strip()
    if bare in NO_ARGUMENTS and bare != "{}":
        return [(None, {})], [Repair.NO_ARGUMENTS]
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        value = []  # broken JSON and lists may hold several objects
    if isinstance(value, dict):
        return [(text, value)], []
    if isinstance(value, list):
        return _repair_objects(bare, schema, lenient=lenient, complete=complete)
    if isinstance(value, str) and depth < MAX_ENCODINGS:
        return _read_encoded(value, schema, lenient=lenient, complete=complete, depth=depth)
    raise MalformedCall("its arguments are no JSON object")


def _read_encoded(text: str, schema: ObjectSchema, *, lenient: bool, complete: bool, depth: int) -> Objects:
    """Parse arguments that are a string: an object that was encoded again, or the tool's only parameter."""
    sole = None if depth else schema.sole_required_text
    try:
        objects, notes = _read_objects(text, schema, lenient=lenient, complete=complete, depth=depth + 1)
    except MalformedCall:
        if sole and re.match(rf"""\s*\{{\s*["']?{re.escape(sole)}["']?\s*:""", text):
            raise  # a broken object, not the parameter's value
        objects, notes = [], []
    if text and sole and (not objects or any(item and sole not in item for _, item in objects)):
        return [(None, {sole: text})], [Repair.SOLE_PARAMETER]
    if objects and text.strip():
        notes = [*dict.fromkeys((Repair.ARGUMENTS_ENCODED_TWICE, *notes))]
        return [(None, item) for _, item in objects], notes
    raise MalformedCall("its arguments are no JSON object")


def _unwrap_arguments(value: Mapping[str, Any], name: str, schema: ObjectSchema) -> Mapping[str, Any] | None:
    """Return the arguments nested under a key of complete calls; None if there are none."""
    needed, declared = schema.required, schema.properties
    others = {key: entry for key, entry in value.items() if (key, entry) != ("name", name)}
    if not needed or len(others) != 1 or any(key in declared for key in value):
        return None
    ((key, inner),) = others.items()
    return inner if key in ARGUMENT_KEYS and isinstance(inner, dict) and inner.keys() >= {*needed} else None


def _repair_objects(text: str, schema: ObjectSchema, *, lenient: bool, complete: bool) -> Objects:
    """Parse invalid JSON: several objects, or one with faults that are repaired in text, too."""
    last = _last_snapshot(text) if lenient else None
    if last:
        return [(None, last)], [Repair.SNAPSHOTS]
    # Step 1: Repair the JSON without the tags around it. A tag after it proves that it is complete.
    body, notes = _strip_markup(text)
    is_cut = text.endswith(body) and list_json_closers(body, ()) is None
    repaired = None if is_cut else repairs_of_text.repair_json(body, (), ExpectedObject(schema.root))
    if repaired is None or not 0 < len(repaired.values) <= MAX_OBJECTS:
        raise MalformedCall(NOT_WHOLE_REASON)
    objects = [json.loads(item) for item in repaired.values]
    if not all(isinstance(item, dict) for item in objects):
        raise MalformedCall(NOT_WHOLE_REASON)
    notes += [note for note in repaired.repairs if note != Repair.SEVERAL_OBJECTS]
    # Step 2: Reject a repair that may have lost or invented a parameter.
    needed, is_list = {*schema.required}, body.startswith("[")
    if is_list:
        notes.append(Repair.ARRAY_OF_CALLS)
    has_all = complete and all(item.keys() >= needed for item in objects)
    is_strange = is_list and any(key not in schema.properties for item in objects for key in item)
    if (Repair.JSON_CUT in notes and not has_all) or is_strange or (notes and not lenient):
        raise MalformedCall(NOT_WHOLE_REASON)
    # Step 3: Drop empty and repeated objects.
    meaning = [item for item in objects if item or not needed] or objects
    different = [item for place, item in enumerate(meaning) if item not in meaning[:place]]
    if len(meaning) < len(objects):
        notes.append(Repair.EMPTY_OBJECT)
    if len(different) < len(meaning):
        notes.append(Repair.WRITTEN_TWICE)
    if len(different) > 1:
        notes.append(Repair.SEVERAL_OBJECTS)
    return [(None, item) for item in different], notes


MAX_SNAPSHOTS = 1 << 12
MAX_STARTS = 1 << 10
"""Braces that are tried as the start of the next snapshot."""


def _last_snapshot(text: str) -> dict[str, Any] | None:
    """Parse the last of several snapshots of an object, each of which begins with the whole one before it.

    Two may also be a broken object and a complete one. They count as snapshots only if the first ends after a value, so
    that it cannot contain the second.
    """
    if not text.startswith("{"):
        return None
    starts, size = [0], 1
    while (following := _next_snapshot(text, starts[-1], size)) is not None and len(starts) < MAX_SNAPSHOTS:
        size = following - starts[-1]
        starts.append(following)
    start = starts[-1]
    if len(starts) == 1 or (len(starts) == 2 and not _ends_after_value(text[:start])):
        return None
    try:
        value = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _next_snapshot(text: str, start: int, size: int) -> int | None:
    """Find the start of the snapshot after the one at `start`, whose length is at least `size`."""
    at = start + size - 1
    for _ in range(MAX_STARTS):
        at = text.find("{", at + 1)
        if at < 0:
            return None
        if text.startswith(text[start:at], at):
            return at
    return None


def _ends_after_value(text: str) -> bool:
    """Return True for the beginning of an object that ends after one of its values."""
    body = JsonBody(lenient=False)
    body.feed(text, 0)
    return text.rstrip()[-1:] in ('"', "}", "]") and not (body.in_string or body.error or body.done)


def _strip_markup(text: str) -> tuple[str, list[str]]:
    """Remove the tags around arguments."""
    before = _BEFORE.match(text)
    body = bare = text.strip()
    for _ in range(MAX_TAGS_AFTER_ARGUMENTS):
        tag = _LAST_TAG.search(body, max(0, len(body) - LONGEST_TAG))
        if not tag:
            break
        body = body[: tag.start()].rstrip()
    body = body[before.end() if before else 0 :]
    return body, [Repair.MARKUP_AROUND] if body != bare else []
