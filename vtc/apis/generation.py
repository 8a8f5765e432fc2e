"""Read how a reply is to be generated, in all spellings of APIs and servers: the effort, the form of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.apis.fields import at, part_of
from vtc.apis.layout import BodyLayout
from vtc.events import Answer, GenerationConfig

_THINKING_SWITCHES = (
    "chat_template_kwargs.enable_thinking",
    "chat_template_kwargs.thinking",
    "enable_thinking",
    "think",
)
"""Dotted paths of what turns thinking on or off: templates on vLLM and SGLang; DashScope, SiliconFlow; Ollama."""
_EFFORTS = ("reasoning_effort", "reasoning.effort", "output_config.effort")
"""Those of words that say how much; OpenAI, OpenRouter; Messages."""
_THINK_WORDS = ("low", "medium", "high")
"""The words that Ollama has for the same, in `think`."""
_THINKING_ON = ("enabled", "adaptive")
"""How `thinking` of Messages turns it on."""
_FORMATS = ("response_format", "text.format", "output_config.format", "output_format", "format")
"""Those of the form of the answer: chat completions, Responses, Messages (and before), Ollama."""

_GRAMMARS = (
    *("structured_outputs", "grammar", "json_schema", "regex", "ebnf", "grammar_string", "regex_pattern"),
    *("guided_json", "guided_regex", "guided_grammar", "guided_choice", "structural_tag", "guidance"),
)
"""Those that hold a grammar: vLLM, SGLang, llama.cpp, TabbyAPI."""


def read(fields: Mapping[str, Any], layout: BodyLayout) -> GenerationConfig:
    """Read what the body of a request says of it."""
    return GenerationConfig(
        limits=layout.read_limits(fields),
        thinks=_read_thinking(fields),
        effort=_read_effort(fields),
        answer=_read_answer(fields),
        constrained=_is_constrained(fields),
        several=fields.get("n") not in (None, 1),
    )


def _read_thinking(fields: Mapping[str, Any]) -> bool | None:
    """Return what a request says about thinking: true, false, or None if it says nothing."""
    for path in _THINKING_SWITCHES:
        value = at(fields, path)
        if isinstance(value, bool):
            return value
    thinking = fields.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, Mapping) else thinking
    if isinstance(kind, bool):
        return kind
    if kind in (*_THINKING_ON, "disabled"):
        return kind in _THINKING_ON
    word = _read_effort(fields)
    return None if word is None else word != "none"


def _read_effort(fields: Mapping[str, Any]) -> str | None:
    """Return the word for how much is to be thought; None if the request says nothing of it.

    `none` is for not at all, `auto` for as much as the model wants.
    """
    words = [word for path in _EFFORTS if isinstance(word := at(fields, path), str)]
    words += [word for word in _THINK_WORDS if word == fields.get("think")]
    switch, kind = fields.get("think"), at(fields, "thinking.type")
    if switch is False or kind == "disabled":
        return "none"
    return next(iter(words), "auto" if switch is True or kind in _THINKING_ON else None)


def _read_answer(fields: Mapping[str, Any]) -> Answer | None:
    """Read the form that the answer must have; None if it is free."""
    for path in _FORMATS:
        form = at(fields, path)
        if not _is_json(form):
            continue
        if not isinstance(form, Mapping) or form.get("type") == "json_object":
            return Answer()
        if form.get("type") == "object":
            return Answer(form)
        schema = part_of(form, "json_schema") or form
        return Answer(schema.get("schema"), str(schema.get("name") or "answer"), schema.get("strict"))
    return None


def _is_constrained(fields: Mapping[str, Any]) -> bool:
    """True if a request says the form of its answer, or a grammar of it, in any of the ways that servers know."""
    forms = (at(fields, path) for path in _FORMATS)
    kinds = (form.get("type") if isinstance(form, Mapping) else form for form in forms)
    return any(kind not in (None, "", "text") for kind in kinds) or any(fields.get(key) for key in _GRAMMARS)


def _is_json(format_: Any) -> bool:
    if isinstance(format_, Mapping):  # Ollama takes the schema itself
        return format_.get("type") in ("json_object", "json_schema", "object")
    return bool(format_ == "json")
