"""Calls in their structured form, put together from the pieces that a reply has them in.

    {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": ""}}
    {"index": 0, "function": {"arguments": "{\\"path\\": "}}

Pieces of several calls may be mixed, some servers number nothing, and one piece may be all of a call. The older form is
`{"function_call": {"name": …, "arguments": …}}`. A call of a custom tool has `custom` with `name` and `input`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vtc.events import ToolCall

LEGACY = -1
"""Stands for the index of a call in the older form, which has none."""


@dataclass(slots=True)
class _Pieces:
    """One call so far. Its arguments are joined only at the end, since those of a long call come in thousands."""

    id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        return "".join(self.arguments)


_KNOWN = ("index", "id", "type", "function", "custom", "name", "arguments")

type State = dict[int, tuple[_Pieces, int]]
"""What had come: each call, and how many pieces of its arguments."""


class Gathered:
    """The calls of one message."""

    def __init__(self) -> None:
        self._calls: dict[int, _Pieces] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, part: Mapping[str, Any]) -> None:
        """What a delta, or a whole message, says of calls."""
        for entry in part.get("tool_calls") or ():
            self._add(self._index(entry), entry, function_of(entry))
        if legacy := part.get("function_call"):
            self._add(LEGACY, {}, legacy)

    def _add(self, index: int, entry: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        call = self._calls.setdefault(index, _Pieces())
        call.source.update(entry)
        call.id = call.id or entry.get("id")
        name = function.get("name") or ""
        if name != call.name:  # some servers repeat it with every piece
            call.name += name
        arguments = function.get("arguments", function.get("input")) or ""
        # Some send the object itself.
        call.arguments.append(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))

    def _index(self, entry: Mapping[str, Any]) -> int:
        """Which call a piece belongs to; of servers that number nothing, a new id or a second name begins another."""
        if isinstance(entry.get("index"), int):
            return int(entry["index"])
        if not self._calls:
            return 0
        last = max(self._calls)
        call, id_, name = self._calls[last], entry.get("id"), function_of(entry).get("name")
        return last + bool((name and call.name) or (id_ and id_ != call.id))

    def calls(self) -> list[ToolCall]:
        """In their order."""
        return [
            ToolCall(call.name, call.text() or "{}", call.id, call.source) for _, call in sorted(self._calls.items())
        ]

    def numbered(self) -> list[ToolCall]:
        """The same; one without an id gets `call_<place>`."""
        return [replace(call, id=call.id or f"call_{place}") for place, call in enumerate(self.calls())]

    def entries(self, offset: int = 0) -> list[dict[str, Any]]:
        """As far as they came, as one delta has them; their numbers begin at `offset`."""
        calls = [ToolCall(call.name, call.text(), call.id, call.source) for _, call in sorted(self._calls.items())]
        return [{**entry_of(call), "index": offset + place} for place, call in enumerate(calls)]

    def state(self) -> State:
        return {
            index: (replace(call, source={**call.source}), len(call.arguments)) for index, call in self._calls.items()
        }

    def restore(self, state: State) -> None:
        """Have only what had come then."""
        for call, count in state.values():
            del call.arguments[count:]
        self._calls = {index: call for index, (call, _) in state.items()}


def function_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is called, of an entry of `tool_calls`, or declared, of one of `tools`: a function or a custom tool."""
    found = entry.get("function") or entry.get("custom")
    return found if isinstance(found, Mapping) else {}


def entry_of(call: ToolCall) -> dict[str, Any]:
    """A call as an entry of `tool_calls`, with the fields that nobody here knows (Gemini's thought signatures)."""
    source = call.source if isinstance(call.source, dict) else {}
    rest = {key: value for key, value in source.items() if key not in _KNOWN}
    if "custom" in source:
        return {**rest, "id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {**rest, **call.as_openai()}


def calls_of(message: Mapping[str, Any]) -> list[ToolCall]:
    """The calls of a whole message; one without an id gets `call_<place>`."""
    gathered = Gathered()
    entries = [{**entry, "index": place} for place, entry in enumerate(message.get("tool_calls") or ())]
    gathered.add({**message, "tool_calls": entries})
    return gathered.numbered()


def deltas_of(call: ToolCall, index: int, *, legacy: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call in two deltas: all but its arguments, then these."""
    if legacy:
        head = {"function_call": {"name": call.name, "arguments": ""}}
        return head, {"function_call": {"arguments": call.arguments}}
    entry = {**entry_of(replace(call, arguments="")), "index": index}
    return {"tool_calls": [entry]}, {"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]}
