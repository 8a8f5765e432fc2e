"""Calls of chat completions: entries of `tool_calls`, and the older `function_call`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vtc.apis.openai_chat import details
from vtc.apis.tool_calls import arguments_text, raw_input
from vtc.events import CallDelta, ToolCall

LEGACY = -1
"""Stands for the index of a call in the older form, which has none."""
_KNOWN = ("index", "id", "type", "function", "custom", "name", "arguments")
HARMLESS = frozenset((*_KNOWN, details.EXTRA))
"""The fields of a call in which no client finds another one."""


def read_call(call: Mapping[str, Any], choice: int) -> CallDelta:
    """Read an entry of `tool_calls`, or a piece of one; it is not clean if it breaks a rule that clients rely on."""
    function = function_of(call)
    index, id_, name, arguments = (
        call.get("index"),
        call.get("id"),
        function.get("name") or "",
        function.get("arguments"),
    )
    clean = isinstance(index, int) and (not name or bool(id_ and call.get("type") in ("function", "custom")))
    clean = clean and isinstance(arguments, str | None)
    return CallDelta(
        index if isinstance(index, int) else None,
        id_ if isinstance(id_, str) else None,
        name if isinstance(name, str) else "",
        arguments_text(function.get("input") if arguments is None else arguments),
        call,
        choice,
        clean,
    )


def read_function_call(function: Mapping[str, Any], choice: int) -> CallDelta:
    """Read a call, or a piece of one, in the older form."""
    arguments = arguments_text(function.get("arguments"))
    return CallDelta(LEGACY, None, function.get("name") or "", arguments, function, choice)


def function_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an entry of `tool_calls` calls, or one of `tools` declares: a function or a custom tool."""
    found = entry.get("function") or entry.get("custom")
    return found if isinstance(found, Mapping) else {}


def entry_of(call: ToolCall, custom: Collection[str] = ()) -> dict[str, Any]:
    """Write a call as an entry of `tool_calls`, with the fields that VTC does not know (thought signatures).

    `custom` are the names of custom tools.
    """
    source = call.source if isinstance(call.source, dict) else {}
    rest = {key: value for key, value in source.items() if key not in _KNOWN}
    if "custom" in source or call.name in custom:
        said = {"name": call.name, "input": raw_input(call.arguments)}
        return {**rest, "id": call.id, "type": "custom", "custom": said}
    return {**rest, **call.as_openai()}
