"""Give an exchange the reasoning and the prompts that earlier exchanges of its client and model stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from vtc.apis import Request
from vtc.apis.seals import SealKey
from vtc.events import Message, Tool
from vtc.exchange.remembering.conversation import Conversation
from vtc.exchange.remembering.kept_conversation import KeptConversation
from vtc.exchange.remembering.last_prompts import LastPrompts, build_prompt
from vtc.exchange.remembering.reasoning import AddReasoning, ReasoningStore
from vtc.exchange.remembering.responses import ResponseStore
from vtc.profiles.matching import Facts
from vtc.profiles.memory import HeldQuirks, Memory, digest_texts, merge_learned
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner

type MakePlan = Callable[[Mapping[str, Any]], PlannedExchange]
"""Makes the plan of a request, given the quirks that its server revealed since it arrived."""


class PlannedExchange(NamedTuple):
    """The plan of an exchange, and the results of earlier exchanges."""

    plan: Plan
    history: History | None = None
    replan: MakePlan | None = None
    """Makes a new plan from quirks learned meanwhile; None if no rejection changes the plan."""
    kept: KeptConversation | None = None
    """The conversation, if the server keeps it."""


class History:
    """Gives one exchange the results of earlier ones, and stores its own for later ones."""

    def __init__(self, memory: Memory, facts: Facts, plan: Plan, request: Request) -> None:
        whose, model = facts.whose, plan.server_model or request.model
        is_structured = plan.protocol.client_text is None
        reminds = bool(plan.stack.silences)
        self.reasoning: ReasoningStore | None = None
        """None if no reasoning is restored."""
        if (reminds or (is_structured and plan.protocol.tools)) and not request.generation.wants_choices:
            self.reasoning = ReasoningStore(
                memory,
                whose,
                model,
                recalls=plan.stack.recalls and is_structured,
                as_text=plan.protocol.write is not None and is_structured,
                reminds=reminds,
            )
        self.responses = ResponseStore(memory, whose)
        self._prompts = LastPrompts(memory, whose, model, facts.secrets)
        self._skips_billing = plan.stack.server.skips_billing

    def restore_conversation(
        self, request: Request, add: AddReasoning, seals: SealKey | None, lines: list[str]
    ) -> Sequence[Message]:
        """Return the conversation with the model's reasoning (`ReasoningStore.restore`)."""
        return self.reasoning.restore(request, add, seals, lines) if self.reasoning else request.messages

    def record_prompt(self, messages: Sequence[Message], tools: Sequence[Tool], request: Request) -> dict[str, Any]:
        """Store the outgoing prompt; return the part of the last one that it preserves (`Report.prefix`)."""
        return self._prompts.record(
            build_prompt(messages, tools, request.interpret_part, skips_billing=self._skips_billing)
        )


def make_plan_maker(
    planner: Planner, facts: Facts, request: Request, memory: Memory | None, seed: str = ""
) -> MakePlan:
    """Return a function that plans for these facts, and again when new quirks change the plan.

    `seed` differs for every exchange.
    """

    key = cache(lambda: Conversation(request.messages, digest_texts(*facts.whose, facts.model)).opening)

    def make_plan(new_quirks: Mapping[str, Any]) -> PlannedExchange:
        if not memory:
            plan = planner.plan(facts, request, None, new_quirks)
            return PlannedExchange(plan, replan=make_plan, kept=find_kept(plan))
        held = HeldQuirks(memory.held, key, memory.clock)
        plan = planner.plan(facts, request, memory, merge_learned(held.list_known(), new_quirks))
        plan = msgspec.structs.replace(plan, quirks=plan.quirks._replace(held=held))
        return PlannedExchange(plan, History(memory, facts, plan, request), make_plan, find_kept(plan))

    def find_kept(plan: Plan) -> KeptConversation | None:
        if not (fields := plan.stack.server.conversation):
            return None
        # Other tools need another prompt, which the server has only at the beginning of a conversation.
        tools = [tool.name for tool in plan.offered] if plan.protocol.prompt_tools else []
        owner = digest_texts(*facts.whose, plan.server_model or request.model, *tools)
        return KeptConversation(memory or Memory(), owner, fields, request, seed)

    return make_plan
