"""Calls and results as a dialect writes them: the other direction of the same patterns.

Tagged values are written raw, so a value may hold the very markers that would end it, or a string may look like
another type. What is written is therefore read back, and where it would not come back the same, the arguments are
written as one JSON object in the call's body, which every dialect reads and in which no marker can occur.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vtc.dialects import gemma_body, pattern, values
from vtc.dialects.description import Description
from vtc.dialects.grammar import compiled
from vtc.dialects.reader import Reader
from vtc.events import Call, Markup, Tool, ToolCall


def write_calls(calls: Sequence[ToolCall], dialect: Description, tools: Mapping[str, Tool]) -> str:
    """The text of some calls, section included; `tools` are the offered tools by name."""
    if not calls:
        return ""
    # The tool of a call in the history may not be offered any more; it is written as if it were.
    offered = dict(sorted({**{call.name: Tool(call.name) for call in calls}, **tools}.items()))
    text = dialect.separator.join(
        write_call(call, dialect, offered, index).rstrip("\n") for index, call in enumerate(calls)
    )
    if dialect.sections and (dialect.section_required or dialect.section_anchor == "anywhere"):
        return _fill(dialect.sections[0], "section", {"calls": text})
    return text


def write_call(call: ToolCall, dialect: Description, tools: Mapping[str, Tool], index: int = 0) -> str:
    """The text of one call without its section."""
    arguments = _object(call.arguments)
    form = dialect.calls[0]
    id_ = dialect.id.replace("{name}", call.name).replace("{index}", str(index)) or call.id or ""
    slots = {"name": call.name, "id": id_, "index": str(index), "number": str(index + 1)}
    kind = pattern.body(form)
    if kind == "json":
        keys = dialect.json
        named: dict[str, tuple[str, Any]] = {
            "id": (keys.id, id_ if keys.id else ""),
            "name": (keys.name[0], call.name),
            "arguments": (keys.arguments[0], arguments),
        }
        fields = [named[one] for one in keys.order]
        slots["json"] = _dumped({key: value for key, value in fields if value != ""})
    elif kind == "args":
        slots["args"] = gemma_body.write(arguments) if dialect.codec == "gemma" else _dumped(arguments)
    elif kind == "kwargs":
        slots["kwargs"] = ", ".join(f"{key}={_literal(value, dialect.values)}" for key, value in arguments.items())
    else:
        slots["params"] = dialect.param_separator.join(_param(key, value, dialect) for key, value in arguments.items())
        text = _fill(form, "call", slots)
        if not dialect.json_body or _reads_back(text, call.name, arguments, dialect, tools):
            return text
        # `<` as an escape: no marker can be found in it.
        slots["params"] = _dumped(arguments).replace("<", "\\u003c") + "\n"
    return _fill(form, "call", slots)


def write_result(name: str, id_: str, result: str, dialect: Description) -> str:
    """The text in which a tool's result stands in the conversation. The result itself is never altered."""
    filled = {"name": name, "id": id_, "result": result or dialect.empty_result}
    return _fill(dialect.result, "result", filled)


def _param(key: str, value: Any, dialect: Description) -> str:
    if dialect.values == "nested" and isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else (("item", item) for item in value)
        text = "".join(_param(name, entry, dialect) for name, entry in inner)
    else:
        text = values.write(value, dialect.values)
    if dialect.frame == "multiline" and "\n" in text:
        text = f"\n{text}\n"
    kind = "string" if isinstance(value, str) else _json_type(value)
    slots = {"key": key, "value": text, "string": str(isinstance(value, str)).lower(), "type": kind}
    return _fill(dialect.params[0], "param", slots)


def _json_type(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _literal(value: Any, style: values.Style) -> str:
    """A value in a Python call."""
    if isinstance(value, str) and style != "repr":
        return _dumped(value)
    return repr(value)


def _fill(text: str, key: str, slots: Mapping[str, str]) -> str:
    return "".join(part if isinstance(part, str) else slots[part.name] for part in pattern.parse(text, key))


def _reads_back(
    text: str, name: str, arguments: Mapping[str, Any], dialect: Description, tools: Mapping[str, Tool]
) -> bool:
    if dialect.section_required:
        text = _fill(dialect.sections[0], "section", {"calls": text})
    reader = Reader(compiled((dialect,), tuple(tools)), tools, max_call_bytes=len(text) * 8 + 8)
    events = [*reader.feed(text), *reader.finish()]
    match [event for event in events if not isinstance(event, Markup)]:
        case [Call(call=ToolCall(name=read, arguments=written))]:
            return read == name and _same(json.loads(written), arguments)
    return False


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: `1`, `1.0` and `true` are three things."""
    return _dumped(one) == _dumped(other)


def _object(arguments: str) -> dict[str, Any]:
    """Arguments as an object; what a client sends that is none is kept under one key, so that nothing is lost."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


_dumped = json.JSONEncoder(ensure_ascii=False).encode
