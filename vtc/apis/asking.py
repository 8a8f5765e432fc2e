"""What a request asks for besides an answer, wherever its API or its server says so: to think, to answer in JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vtc.apis.fields import part_of
from vtc.events import Answer

_SWITCHES = ("chat_template_kwargs.enable_thinking", "chat_template_kwargs.thinking", "enable_thinking", "think")
"""Dotted paths of what turns thinking on or off: templates on vLLM and SGLang; DashScope, SiliconFlow; Ollama."""
_EFFORTS = ("reasoning_effort", "reasoning.effort", "output_config.effort")
"""Those of words that say how much; OpenAI, OpenRouter; Messages."""
_THINK = ("low", "medium", "high")
"""The words that Ollama has for the same, in `think`."""
_ON = ("enabled", "adaptive")
"""How `thinking` of Messages turns it on."""
_FORMATS = ("response_format", "text.format", "output_config.format", "output_format", "format")
"""Those of the form of the answer: chat completions, Responses, Messages (and before), Ollama."""

_GRAMMARS = (
    *("structured_outputs", "grammar", "json_schema", "regex", "ebnf", "grammar_string", "regex_pattern"),
    *("guided_json", "guided_regex", "guided_grammar", "guided_choice", "structural_tag", "guidance"),
)
"""Those that hold a grammar: vLLM, SGLang, llama.cpp, TabbyAPI."""


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
    if kind in (*_ON, "disabled"):
        return kind in _ON
    said = effort(fields)
    return None if said is None else said != "none"


def effort(fields: Mapping[str, Any]) -> str | None:
    """Return the word for how much is to be thought; None if the request says nothing of it.

    `none` is for not at all, `auto` for as much as the model wants.
    """
    words = [word for path in _EFFORTS if isinstance(word := _at(fields, path), str)]
    words += [word for word in _THINK if word == fields.get("think")]
    switch, kind = fields.get("think"), _at(fields, "thinking.type")
    if switch is False or kind == "disabled":
        return "none"
    return next(iter(words), "auto" if switch is True or kind in _ON else None)


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
    if isinstance(most := found.get("max_tokens"), int) and most < 0:
        del found["max_tokens"]  # as much as there is room for
    return {**found, "stop": [found["stop"]]} if isinstance(found.get("stop"), str) else found


def untold(fields: Mapping[str, Any], limits: Mapping[str, Sequence[str]], carried: Collection[str]) -> list[str]:
    """List the fields that other APIs are not told: dotted paths in objects of which any part is known."""
    known = {*carried, *(path for at in limits.values() for path in at)}
    inside = {path.partition(".")[0] for path in known if "." in path}
    found: list[str] = []
    for key, value in fields.items():
        if key not in inside:
            found += [key] if key not in known and not _is_nothing(value) else []
        elif isinstance(value, Mapping):
            said = (f"{key}.{one}" for one, part in value.items() if not _is_nothing(part))
            found += [path for path in said if path not in known]
    return found


def _is_nothing(value: object) -> bool:
    return value is None or value == [] or value == {}


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


def replaced(
    fields: Mapping[str, Any], limits: Mapping[str, Any], paths: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Write limits and sampling where a request says each of them, or else where its API does: the fields at its top.

    Those for which the API has no place are left.
    """
    found: dict[str, Any] = {}
    for name, value in limits.items():
        said = [path for path in paths.get(name, ()) if _at(fields, path) is not None]
        for path in said or paths.get(name, ())[:1]:
            top, _, key = path.partition(".")
            inside = found.get(top, fields.get(top))
            found[top] = {**(inside if isinstance(inside, Mapping) else {}), key: value} if key else value
    return found


def constrained(fields: Mapping[str, Any]) -> bool:
    """True if a request says the form of its answer, or a grammar of it, in any of the ways that servers know."""
    forms = (_at(fields, path) for path in _FORMATS)
    said = (one.get("type") if isinstance(one, Mapping) else one for one in forms)
    return any(one not in (None, "", "text") for one in said) or any(fields.get(key) for key in _GRAMMARS)


def _is_json(format_: Any) -> bool:
    if isinstance(format_, Mapping):  # Ollama takes the schema itself
        return format_.get("type") in ("json_object", "json_schema", "object")
    return bool(format_ == "json")


def _at(fields: Any, path: str) -> Any:
    for key in path.split("."):
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    return fields
