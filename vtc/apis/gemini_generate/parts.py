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
USER_FIELDS = frozenset(
    (
        *("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"),
        "inputSchema",  # of other APIs' tools
        *("labels", "vars"),
    )
)
"""Fields whose own fields are the user's."""


SIGNATURE = "thoughtSignature"
"""The field of a part in which a server seals what was thought before."""


def to_camel_case(value: Any) -> Any:
    """Spell fields as the API's documents do; servers take `function_call` for `functionCall`, too."""
    if isinstance(value, list):
        return [to_camel_case(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: field if key in USER_FIELDS else to_camel_case(field) for key, field in rename_fields(value).items()}


def rename_fields[T](fields: Mapping[str, T]) -> dict[str, T]:
    """Spell the names of fields; of two that are one, the other spelling stays, as something that is not known."""
    named = ((key, rename_field(key)) for key in fields)
    return {key if name != key and name in fields else name: fields[key] for key, name in named}


def rename_field(name: str) -> str:
    """Spell the name of a field."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def make_origin(kind: str, value: Any, choice: int = 0, *, harmless: bool = False) -> Origin:
    """Take a thing that only this API knows."""
    return Origin(NAME, kind, value, choice, harmless=harmless)


_RESULT_FIELDS = ("output", "result", "content", "error")
"""Fields of a result that hold all that it says."""


def is_text(part: Any) -> bool:
    """True for a part that says a text, and nothing besides."""
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.keys() == {"text"}


def read_call(part: Mapping[str, Any]) -> ToolCall:
    """Read a call."""
    call = part["functionCall"]
    arguments = arguments_text(call.get("args")) or "{}"
    return ToolCall(get_text(call.get("name")), arguments, text_at(call, "id"), part)


def render_call(call: ToolCall) -> dict[str, Any]:
    """Write a call; with what its part says besides, if it was read from one."""
    own = call.source if isinstance(call.source, dict) and "functionCall" in call.source else {}
    arguments = object_in(call.arguments)
    ids = {"id": call.id} if call.id else {}
    return {**own, "functionCall": {**ids, "name": call.name, "args": {} if arguments is None else arguments}}


def render_signature(tool: Tool) -> dict[str, Any]:
    """Write what a declaration says of how a tool is called."""
    return {"name": tool.name, "parametersJsonSchema": dict(tool.parameters)}


def render_declaration(tool: Tool) -> dict[str, Any]:
    """Declare a tool."""
    return {"description": tool.description, **render_signature(tool)}


def read_result_text(part: Mapping[str, Any]) -> str:
    """Read what a result says: the text that is all of it, or its JSON."""
    response = part["functionResponse"].get("response")
    whole = response
    if isinstance(response, dict) and len(response) == 1:
        whole = next((value for key, value in response.items() if key in _RESULT_FIELDS), None)
    return whole if isinstance(whole, str) else json.dumps(response, ensure_ascii=False) if response else ""


def render_result(message: Message, text: str) -> dict[str, Any]:
    """Write a result; under the field that it said it in, if it was read from one."""
    own = message.source if isinstance(message.source, dict) and "functionResponse" in message.source else {}
    before = part_of(part_of(own, "functionResponse"), "response")
    field = next((key for key in before if key in _RESULT_FIELDS), "output")
    named = {key: value for key, value in (("id", message.call_id), ("name", message.name)) if value}
    return {**own, "functionResponse": {**part_of(own, "functionResponse"), **named, "response": {field: text}}}
