"""Read how a reply is to be generated, in the spellings of all APIs and servers: reasoning effort, form of the
answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.apis.fields import count_of, get_at, part_of, text_at
from vtc.apis.layout import BodyLayout
from vtc.events import Answer, GenerationConfig, ThinkingForm

_THINKING_SWITCHES = (
    "chat_template_kwargs.enable_thinking",
    "chat_template_kwargs.thinking",
    "enable_thinking",
    "think",
)
"""Dotted paths that turn thinking on or off: templates on vLLM and SGLang; DashScope, SiliconFlow; Ollama."""
_EFFORTS = ("reasoning_effort", "reasoning.effort", "output_config.effort")
"""Dotted paths of the effort level: OpenAI, OpenRouter, Messages."""
_THINK_WORDS = ("low", "medium", "high")
"""Effort levels in Ollama's `think`."""
_THINKING_ON = ("enabled", "adaptive")
"""Types of `thinking` in Messages that turn it on."""
THINKING_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
"""Token budgets for thinking by effort level: a level stands for every budget up to its own."""
_FORMATS = ("response_format", "text.format", "output_config.format", "output_format", "format")
"""Dotted paths of the answer's form: chat completions, Responses, Messages (two versions), Ollama."""

_GRAMMARS = (
    *("structured_outputs", "grammar", "json_schema", "regex", "ebnf", "grammar_string", "regex_pattern"),
    *("guided_json", "guided_regex", "guided_grammar", "guided_choice", "structural_tag", "guidance"),
)
"""Fields with a grammar: vLLM, SGLang, llama.cpp, TabbyAPI."""


def read(fields: Mapping[str, Any], layout: BodyLayout) -> GenerationConfig:
    """Read the generation settings from the body of a request."""
    return GenerationConfig(
        limits=layout.read_limits(fields),
        thinks=_read_thinking(fields),
        effort=_read_effort(fields),
        thinking=ThinkingForm(_read_budget(fields), _shows_thoughts(fields)),
        answer=_read_answer(fields),
        constrained=_is_constrained(fields),
        wants_choices=fields.get("n") not in (None, 1),
    )


def _read_thinking(fields: Mapping[str, Any]) -> bool | None:
    """Return whether a request turns thinking on or off; None if it does neither."""
    for path in _THINKING_SWITCHES:
        value = get_at(fields, path)
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
    """Return the effort level; None if the request sets none.

    `none` is no reasoning at all, `auto` as much as the model chooses.
    """
    words = [word for path in _EFFORTS if isinstance(word := get_at(fields, path), str)]
    words += [word for word in _THINK_WORDS if word == fields.get("think")]
    switch, kind = fields.get("think"), get_at(fields, "thinking.type")
    if switch is False or kind == "disabled":
        return "none"
    if not words and (budget := _read_budget(fields)):
        return find_effort(budget)
    return next(iter(words), "auto" if switch is True or kind in _THINKING_ON else None)


def _read_budget(fields: Mapping[str, Any]) -> int | None:
    """Return the token budget of Messages for thinking."""
    return count_of(part_of(fields, "thinking"), "budget_tokens") or None


def find_effort(budget: int) -> str:
    """Return the effort level for a token budget."""
    return next((level for level, most in THINKING_BUDGETS.items() if budget <= most), "high")


def _shows_thoughts(fields: Mapping[str, Any]) -> bool:
    """Return True if a request of Messages or of Ollama asks for the reasoning."""
    asks = get_at(fields, "thinking.type") in _THINKING_ON and get_at(fields, "thinking.display") != "omitted"
    return asks or bool(fields.get("think"))


def _read_answer(fields: Mapping[str, Any]) -> Answer | None:
    """Read the required form of the answer; None if it is free."""
    for path in _FORMATS:
        form = get_at(fields, path)
        if not _is_json(form):
            continue
        if not isinstance(form, Mapping) or form.get("type") == "json_object":
            return Answer()
        if form.get("type") == "object":
            return Answer(form)
        schema = part_of(form, "json_schema") or form
        about = text_at(schema, "description")
        return Answer(schema.get("schema"), str(schema.get("name") or "answer"), schema.get("strict"), about)
    return None


def _is_constrained(fields: Mapping[str, Any]) -> bool:
    """Return True if a request sets the form or a grammar of its answer, in any server's spelling."""
    forms = (get_at(fields, path) for path in _FORMATS)
    kinds = (form.get("type") if isinstance(form, Mapping) else form for form in forms)
    return any(kind not in (None, "", "text") for kind in kinds) or any(fields.get(key) for key in _GRAMMARS)


def _is_json(format_: Any) -> bool:
    if isinstance(format_, Mapping):  # Ollama accepts the schema itself
        return format_.get("type") in ("json_object", "json_schema", "object")
    return bool(format_ == "json")
