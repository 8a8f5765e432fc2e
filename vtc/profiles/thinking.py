"""Where a reply thinks: which tags stand around it, and whether the prompt opened the first of them already.

Many templates end the prompt with `<think>`, so that only `</think>` shows in the reply. Whether one did is known, in
this order, from the request's own switches, from what this upstream did with this model before, from the server's
profile (some part the thinking off themselves) and from the model's profile. What it did before counts for the client
that saw it, and only if several replies agree.
"""

from __future__ import annotations

from typing import Literal

from vtc.apis.crossing import FIELDS, Field
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Learned, Memory
from vtc.profiles.plan import Thinking
from vtc.profiles.schema import ModelProfile, ServerProfile

COMMON_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"))
"""Tags that models of any family write; others are read only for the models whose profiles name them."""


def thinking(
    model: ModelProfile | None,
    server: ServerProfile,
    facts: Facts,
    memory: Memory | None,
    *,
    asked: bool | None = None,
    text_client: bool = False,
) -> Thinking:
    """Decide how the reasoning of a reply is read; `model` is None if it is not known.

    `asked` is what the request says about thinking: true, false, or None if it says nothing.

    A model that is not known keeps its tags where they are, but no call between them is one. Of one whose prompt is not
    known to open the tag, a whole reply shows it, and what it shows counts for the next stream.
    """
    others = () if text_client else COMMON_TAGS  # such clients read tags that they prompt for themselves
    own = model.reasoning if model else None
    tags = tuple(dict.fromkeys([(own.open, own.close), *others])) if own else others
    to: Literal["reasoning_content", "keep", "drop"] = own.to if own else "keep"
    prefilled = own is not None and (own.prefilled is True or (own.prefilled == "asked" and bool(asked)))
    never = model is not None and own is None
    if asked is False or never or not tags or (server.parts_reasoning and not prefilled):
        return Thinking(tags, to, never=never or asked is False)
    learned = memory.learned(*facts.whose, facts.model, str(asked)) if memory is not None else Learned()
    begins_inside = learned.begins_inside
    if begins_inside is None:
        begins_inside = prefilled and not server.parts_reasoning
    return Thinking(tags, to, prefilled, begins_inside, may_show=not prefilled, learned=learned)


def told_thoughts(facts: Facts, memory: Memory | None) -> Field:
    """Tell the field in which an upstream told last what a model thought."""
    told = memory.learned(*facts.whose, facts.model, "thoughts").thoughts if memory is not None else ""
    return next((one for one in FIELDS if one == told), FIELDS[0])
