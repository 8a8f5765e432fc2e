"""A request made ready for a server that would refuse it, or lose a part of it: small steps in one order.

    request -> billing -> developer -> … -> max_tokens -> what the server is sent

A step is a function. It changes only what a server with its key cannot take, and returns the very
request where there is nothing of that; done twice it changes nothing more. What turn n was given, turn n + 1 is given.
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
"""By the keys of profiles (`profiles/schema.py`), in their order: results are found by ids, what asks for a call is
parted from them, what was folded or put in order may have become a neighbour of its own role, calls are taken apart
after neighbours were joined, and a note is a text."""
DEFAULT_STEPS: Mapping[str, Any] = {"shapes": True}
"""What is done to each request, unless a profile says otherwise."""
BRIDGE_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(("billing", "empty", "turns", "results", "alternate", "text", "names", "something"), True),
    "system": "folded",
    "ids": "short",
}
"""What is done to each request for a server of another API, unless a profile says otherwise."""


def apply_steps(
    request: CanonicalRequest, steps: Mapping[str, Any], context: StepContext
) -> tuple[CanonicalRequest, dict[str, str]]:
    """Take the steps, by name and value, in order; return the same request if none changes it.

    And a line about each that did, by its name.
    """
    lines: dict[str, str] = {}
    for name, step in REQUEST_STEPS.items():
        if value := steps.get(name):
            request, line = step(request, value, context)
            lines |= {name: line} if line else {}
    return request, lines
