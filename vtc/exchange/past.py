"""What is kept of a client's past exchanges with a model, for one that begins now: its thoughts, its last prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vtc.apis import Request
from vtc.events import Message, Tool
from vtc.exchange.prefix import LastPrompts
from vtc.exchange.prompt import prompt
from vtc.exchange.thoughts import PastThoughts
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner

type Planned = Callable[[Mapping[str, Any]], tuple[Plan, Past | None]]
"""Decides about a request, given the steps that its server taught since it came."""


class Past:
    """Gives one exchange what it needs of those before it, and keeps what those after it need."""

    def __init__(self, memory: Memory, facts: Facts, plan: Plan, request: Request) -> None:
        of, model = facts.whose, plan.server_model or request.model
        native = plan.request.client_text is None
        recalls, as_text = plan.request.recalls, plan.request.write is not None and native
        kept = native and bool(plan.tools) and not request.several
        self.thoughts = PastThoughts(memory, of, model, recalls=recalls, as_text=as_text) if kept else None
        """None where nothing is given back to the model."""
        self._prompts = LastPrompts(memory, of, model, facts.secrets)
        self._skips_billing = plan.request.skips_billing

    def conversation(self, request: Request, field: str | None, told: list[str]) -> Sequence[Message]:
        """Return the conversation, with what the model thought (`PastThoughts.given_back`)."""
        return self.thoughts.given_back(request, field, told) if self.thoughts else request.messages

    def kept_prefix(self, messages: Sequence[Message], tools: Sequence[Tool], request: Request) -> dict[str, Any]:
        """Keep the prompt that leaves; return what it keeps of the last one (`Report.prefix`)."""
        return self._prompts.left(prompt(messages, tools, request.meaning, skips_billing=self._skips_billing))


def planning(planner: Planner, facts: Facts, request: Request, memory: Memory | None) -> Planned:
    """Make what decides about a request with these facts, once or, when its server teaches what that changes, anew."""

    def planned(taught: Mapping[str, Any]) -> tuple[Plan, Past | None]:
        plan = planner.plan(facts, request, memory, taught)
        return plan, Past(memory, facts, plan, request) if memory else None

    return planned
