"""Parts, of which the contents of Gemini's API consist: texts, reasoning, calls and results.

{"text": "…"}                       {"text": "…", "thought": true}
{"functionCall": {"id": …, "name": "read", "args": {…}}, "thoughtSignature": "…"}
{"functionResponse": {"id": …, "name": "read", "response": {"output": "…"}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vtc.apis.calls import format_arguments, parse_object
from vtc.apis.clean import get_text
from vtc.apis.fields import part_of, text_at
from vtc.events import Media, Message, Origin, Reason, ToolCall
from vtc.wire.sse import EventStream

NAME = "gemini-generate"
FRAMING = EventStream()
FINISH_REASONS: Mapping[str, Reason] = {
    "STOP": "other",
    "FINISH_REASON_UNSPECIFIED": "other",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "halted"),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"), "halted"),
}
"""Finish reasons, with their canonical ones. Calls do not change them; any other word denotes a fault
(`MALFORMED_FUNCTION_CALL`)."""
USER_FIELDS = frozenset(
    (
        *("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"),
        "inputSchema",  # of other APIs' tools
        *("labels", "vars"),
    )
)
"""Fields that hold objects of the user, whose names are not respelled."""

SIGNATURE = "thoughtSignature"
"""The field of a part that holds the server's seal of earlier reasoning."""


def to_camel_case(value: Any) -> Any:
    """Convert field names to camel case, as the API documents them; servers also accept `function_call`."""
    if isinstance(value, list):
        return [to_camel_case(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: field if key in USER_FIELDS else to_camel_case(field) for key, field in rename_fields(value).items()}


def rename_fields[T](fields: Mapping[str, T]) -> dict[str, T]:
    """Convert the names of fields to camel case.

    If a field is present in both spellings, the other spelling is preserved as an unknown field.
    """
    named = ((key, rename_field(key)) for key in fields)
    return {key if name != key and name in fields else name: fields[key] for key, name in named}


def rename_field(name: str) -> str:
    """Convert the name of a field to camel case."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def make_origin(kind: str, value: Any, choice: int = 0, *, harmless: bool = False) -> Origin:
    """Make an origin of this API."""
    return Origin(NAME, kind, value, choice, harmless=harmless)


_RESULT_FIELDS = ("output", "result", "content", "error")
"""Fields that hold the whole text of a tool result, if it has only one of them."""


def is_text(part: Any) -> bool:
    """True for a part that has a text and no other field."""
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.keys() == {"text"}


def read_call(part: Mapping[str, Any]) -> ToolCall:
    """Parse a part that is a call."""
    call = part["functionCall"]
    arguments = format_arguments(call.get("args")) or "{}"
    return ToolCall(get_text(call.get("name")), arguments, text_at(call, "id"), part)


def render_call(call: ToolCall) -> dict[str, Any]:
    """Render a call as a part, with the other fields of its original part, if it has one."""
    own = call.source if isinstance(call.source, dict) and "functionCall" in call.source else {}
    arguments = parse_object(call.arguments)
    ids = {"id": call.id} if call.id else {}
    return {**own, "functionCall": {**ids, "name": call.name, "args": {} if arguments is None else arguments}}


def read_result_text(part: Mapping[str, Any]) -> str:
    """Return the text of a tool result: its only field, if that is a text, otherwise its JSON."""
    response = part["functionResponse"].get("response")
    whole = response
    if isinstance(response, dict) and len(response) == 1:
        whole = next((value for key, value in response.items() if key in _RESULT_FIELDS), None)
    if isinstance(whole, str):
        return whole
    return json.dumps(response, ensure_ascii=False) if response else ""


def render_result(message: Message, text: str) -> dict[str, Any]:
    """Render a tool result as a part, with the field name of its original part, if it has one."""
    own = message.source if isinstance(message.source, dict) and "functionResponse" in message.source else {}
    before = part_of(part_of(own, "functionResponse"), "response")
    field = next((key for key in before if key in _RESULT_FIELDS), "output")
    named = {key: value for key, value in (("id", message.call_id), ("name", message.name)) if value}
    return {**own, "functionResponse": {**part_of(own, "functionResponse"), **named, "response": {field: text}}}


def render_media(media: Media) -> dict[str, Any]:
    """Render media as a part."""
    if media.data:
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    return {"fileData": {"mimeType": media.media_type, "fileUri": media.url}}
