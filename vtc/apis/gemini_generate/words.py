"""The words of Gemini's API: its name, the reasons why a reply ends, the two ways in which fields are spelled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vtc.events import Origin, Reason
from vtc.wire.sse import EventStream

NAME = "gemini-generate"
FRAMING = EventStream()
REASONS: Mapping[str, Reason] = {"STOP": "other", "MAX_TOKENS": "length", "FINISH_REASON_UNSPECIFIED": "other"}
"""Calls change no reason of this API; all others halt the model."""
FREE = frozenset(
    (
        *("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"),
        *("labels", "vars"),
    )
)
"""Fields whose own fields are the user's."""


def camel(value: Any) -> Any:
    """Spell fields as the API's documents do; servers take `function_call` for `functionCall`, too."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: one if key in FREE else camel(one) for key, one in camel_fields(value).items()}


def camel_fields[T](fields: Mapping[str, T]) -> dict[str, T]:
    """Spell the names of fields; of two that are one, the other spelling stays, as something that is not known."""
    named = ((key, camel_name(key)) for key in fields)
    return {key if name != key and name in fields else name: fields[key] for key, name in named}


def camel_name(name: str) -> str:
    """Spell the name of a field."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def origin(kind: str, value: Any, choice: int = 0, *, harmless: bool = False) -> Origin:
    """Take a thing that only this API knows."""
    return Origin(NAME, kind, value, choice, harmless=harmless)
