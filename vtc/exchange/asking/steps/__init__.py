"""Prepare a request for a server that would reject it or lose a part of it, by small steps in a fixed order.

    request -> billing -> developer -> … -> max_tokens -> request for the server

A step is a function. It changes only the parts that a server with its key cannot accept, and returns the same request
object if there are none. Steps are idempotent, and deterministic across turns: a message that was changed in one turn
is changed identically in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.apis.layout import MAX_TOKENS
from vtc.events import CanonicalRequest
from vtc.exchange.asking.steps.calls import (
    assign_ids,
    insert_after_results,
    name_results,
    pair_results,
    rename_tools,
    sign_calls,
)
from vtc.exchange.asking.steps.limits import drop_effort, force_stream, lower_max_tokens, set_context
from vtc.exchange.asking.steps.messages import (
    RequestStep,
    StepContext,
    add_first_message,
    alternate_roles,
    drop_billing,
    drop_empty_messages,
    end_with_user,
    join_text_parts,
    join_turns,
    move_system_messages,
    place_cache_marks,
    replace_developer_role,
    replace_images,
    replace_nulls,
    split_calls,
)
from vtc.exchange.asking.steps.schemas import close_answer, rewrite_schemas
from vtc.exchange.asking.steps.tools import declare_called_tools, declare_strict, express_choice, send_grammar

__all__ = ["BRIDGE_STEPS", "DEFAULT_STEPS", "REQUEST_STEPS", "StepContext", "apply_steps"]

REQUEST_STEPS: Mapping[str, RequestStep] = {
    "shapes": name_results,
    "billing": drop_billing,
    "developer": replace_developer_role,
    "images": replace_images,
    "system": move_system_messages,
    "empty": drop_empty_messages,
    "turns": join_turns,
    "ids": assign_ids,
    "results": pair_results,
    "choice": express_choice,
    "after_results": insert_after_results,
    "something": add_first_message,
    "user_last": end_with_user,
    "alternate": alternate_roles,
    "single": split_calls,
    "nulls": replace_nulls,
    "text": join_text_parts,
    "signatures": sign_calls,
    "cache_marks": place_cache_marks,
    "thinking": drop_effort,
    "streamed": force_stream,
    "declared": declare_called_tools,
    "schemas": rewrite_schemas,
    "answer": close_answer,
    "strict": declare_strict,
    "names": rename_tools,
    "constrain": send_grammar,
    "context": set_context,
    MAX_TOKENS: lower_max_tokens,
}
"""Steps by the keys of profiles (`profiles/schema.py`), in order. Results are matched by ids, so `ids` precedes
`results`. A demand for a call is separated from results. Folded or reordered messages may become neighbours of the
same role. Calls are split after neighbours are joined. Notes are texts, so `images` precedes `text`."""
DEFAULT_STEPS: Mapping[str, Any] = {"shapes": True}
"""Steps for every request, unless a profile disables them."""
BRIDGE_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("billing", "empty", "turns", "results", "alternate", "text", "names", "something", "answer"),
            "cache_marks",
        ),
        True,
    ),
    "system": "folded",
    "ids": "short",
}
"""Steps for every request over a bridge, unless a profile disables them."""


def apply_steps(
    request: CanonicalRequest, steps: Mapping[str, Any], context: StepContext
) -> tuple[CanonicalRequest, dict[str, str]]:
    """Apply the steps, by name and value, in order; return the same request if none changes it.

    Also return one report line for each step that changed it, by name.
    """
    lines: dict[str, str] = {}
    for name, step in REQUEST_STEPS.items():
        if value := steps.get(name):
            request, line = step(request, value, context)
            lines |= {name: line} if line else {}
    return request, lines
