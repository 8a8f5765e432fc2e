"""The parts of which contents of Gemini's API are made: texts, thoughts, calls and results.

{"text": "…"}                       {"text": "…", "thought": true}
{"functionCall": {"id": …, "name": "read", "args": {…}}, "thoughtSignature": "…"}
{"functionResponse": {"id": …, "name": "read", "response": {"output": "…"}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vtc.apis.fields import part_of
from vtc.apis.tool_calls import arguments_text, object_in
from vtc.events import Message, Tool, ToolCall

_SAID = ("output", "result", "content", "error")
"""Fields of a result that hold all that it says."""


def is_text(part: Any) -> bool:
    """True for a part that says a text, and nothing besides."""
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.keys() == {"text"}


def call_of(part: Mapping[str, Any]) -> ToolCall:
    """Read a call."""
    said = part["functionCall"]
    id_ = said.get("id")
    arguments = arguments_text(said.get("args")) or "{}"
    return ToolCall(str(said["name"]), arguments, id_ if isinstance(id_, str) else None, part)


def call_part(call: ToolCall) -> dict[str, Any]:
    """Write a call; with what its part says besides, if it was read from one."""
    own = call.source if isinstance(call.source, dict) and "functionCall" in call.source else {}
    arguments = object_in(call.arguments)
    ids = {"id": call.id} if call.id else {}
    return {**own, "functionCall": {**ids, "name": call.name, "args": {} if arguments is None else arguments}}


def declared(tool: Tool) -> dict[str, Any]:
    """Write what a declaration says of how a tool is called."""
    return {"name": tool.name, "parametersJsonSchema": dict(tool.parameters)}


def declaration(tool: Tool) -> dict[str, Any]:
    """Declare a tool."""
    return {"description": tool.description, **declared(tool)}


def result_text(part: Mapping[str, Any]) -> str:
    """Read what a result says: the text that is all of it, or its JSON."""
    said = part["functionResponse"].get("response")
    texts = [one for key, one in said.items() if key in _SAID and len(said) == 1] if isinstance(said, dict) else [said]
    whole = next((one for one in texts if isinstance(one, str)), None)
    return whole if whole is not None else json.dumps(said, ensure_ascii=False) if said else ""


def result_part(message: Message, text: str) -> dict[str, Any]:
    """Write a result; under the field that it said it in, if it was read from one."""
    own = message.source if isinstance(message.source, dict) and "functionResponse" in message.source else {}
    before = part_of(part_of(own, "functionResponse"), "response")
    field = next((key for key in before if key in _SAID), "output")
    named = {key: value for key, value in (("id", message.call_id), ("name", message.name)) if value}
    return {**own, "functionResponse": {**part_of(own, "functionResponse"), **named, "response": {field: text}}}
