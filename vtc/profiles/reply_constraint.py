"""Grammars for servers that constrain the reply.

A grammar never replaces the response format of the client, and never applies to reasoning: a grammar that begins in
the middle of the reasoning would cut it off.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from vtc.dialects.constrain.constraint import Demand, Kind, render_constraint
from vtc.dialects.syntax.description import Description
from vtc.events import Tool
from vtc.profiles.plan import Plan
from vtc.profiles.schema import ConstraintForm

GRAMMAR_KINDS: dict[ConstraintForm, Kind] = {
    "structural_tag": "structural_tag",
    "gbnf": "gbnf",
    "gbnf_string": "gbnf",
    "gbnf_format": "gbnf",
    "json_schema": "json_schema",
}
"""The kind of grammar in each form of a request."""
assert set(GRAMMAR_KINDS) == {*get_args(ConstraintForm.__value__)}


class ReplyConstraint(msgspec.Struct, frozen=True):
    """The parts of a reply's grammar."""

    form: ConstraintForm
    dialect: Description
    tools: tuple[Tool, ...]
    demand: Demand

    def render(self) -> Any:
        """Render the grammar, as text or plain data. Raises `Inexpressible` with the reason if there is none."""
        return render_constraint(GRAMMAR_KINDS[self.form], self.dialect, self.tools, self.demand)


def plan_constraint(form: ConstraintForm, plan: Plan, *, has_form: bool) -> tuple[ReplyConstraint | None, str]:
    """Plan the grammar of a request whose tools are in the prompt; return it, or None, with a line that explains why.

    The line is empty if nobody would expect a grammar. `has_form` is true if the request has its own response format.
    """
    protocol, wish, demanded = plan.protocol, plan.stack.settings.constrain, plan.demands
    if protocol.write is None or not protocol.prompt_tools or not plan.offered or wish == "off":
        return None, ""
    if wish == "required" and not demanded:
        return None, "no grammar: no call is demanded (vtc_constrain=auto constrains calls in free text, too)"
    if protocol.write.unconstrained:
        return None, f"no grammar: dialect {protocol.write.name}: {protocol.write.unconstrained}"
    if has_form:
        return None, "no grammar: the request says the form of its answer itself"
    if plan.reading.thinking.begins_inside and not form.startswith("gbnf"):
        return None, "no grammar: replies begin with thoughts, and the server may not wait for their end"
    extent = "calls alone may be written" if demanded else "calls in free text are held to it"
    line = f"a grammar of {protocol.write.name} is to be sent ({form}): {extent}"
    return make_constraint(form, protocol.write, plan), line


def make_constraint(form: ConstraintForm, dialect: Description, plan: Plan) -> ReplyConstraint:
    """Collect the parts of the reply's grammar."""
    thinking = plan.reading.thinking
    demand = Demand(
        calls_only=plan.demands,
        allows_multiple=plan.protocol.max_calls != 1,
        reasoning_tags=() if thinking.never else thinking.tags,
        reasoning_closers=tuple(close for _, close in thinking.tags[:1] if thinking.may_begin_inside),
    )
    tools = tuple(tool for tool in plan.offered if tool.name == plan.tool_choice) or plan.offered
    return ReplyConstraint(form, dialect, tools, demand)
