"""The calls that the text of a complete call denotes: parsed if it is well-formed, otherwise repaired."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from vtc.dialects.arguments import envelope, parameter
from vtc.dialects.arguments.broken_json import ExpectedObject
from vtc.dialects.arguments.envelope import EnvelopeContent, NotACall
from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import split_items
from vtc.dialects.reading import repairs
from vtc.dialects.reading.context import Context
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.reading.parameters import NamedTool
from vtc.dialects.reading.repairs import list_json_closers
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Envelope
from vtc.dialects.syntax.grammar import is_call_start
from vtc.events import Call, Evidence, Tool, ToolCall

_JSON_OBJECT = re.compile(r'\s*\{\s*"')  # used with match


def find_placeholder(events: Iterable[Call], placeholder: str) -> str:
    """Find an argument whose value is the placeholder of the prompt's example; return its key, empty if none."""
    for event in events:
        if json.dumps(placeholder) not in event.call.arguments:
            continue
        for key, value in json.loads(event.call.arguments).items():
            if value == placeholder:
                return str(key)
    return ""


def _check_required(arguments: Collection[str], tool: Tool) -> None:
    """Raise `NotACall` if an object lacks a required argument, because it may be an answer in JSON."""
    if lost := tool.schema.list_missing(arguments):
        raise NotACall(f"{min(lost)!r} is missing")


def _find_tool_by_arguments(named: NamedTool, body: str) -> EnvelopeContent | None:
    """Find the tool of a call that has an id in place of its name, if the arguments fit exactly one offered tool."""
    read = envelope.read_arguments(named.written, body, None)
    fits = [tool for tool in named.tools.values() if parameter.is_complete(tool, read.arguments)]
    if not read.arguments or len({tool.name for tool in fits}) != 1:
        return None
    return read._replace(name=fits[0].name, tool=fits[0], repairs=(*read.repairs, Repair.TOOL_BY_ARGUMENTS))


def parse_calls(context: Context, call: OpenCall) -> list[Call]:
    """Return the calls of a complete text: one, or several if it holds several objects.

    Raises `NotACall`.
    """
    # Step 1: Parameters between tags are one call.
    if call.json is None:
        call.parameters.complete(call.text.body)
        return _make_calls(context, call, _read_tagged(call))
    # Step 2: Collect the objects; a list in place of an object holds several.
    bodies: list[str] = []
    for body in (*call.earlier_objects, call.json):
        call.repairs |= body.repairs
        text = body.text()
        if call.syntax.body == "json" and text.startswith("{"):
            text = envelope.extract_call_list(text) or text
        if text.startswith("["):
            call.repairs[Repair.ARRAY_OF_CALLS] = None
        bodies += split_items(text) if text.startswith("[") else [text]
    # Step 3: Make a call from each object. Several objects are a repair, which must not lose an argument.
    if not call.earlier_objects:
        return _make_calls(context, call, _read_objects(context, call, bodies))
    call.repairs[Repair.SEVERAL_OBJECTS] = None
    return _check_repaired(
        call, _make_calls(context, call, _read_objects(context, call, bodies)), "it contains several objects"
    )


def repair_calls(context: Context, call: OpenCall) -> tuple[list[Call], str]:
    """Repair a call that the strict parse failed on, and return its calls and the text after it.

    The list is empty if the call is ambiguous; then `fault` may give a better reason than before.
    """
    body, closers = call.text.body, call.syntax.closers.list_written(call.written)
    try:
        if call.json is None:
            events, rest = _repair_tags(context, call, body, closers)
        elif end := call.ends.wrong_closer:
            # If the right closer follows later, after other text, the wrong one may be content.
            after, opening = body[end:].lstrip(), call.syntax.opening
            ends_here = after.startswith(tuple(closers)) or (opening and opening.match(after))
            if not ends_here and any(closer in after for closer in closers):
                return [], ""
            call.text.replace_body(body[:end])
            call.repairs[Repair.WRONG_CLOSER] = None
            events, rest = parse_calls(context, call), body[end:]
        else:
            events, rest = _repair_json(context, call, body, closers)
    except NotACall as error:
        call.text.replace_body(body)
        call.fault = str(error)
        return [], ""
    return events, rest


def _repair_tags(context: Context, call: OpenCall, body: str, closers: Sequence[str]) -> tuple[list[Call], str]:
    """Repair a call with parameters between tags. Raises `NotACall`."""
    # Step 1: Find its end: before a call that the value may have swallowed, or before words after it.
    ends, end = call.ends, len(body)
    if ends.next_call:
        end, rest = ends.next_call, body[ends.next_call :]
        is_closed = ends.swallowed or rest.rstrip().endswith(tuple(closers))
        if not (is_closed and call.syntax.parameters.is_balanced(rest)):
            return [], ""  # the value may contain the other call
        if ends.has_no_value:
            ends.swallowed, call.fault = end, "a parameter has no value"
            return [], ""
    elif ends.before_words and _is_end(call, body[ends.before_words :], closers):
        end = ends.before_words
    elif call.parameters.quotes_calls:
        return [], ""  # a value that contains a call is ambiguous
    # Step 2: Parse the parameters up to there.
    body, rest = body[:end], body[end:]
    repair = Repair.UNPAIRED_OPENER if end == ends.before_words else Repair.MISSING_CLOSER
    split = call.parameters.split(body, repair)
    if not split or (ends.next_call and Repair.MISSING_PARAMETER_CLOSER in call.repairs):
        return [], ""  # a value without a closer may contain the other call
    call.text.replace_body(body)
    return _make_calls(context, call, _read_tagged(call)), rest


def _repair_json(context: Context, call: OpenCall, body: str, closers: Sequence[str]) -> tuple[list[Call], str]:
    """Repair a call with self-delimiting arguments. Raises `NotACall`."""
    repaired: repairs.RepairedBody | None
    if call.syntax.body == "kwargs":
        repaired = repairs.repair_kwargs(body, closers)
    elif isinstance(call.json, GemmaBody) and not _JSON_OBJECT.match(body):
        repaired = repairs.repair_gemma(body, closers, call.json.quote, call.named.schema)
    else:
        keys = call.syntax.dialect.json if call.syntax.body == "json" else None
        expected = (
            envelope.describe_expected_call(keys, call.named.tools, call.named.find_tool)
            if keys
            else ExpectedObject(call.named.schema.root)
        )
        ends = list_json_closers(body, closers)
        repaired = None if ends is None else repairs.repair_json(body, ends, expected)
    if repaired is None:
        return [], ""
    call.repairs |= dict.fromkeys(repaired.repairs)
    call.text.replace_body(body[: repaired.end])
    events = _make_calls(context, call, _read_objects(context, call, repaired.values))
    return _check_repaired(call, events, call.fault), body[repaired.end :]


def _is_end(call: OpenCall, rest: str, closers: Sequence[str]) -> bool:
    """Return whether a call can end before `rest`: only closers or the next call follow."""
    while closer := next((closer for closer in closers if rest.lstrip().startswith(closer)), ""):
        rest = rest.lstrip().removeprefix(closer)
    return not rest.strip() or is_call_start(call.syntax, rest, call.named.find_tool)


def _check_repaired(call: OpenCall, events: list[Call], fault: str) -> list[Call]:
    """Return calls of repaired JSON. Raises `NotACall` if one may have lost an argument; `fault` is the error in it."""
    for event in events:
        tool = call.named.tools.get(event.call.name)
        arguments = json.loads(event.call.arguments)
        if not isinstance(arguments, dict):
            raise NotACall(f"{fault}, and its arguments are not an object")
        keys = arguments.keys()
        if not keys and Repair.JSON_CUT in event.repairs and "{}" not in "".join(call.text.body.split()):
            raise NotACall(f"{fault}, and its arguments are missing")
        if tool and (lost := tool.schema.list_missing(keys)):
            raise NotACall(f"{fault}, and {min(lost)!r} is missing")
    return events


def _make_calls(context: Context, call: OpenCall, contents: Iterable[EnvelopeContent]) -> list[Call]:
    """Create a call from each content; the first one carries the whole text. Raises `NotACall`."""
    dialect = call.syntax.dialect
    events: list[Call] = []
    for read in contents:
        text, notes = read.text, (*map(str, call.repairs), *map(str, read.repairs))
        if read.tool and read.tool.name != read.name and not call.named.find_named_tool(read.name):
            if parameter.is_complete(read.tool, read.arguments):
                notes = (*notes, Repair.TOOL_NAME)
            else:
                read = read._replace(tool=None)
                notes = tuple(note for note in notes if not note.startswith(Repair.UNDECLARED))
        name = read.tool.name if read.tool else _resolve_unoffered(call, read.name, notes)
        if name is None or (read.tool is None and context.unknown_tools == "text"):
            raise NotACall(tool_names.explain_unknown_tool(read.name, call.named.tools))
        if read.tool is None:
            notes = (*notes, Repair.UNKNOWN_TOOL) if call.named.tools else notes
        elif call.json or read.repairs:
            text, fitted = parameter.fit_object(text, read.arguments, read.tool.schema, lenient=context.lenient)
            notes = (*notes, *fitted)
        if dialect.names == "declared" and call.syntax.whole_reply:
            _check_required(read.arguments, call.named.tools[name])
        raw = "" if events else call.text.raw
        events.append(Call(raw, ToolCall(name, text, read.id or call.id), dialect.name, notes))
    if not events:
        raise NotACall("it is empty")
    if len(events) > 1:
        evidence = Evidence(call.text.raw, tuple(events))
        events = [replace(event, read_from=evidence) for event in events]
    return events


def _resolve_unoffered(call: OpenCall, written: str, notes: Collection[str]) -> str | None:
    """Return the name of an unoffered tool; None if it is not a call. Without tools every name is accepted."""
    if call.named.tools:
        return call.syntax.resolve_unoffered(written, notes, in_json=call.json is not None)
    return written if call.syntax.dialect.names == "any" else None


def _read_tagged(call: OpenCall) -> list[EnvelopeContent]:
    """Parse the parameters between tags. Raises `NotACall`."""
    named = call.named
    call.parameters.check_values()
    content = envelope.read_parameters(call.written, call.parameters.given, named.tool, named.declared)
    if content.repairs:
        call.repairs.pop(Repair.UNDECLARED.of(next(iter(call.parameters.given))), None)
    return [content]


def _read_objects(context: Context, call: OpenCall, bodies: Sequence[str]) -> list[EnvelopeContent]:
    """Parse objects: whole calls, or the arguments of the tool named in the head. Raises `NotACall`."""
    syntax, named = call.syntax, call.named
    if syntax.body == "json":
        keys, bare = syntax.dialect.json, syntax.dialect.names == "declared"
        return [envelope.read(body, keys, needs_arguments=bare, offered=named.find_tool) for body in bodies]
    if len(bodies) > 1:
        raise NotACall("its arguments are several objects")
    if named.tool is None and tool_names.is_bare_id(named.written):
        # Kimi writes an id in the head, and sometimes a whole call with its name in place of the arguments.
        with contextlib.suppress(NotACall):
            return [envelope.read(body, Envelope(), needs_arguments=True, offered=named.find_tool) for body in bodies]
        if context.lenient and (content := _find_tool_by_arguments(named, bodies[0])):
            return [content]
    return [envelope.read_arguments(named.written, body, named.tool) for body in bodies]
