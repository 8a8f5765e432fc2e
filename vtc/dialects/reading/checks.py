"""Doubts about a call that was read: each raises `envelope.NotACall`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from vtc.dialects.arguments import values
from vtc.dialects.arguments.envelope import NotACall
from vtc.dialects.repair import Repair
from vtc.events import Call, Tool


def repaired(event: Call, tools: Mapping[str, Tool], body: str, fault: str) -> None:
    """Refuse mended JSON that may have lost an argument; `fault` is what was wrong with its `body`."""
    tool = tools.get(event.call.name)
    schema = tool.parameters if tool else {}
    arguments = json.loads(event.call.arguments)
    if not isinstance(arguments, dict):
        raise NotACall(f"{fault}, and its arguments are no object")
    keys = arguments.keys()
    if not keys and Repair.JSON_CUT in event.repairs and "{}" not in "".join(body.split()):
        raise NotACall(f"{fault}, and its arguments are missing")
    if lost := set(values.required(schema)) - keys:
        raise NotACall(f"{fault}, and {min(lost)!r} is missing")


def unfilled(events: Iterable[Call], blank: str) -> str:
    """Find an argument that is still the `blank` of the example that the model was shown; empty if there is none."""
    given = (
        json.loads(event.call.arguments) for event in events if blank and json.dumps(blank) in event.call.arguments
    )
    return next((key for arguments in given for key, value in arguments.items() if value == blank), "")


def answer(arguments: Collection[str], tool: Tool) -> None:
    """Refuse an object that is as well an answer, since the tool takes other arguments."""
    if lost := set(values.required(tool.parameters)) - {*arguments}:
        raise NotACall(f"{min(lost)!r} is missing")
