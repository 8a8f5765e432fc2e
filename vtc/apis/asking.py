"""What a request asks for besides an answer, wherever its API or its server says so: to think, to answer in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vtc.apis.fields import part_of
from vtc.events import Answer

_SWITCHES = ("chat_template_kwargs.enable_thinking", "chat_template_kwargs.thinking", "enable_thinking", "think")
"""Dotted paths of what turns thinking on or off: templates on vLLM and SGLang; DashScope, SiliconFlow; Ollama."""
_EFFORTS = ("reasoning_effort", "reasoning.effort", "output_config.effort")
"""Those of words that say how much; OpenAI, OpenRouter; Messages."""
_THINK = ("low", "medium", "high")
"""The words that Ollama has for the same, in `think`."""
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
    said = effort(fields)
    return None if said is None else said != "none"


def effort(fields: Mapping[str, Any]) -> str | None:
    """Return the word for how much is to be thought; `none` for not at all, None if the request leaves it open."""
    words = [word for path in _EFFORTS if isinstance(word := _at(fields, path), str)]
    words += [word for word in _THINK if word == fields.get("think")]
    off = fields.get("think") is False or _at(fields, "thinking.type") == "disabled"
    return "none" if off else next(iter(words), None)


def answer(fields: Mapping[str, Any]) -> Answer | None:
    """Read the form that the answer must have; None if it is free."""
    for path in _FORMATS:
        said = _at(fields, path)
        if not _is_json(said):
            continue
        if not isinstance(said, Mapping) or said.get("type") == "json_object":
            return Answer()
        if said.get("type") == "object":
            return Answer(said)
        told = part_of(said, "json_schema") or said
        return Answer(told.get("schema"), str(told.get("name") or "answer"), told.get("strict"))
    return None


def limits(fields: Mapping[str, Any], paths: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Read limits and sampling; `paths` says where an API has each of them."""
    said = {name: [_at(fields, path) for path in at] for name, at in paths.items()}
    found = {name: one for name, values in said.items() for one in reversed(values) if one is not None}
    return {**found, "stop": [found["stop"]]} if isinstance(found.get("stop"), str) else found


def placed(limits: Mapping[str, Any], paths: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Write limits and sampling at the first place that an API has for each; those for which it has none are left."""
    fields: dict[str, Any] = {}
    for name, value in limits.items():
        if name in paths:
            *above, key = paths[name][0].split(".")
            into = fields
            for one in above:
                into = into.setdefault(one, {})
            into[key] = value
    return fields


def _is_json(format_: Any) -> bool:
    if isinstance(format_, Mapping):  # Ollama takes the schema itself
        return format_.get("type") in ("json_object", "json_schema", "object")
    return bool(format_ == "json")


def _at(fields: Any, path: str) -> Any:
    for key in path.split("."):
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    return fields
