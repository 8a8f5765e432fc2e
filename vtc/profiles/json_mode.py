"""Whether a request asks for JSON as the answer: then an object that is the whole reply is the answer, and no call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.profiles.matching import value_at

_FORMATS = ("response_format", "text.format", "output_config.format", "output_format", "format")
"""Dotted paths at which APIs have it: chat completions, Responses, Messages (and before), Ollama."""


def asks_for_json(body: Any) -> bool:
    """Tell whether a request's JSON has such a format."""
    return any(_is_json(value_at(body, path)) for path in _FORMATS)


def _is_json(format_: Any) -> bool:
    if isinstance(format_, Mapping):  # Ollama takes the schema itself
        return format_.get("type") in ("json_object", "json_schema", "object")
    return bool(format_ == "json")
