"""Prepare a request for a server that would reject it or lose a part of it, by small steps in a fixed order.

    request -> billing -> developer -> … -> max_tokens -> request for the server

A step is a function. It changes only the parts that a server with its key cannot accept, and returns the same request
object if there are none. Steps are idempotent, and deterministic across turns: a message that was changed in one turn
is changed identically in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.events import MAX_TOKENS, CanonicalRequest
from vtc.exchange.asking.steps.calls import after_results, ids, names, results, shapes, signatures
from vtc.exchange.asking.steps.limits import context, force_stream, max_tokens, thinking
from vtc.exchange.asking.steps.messages import (
    RequestStep,
    StepContext,
    alternate,
    billing,
    developer,
    empty,
    images,
    nulls,
    single,
    something,
    system,
    text,
    turns,
    user_last,
)
from vtc.exchange.asking.steps.schemas import schemas
from vtc.exchange.asking.steps.tools import choice, constrain, declare_called_tools, strict

__all__ = ["BRIDGE_STEPS", "DEFAULT_STEPS", "REQUEST_STEPS", "StepContext", "apply_steps"]

REQUEST_STEPS: Mapping[str, RequestStep] = {
    "shapes": shapes,
    "billing": billing,
    "developer": developer,
    "images": images,
    "system": system,
    "empty": empty,
    "turns": turns,
    "ids": ids,
    "results": results,
    "choice": choice,
    "after_results": after_results,
    "something": something,
    "user_last": user_last,
    "alternate": alternate,
    "single": single,
    "nulls": nulls,
    "text": text,
    "signatures": signatures,
    "thinking": thinking,
    "streamed": force_stream,
    "declared": declare_called_tools,
    "schemas": schemas,
    "strict": strict,
    "names": names,
    "constrain": constrain,
    "context": context,
    MAX_TOKENS: max_tokens,
}
"""Steps by the keys of profiles (`profiles/schema.py`), in order. Results are matched by ids, so `ids` precedes
`results`. A demand for a call is separated from results. Folded or reordered messages may become neighbours of the
same role. Calls are split after neighbours are joined. Notes are texts, so `images` precedes `text`."""
DEFAULT_STEPS: Mapping[str, Any] = {"shapes": True}
"""Steps for every request, unless a profile disables them."""
BRIDGE_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(("billing", "empty", "turns", "results", "alternate", "text", "names", "something"), True),
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
