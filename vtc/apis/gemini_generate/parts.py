"""The parts of which contents of Gemini's API are made: texts, thoughts, calls and results.

{"text": "…"}                       {"text": "…", "thought": true}
{"functionCall": {"id": …, "name": "read", "args": {…}}, "thoughtSignature": "…"}
{"functionResponse": {"id": …, "name": "read", "response": {"output": "…"}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vtc.apis.calls import arguments_text, object_in
from vtc.apis.clean import get_text
from vtc.apis.fields import part_of, text_at
from vtc.events import Message, Origin, Reason, Tool, ToolCall
from vtc.wire.sse import EventStream

# The words of Gemini's API: its name, the reasons why a reply ends, the two ways in which fields are spelled.


NAME = "gemini-generate"
FRAMING = EventStream()
REASONS: Mapping[str, Reason] = {
    "STOP": "other",
    "FINISH_REASON_UNSPECIFIED": "other",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "halted"),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"), "halted"),
}
"""Calls change no reason of this API; any other word denotes a fault (`MALFORMED_FUNCTION_CALL`)."""
FREE = frozenset(
    (
        *("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"),
        "inputSchema",  # of other APIs' tools
        *("labels", "vars"),
    )
)
"""Fields whose own fields are the user's."""


SIGNATURE = "thoughtSignature"
"""The field of a part in which a server seals what was thought before."""


def camel(value: Any) -> Any:
    """Spell fields as the API's documents do; servers take `function_call` for `functionCall`, too."""
    if isinstance(value, list):
        return [camel(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: field if key in FREE else camel(field) for key, field in camel_fields(value).items()}


def camel_fields[T](fields: Mapping[str, T]) -> dict[str, T]:
    """Spell the names of fields; of two that are one, the other spelling stays, as something that is not known."""
    named = ((key, camel_name(key)) for key in fields)
    return {key if name != key and name in fields else name: fields[key] for key, name in named}


def camel_name(name: str) -> str:
    """Spell the name of a field."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def origin(kind: str, value: Any, choice: int = 0, *, harmless: bool = False) -> Origin:
    """Take a thing that only this API knows."""
    return Origin(NAME, kind, value, choice, harmless=harmless)


_SAID = ("output", "result", "content", "error")
"""Fields of a result that hold all that it says."""


def is_text(part: Any) -> bool:
    """True for a part that says a text, and nothing besides."""
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.keys() == {"text"}


def call_of(part: Mapping[str, Any]) -> ToolCall:
    """Read a call."""
    call = part["functionCall"]
    arguments = arguments_text(call.get("args")) or "{}"
    return ToolCall(get_text(call.get("name")), arguments, text_at(call, "id"), part)


def call_part(call: ToolCall) -> dict[str, Any]:
    """Write a call; with what its part says besides, if it was read from one."""
    own = call.source if isinstance(call.source, dict) and "functionCall" in call.source else {}
    arguments = object_in(call.arguments)
    ids = {"id": call.id} if call.id else {}
    return {**own, "functionCall": {**ids, "name": call.name, "args": {} if arguments is None else arguments}}


def render_signature(tool: Tool) -> dict[str, Any]:
    """Write what a declaration says of how a tool is called."""
    return {"name": tool.name, "parametersJsonSchema": dict(tool.parameters)}


def declaration(tool: Tool) -> dict[str, Any]:
    """Declare a tool."""
    return {"description": tool.description, **render_signature(tool)}


def result_text(part: Mapping[str, Any]) -> str:
    """Read what a result says: the text that is all of it, or its JSON."""
    response = part["functionResponse"].get("response")
    whole = response
    if isinstance(response, dict) and len(response) == 1:
        whole = next((value for key, value in response.items() if key in _SAID), None)
    return whole if isinstance(whole, str) else json.dumps(response, ensure_ascii=False) if response else ""


def result_part(message: Message, text: str) -> dict[str, Any]:
    """Write a result; under the field that it said it in, if it was read from one."""
    own = message.source if isinstance(message.source, dict) and "functionResponse" in message.source else {}
    before = part_of(part_of(own, "functionResponse"), "response")
    field = next((key for key in before if key in _SAID), "output")
    named = {key: value for key, value in (("id", message.call_id), ("name", message.name)) if value}
    return {**own, "functionResponse": {**part_of(own, "functionResponse"), **named, "response": {field: text}}}
