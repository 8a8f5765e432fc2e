"""Where a reply thinks: which tags stand around it, and whether the prompt opened the first of them already.

Many templates end the prompt with `<think>`, so that only `</think>` shows in the reply. Whether one did is known, in
this order, from the request's own switches, from what this upstream did with this model before, from the server's
profile (some part the thinking off themselves) and from the model's profile. What it did before counts for the client
that saw it, and only if several replies agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from vtc.profiles.matching import Facts, value_at
from vtc.profiles.memory import Learned, Memory
from vtc.profiles.plan import Thinking
from vtc.profiles.schema import ModelProfile, ServerProfile
from vtc.scrub import CREDENTIALS

COMMON_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"))
"""Tags that models of any family write; others are read only for the models whose profiles name them."""
SWITCHES = ("chat_template_kwargs.enable_thinking", "chat_template_kwargs.thinking", "enable_thinking", "think")
"""Dotted paths of what turns thinking on or off: templates on vLLM and SGLang; DashScope, SiliconFlow; Ollama."""
EFFORTS = ("reasoning_effort", "reasoning.effort")
"""Those of words that say how much; OpenAI, OpenRouter."""


def thinking(
    model: ModelProfile | None,
    server: ServerProfile,
    facts: Facts,
    memory: Memory | None,
    *,
    text_client: bool,
) -> Thinking:
    """Decide how the reasoning of a reply is read; `model` is None if it is not known.

    A model that is not known keeps its tags where they are, but no call between them is one. Of one whose prompt is not
    known to open the tag, a whole reply shows it, and what it shows counts for the next stream.
    """
    others = () if text_client else COMMON_TAGS  # such clients read tags that they prompt for themselves
    own = model.reasoning if model else None
    tags = tuple(dict.fromkeys([(own.open, own.close), *others])) if own else others
    to: Literal["reasoning_content", "keep", "drop"] = own.to if own else "keep"
    asked = asked_to_think(facts.body)
    prefilled = own is not None and (own.prefilled is True or (own.prefilled == "asked" and bool(asked)))
    never = model is not None and own is None
    if asked is False or never or not tags or (server.parts_reasoning and not prefilled):
        return Thinking(tags, to)
    learned = memory.learned(*_whose(facts), facts.model, str(asked)) if memory is not None else Learned()
    begins_inside = learned.begins_inside
    if begins_inside is None:
        begins_inside = prefilled and not server.parts_reasoning
    return Thinking(tags, to, prefilled, begins_inside, may_show=not prefilled, learned=learned)


def _whose(facts: Facts) -> tuple[str, ...]:
    """Tell one upstream, as one client saw it, from all others: no reply to a client counts for another one."""
    shown = (facts.headers.get(name, "") for name in CREDENTIALS)
    return (facts.host, str(facts.port), facts.path, facts.user_agent, *shown)


def asked_to_think(body: Mapping[str, Any]) -> bool | None:
    """Return what a request says about thinking: true, false, or None if it says nothing."""
    for path in SWITCHES:
        value = value_at(body, path)
        if isinstance(value, bool):
            return value
    said = value_at(body, "thinking")
    kind = said.get("type") if isinstance(said, Mapping) else said
    if isinstance(kind, bool):
        return kind
    if kind in ("enabled", "disabled", "adaptive"):
        return bool(kind != "disabled")
    for path in EFFORTS:
        effort = value_at(body, path)
        if isinstance(effort, str):
            return effort != "none"
    return None
