"""What a request asks for besides an answer, wherever its API or its server says so: to think, to answer in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SWITCHES = ("chat_template_kwargs.enable_thinking", "chat_template_kwargs.thinking", "enable_thinking", "think")
"""Dotted paths of what turns thinking on or off: templates on vLLM and SGLang; DashScope, SiliconFlow; Ollama."""
_EFFORTS = ("reasoning_effort", "reasoning.effort")
"""Those of words that say how much; OpenAI, OpenRouter."""
_FORMATS = ("response_format", "text.format", "output_config.format", "output_format", "format")
"""Those of the form of the answer: chat completions, Responses, Messages (and before), Ollama."""


def thinks(fields: Mapping[str, Any]) -> bool | None:
    """Return what a request says about thinking: true, false, or None if it says nothing."""
    for path in _SWITCHES:
        value = _at(fields, path)
        if isinstance(value, bool):
            return value
    said = fields.get("thinking")
    kind = said.get("type") if isinstance(said, Mapping) else said
    if isinstance(kind, bool):
        return kind
    if kind in ("enabled", "disabled", "adaptive"):
        return bool(kind != "disabled")
    for path in _EFFORTS:
        effort = _at(fields, path)
        if isinstance(effort, str):
            return effort != "none"
    return None


def wants_json(fields: Mapping[str, Any]) -> bool:
    """True if the answer is to be JSON: then an object that is the whole reply is the answer, and no call."""
    return any(_is_json(_at(fields, path)) for path in _FORMATS)


def _is_json(format_: Any) -> bool:
    if isinstance(format_, Mapping):  # Ollama takes the schema itself
        return format_.get("type") in ("json_object", "json_schema", "object")
    return bool(format_ == "json")


def _at(fields: Any, path: str) -> Any:
    for key in path.split("."):
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    return fields
