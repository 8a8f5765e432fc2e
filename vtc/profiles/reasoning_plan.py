"""Reasoning: the tags around it, and whether the prompt already opened the first tag.

Many templates end the prompt with `<think>`, so that only `</think>` appears in the reply. Whether that is so follows,
in this order, from the request's own switches, from earlier replies of this server and model, from the server's profile
(some servers separate the reasoning themselves) and from the model's profile. Earlier replies count only for the client
that received them, and only if enough of them agree.
"""

from __future__ import annotations

from vtc.apis.bridge import REASONING_FIELDS, ReasoningField
from vtc.dialects.reading.context import ReasoningTarget
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Learned, Memory
from vtc.profiles.plan import Thinking
from vtc.profiles.schema import ModelProfile, ServerProfile

COMMON_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"))
"""Tags that models of any family write; others are read only for models whose profiles name them."""


def plan_reasoning(
    model: ModelProfile | None,
    server: ServerProfile,
    facts: Facts,
    memory: Memory | None,
    *,
    asked: bool | None = None,
    text_client: bool = False,
) -> Thinking:
    """Decide how the reasoning of a reply is read; `model` is None if it is not known.

    `asked` is the request's switch for thinking: true, false, or None without one.

    An unknown model reasons between tags if its reply begins with them; elsewhere they stay in the text, but calls
    between them never count. If the prompt is not known to open the tag, a whole reply shows whether it did, and the
    observation applies to the next stream.
    """
    others = () if text_client else COMMON_TAGS  # such clients parse tags that they prompt for themselves
    own = model.reasoning if model else None
    tags = tuple(dict.fromkeys([*((own.open, end) for end in (own.close, *own.ends)), *others])) if own else others
    to: ReasoningTarget = own.to if own else "opened" if model is None and others else "keep"
    prefilled = own is not None and (own.prefilled is True or (own.prefilled == "asked" and bool(asked)))
    never = model is not None and own is None
    if asked is False or never or not tags or (server.parts_reasoning and not prefilled):
        return Thinking(tags, to, never=never or asked is False)
    learned = memory.get_learned(*facts.whose, facts.model, str(asked)) if memory is not None else Learned()
    begins_inside = learned.begins_inside
    if begins_inside is None:
        begins_inside = prefilled and not server.parts_reasoning
    return Thinking(tags, to, prefilled, begins_inside, may_show=not prefilled, learned=learned)


def find_reasoning_field(learned: Learned) -> ReasoningField:
    """Return the field that last carried reasoning in this server's replies."""
    return next((field for field in REASONING_FIELDS if field == learned.thoughts), REASONING_FIELDS[0])
