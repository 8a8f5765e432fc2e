"""Read a call from one JSON object, `{"name": …, "arguments": {…}}`, in the spellings that models use."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from vtc.dialects.arguments import values
from vtc.dialects.arguments.broken_json import ExpectedObject
from vtc.dialects.arguments.json_object import (
    DuplicateKeyError,
    JsonBody,
    dump_json,
    escape_surrogates,
    load_unique_keys,
    render_members,
    split_members,
)
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.description import ARGUMENT_KEYS, CALL_LIST_KEYS, WRAPPER_KEYS, Envelope
from vtc.events import Tool


class NotACall(ValueError):
    """The JSON is not a call; the message gives the reason."""


class EnvelopeContent(NamedTuple):
    """The tool and the arguments that were read from the JSON of a call."""

    name: str
    text: str
    """The arguments as they are written."""
    arguments: Mapping[str, Any]
    tool: Tool | None
    """The offered tool that the name refers to."""
    id: str | None = None
    repairs: tuple[str, ...] = ()


DECLARATION_REASON = "it declares a tool, like the list of tools"
_METADATA_KEYS = ("id", "type", "index", *WRAPPER_KEYS)
_OTHER_NAME_KEYS = ("tool", "tool_name", "function", "function_name", "func", "action", "method", "call")
"""Keys under which models write the name in place of the dialect's key."""
_CALL_TYPES = ('"function"', '"tool_use"', '"tool_call"', '"function_call"')
"""Values of `type` in a call, as JSON."""

MAX_CANDIDATE_TOOLS = 64
"""Maximum number of tools whose parameters are combined if the name is not known yet."""


def describe_expected_call(
    keys: Envelope, tools: Mapping[str, Tool], offered: Callable[[str], Tool | None]
) -> ExpectedObject:
    """Describe the object of a call for the repair of broken JSON. `offered` finds the tool for a written name."""
    arguments = frozenset((*keys.arguments, *ARGUMENT_KEYS)) - {*keys.name}
    entries: dict[str, Any] = {key: {} for key in (*_METADATA_KEYS, *([keys.id] if keys.id else []), *arguments)}
    entries |= {key: {"type": "string"} for key in keys.name}

    def schema(name: str) -> Mapping[str, Any] | None:
        if name:
            tool = offered(name)
            return tool.parameters if tool else None
        some = itertools.islice(tools.values(), MAX_CANDIDATE_TOOLS)
        return {"properties": {key: entry for tool in some for key, entry in tool.schema.properties.items()}}

    return ExpectedObject({"type": "object", "properties": entries}, frozenset(keys.name), arguments, schema)


def extract_call_list(text: str) -> str | None:
    """Return the list in an object that contains only a list of calls, as JSON text; None for any other."""
    if not any(key in text for key in CALL_LIST_KEYS):
        return None
    fields = split_members(text)
    lists = [value for key, value in fields.items() if key in CALL_LIST_KEYS and value.startswith("[")]
    return lists[0] if len(fields) == len(lists) == 1 else None


def read_arguments(name: str, text: str, tool: Tool | None) -> EnvelopeContent:
    """Read a call whose JSON is the arguments, or a string that encodes them. Raises `NotACall`."""
    if text.startswith('"'):
        text = _decode_nested_arguments(load_unique_keys(text))
        return EnvelopeContent(name, text, _parse_object(text), tool, repairs=(Repair.ARGUMENTS_ENCODED_TWICE,))
    return EnvelopeContent(name, text, _parse_object(text, "its arguments are not an object"), tool)


def read_parameters(
    name: str, parameters: Mapping[str, Any], tool: Tool | None, declared: Collection[str]
) -> EnvelopeContent:
    """Read a call whose parameters are written between tags.

    If there is only one, which is not `declared`, and it holds declared arguments as an object or as JSON text, they
    are used instead.
    """
    repairs: tuple[str, ...] = ()
    ((key, value), *more) = parameters.items() or [("", None)]
    if not more and key in ARGUMENT_KEYS and key not in declared:
        inner = values.parse_unquoted(value)[0] if isinstance(value, str) else value
        if isinstance(inner, dict) and (not inner or any(key in declared for key in inner)):
            parameters, repairs = inner, (Repair.ARGUMENTS_KEY,)
    text = escape_surrogates(json.dumps(parameters, ensure_ascii=False, separators=(",", ":")))
    return EnvelopeContent(name, text, parameters, tool, repairs=repairs)


def read(
    text: str, keys: Envelope, *, needs_arguments: bool, offered: Callable[[str], Tool | None] = lambda _: None
) -> EnvelopeContent:
    """Read a call from an object. Raises `NotACall`.

    With `needs_arguments`, an object without the key of the arguments is an answer and not a call. `offered` finds the
    tool for a written name, because its parameters must never be dropped, whatever their keys are.
    """
    # Step 1: Unwrap the call, which may be in an object, as in the chat API: {"type": "function", "function": {…}}.
    call, fields = _parse_object(text), split_members(text)
    around = next((key for key in WRAPPER_KEYS if isinstance(call.get(key), dict)), "")
    if around and not any(key in call for key in keys.name if key not in WRAPPER_KEYS):
        call, fields = {**call, **_parse_object(fields[around])}, {**fields, **split_members(fields[around])}
    # Step 2: Find its name.
    repairs: tuple[str, ...] = ()
    named = next((key for key in keys.name if key in call), "")
    if not named and not needs_arguments:
        call, fields, named = _find_name(call, fields, keys, offered)
        repairs = (Repair.NAME_KEY,) if named else ()
    name = call.get(named)
    if not isinstance(name, str):
        raise NotACall(f"the JSON has no {keys.name[0]!r}")
    # Step 3: Decide whether this is a call, and not an answer or a declaration.
    key = next((key for key in keys.arguments if key in call), "")
    tool = offered(name)
    parameters = tool.schema.properties if tool else ()
    takes_none = keys.may_lack_arguments and tool is not None and not parameters and len(call) == 1
    if not key and needs_arguments and not takes_none:
        raise NotACall(f"the JSON has no {keys.arguments[0]!r}")
    if "description" in call:
        raise NotACall(DECLARATION_REASON)
    # Step 4: Find the arguments: under their key, or among the other members.
    about = {named, *keys.name, *_METADATA_KEYS, keys.id}
    if not key:  # a key that usually describes the call may be an argument here
        about -= {key for key in parameters if key not in (named, *WRAPPER_KEYS) and fields.get(key) not in _CALL_TYPES}
    rest = {key: value for key, value in fields.items() if key not in about}
    if not key:
        text, noted = _find_arguments(rest, parameters)
        repairs += noted
        arguments = load_unique_keys(text)
    elif beside := [field for field in rest if field not in keys.arguments and field in parameters]:
        if call[key] not in ({}, None, ""):
            raise NotACall(f"{beside[0]!r} is outside its arguments")
        text, repairs = render_members({field: rest[field] for field in beside}), (*repairs, Repair.FLAT_ARGUMENTS)
        arguments = load_unique_keys(text)
    else:
        text, arguments = fields[key], call[key]
    # Step 5: Decode arguments that were encoded twice, and check their type.
    if isinstance(arguments, str):
        text, repairs = _decode_nested_arguments(arguments), (*repairs, Repair.ARGUMENTS_ENCODED_TWICE)
        arguments = _parse_object(text)
    elif arguments is None:
        text, arguments = "{}", {}
    elif not isinstance(arguments, dict):
        raise NotACall("its arguments are not an object")
    if _has_schema(call, arguments):
        raise NotACall(DECLARATION_REASON)
    id_ = call.get(keys.id) if keys.id in about else None
    return EnvelopeContent(name, text, arguments, tool, id_ if isinstance(id_, str) else None, repairs)


def _find_name(
    call: dict[str, Any], fields: dict[str, str], keys: Envelope, offered: Callable[[str], object]
) -> tuple[dict[str, Any], dict[str, str], str]:
    """Find the name of a call under another key: the only value that is a tool's name, or the only key.

    An unusual key counts only if there are arguments, because the object could also be the arguments of a call without
    a name: `{"status": "now"}`. Return the call with the key of its name, which is empty if there is none or if it is
    ambiguous.
    """
    naming = [key for key, value in call.items() if isinstance(value, str) and offered(value) is not None]
    has_arguments = any(isinstance(call.get(key), dict) for key in (*keys.arguments, *ARGUMENT_KEYS))
    if len(naming) == 1 and (has_arguments or naming[0] in _OTHER_NAME_KEYS):
        return call, fields, naming[0]
    if len(call) == 1 and isinstance(value := call[name := next(iter(call))], dict) and offered(name) is not None:
        key, at = keys.name[0], keys.arguments[0]
        return {key: name, at: value}, {key: dump_json(name), at: fields[name]}, key
    return call, fields, ""


def _find_arguments(fields: dict[str, str], declared: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Find the arguments of a call without the dialect's keys for them."""
    if not fields:
        return "{}", ()
    ((key, value), *more) = fields.items()
    if not more and key in ARGUMENT_KEYS and key not in declared and value.startswith(("{", '"{')):
        return value, (Repair.ARGUMENTS_KEY,)
    if all(key in declared for key in fields):
        return render_members(fields), (Repair.FLAT_ARGUMENTS,)
    raise NotACall(
        f"{next(key for key in fields if key not in declared)!r} is not a parameter, and may hold its arguments"
    )


def _parse_object(text: str, otherwise: str = "the JSON is not an object") -> dict[str, Any]:
    """Parse an object without duplicate keys. Raises `NotACall`."""
    try:
        value = load_unique_keys(text)
    except DuplicateKeyError as error:
        raise NotACall(str(error)) from None
    if not isinstance(value, dict):
        raise NotACall(otherwise)
    return value


def _decode_nested_arguments(text: str) -> str:
    """Parse arguments that were encoded twice. Raises `NotACall`."""
    inner = text.strip() or "{}"
    body = JsonBody(lenient=False)
    end = body.feed(inner, 0, final=True)
    if body.done and end == len(inner) and inner.startswith("{"):
        return body.text()
    raise NotACall("its arguments are a string")


def _has_schema(*objects: Mapping[str, Any]) -> bool:
    """Return True if one of the objects is a JSON Schema."""
    return any(schema.get("type") == "object" and isinstance(schema.get("properties"), dict) for schema in objects)
