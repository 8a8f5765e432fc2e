"""Whether a server is told by which grammar its model must write, and of what.

Never over what the client says of its answer's form, and never while the model thinks: a grammar that begins in the
middle of its thoughts would cut them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from vtc.dialects.constrain.constraint import Demand, Kind, written
from vtc.dialects.syntax.description import Description
from vtc.events import Tool
from vtc.profiles.plan import Thinking
from vtc.profiles.ready import Form
from vtc.profiles.tool_protocol import Asked, ToolProtocol

type Wish = Literal["off", "required", "auto"]
"""When the user wants it: never, where a call is demanded, or for all requests with tools."""
KINDS: dict[Form, Kind] = {
    "structural_tag": "structural_tag",
    "gbnf": "gbnf",
    "gbnf_string": "gbnf",
    "gbnf_format": "gbnf",
    "json_schema": "json_schema",
}
"""What each form of a request holds."""
assert set(KINDS) == {*get_args(Form.__value__)}


class Constraining(msgspec.Struct, frozen=True):
    """What the grammar of a reply is made of."""

    form: Form
    dialect: Description
    tools: tuple[Tool, ...]
    demand: Demand

    def written(self) -> Any:
        """Write the grammar: its text, or plain data. Raises `Inexpressible`, which says why there is none."""
        return written(KINDS[self.form], self.dialect, self.tools, self.demand)


def constraining(
    form: Form,
    wish: Wish,
    request: Asked,
    protocol: ToolProtocol,
    offered: Sequence[Tool],
    tool_choice: str,
    thinking: Thinking,
) -> tuple[Constraining | None, str]:
    """Decide about a request whose tools stand in the prompt; None if it is left alone, and why for people.

    Nothing is said where nobody would expect a grammar.
    """
    demanded = tool_choice not in ("auto", "none")
    if protocol.write is None or not protocol.prompt_tools or not offered or wish == "off":
        return None, ""
    if wish == "required" and not demanded:
        return None, "no grammar: no call is demanded (vtc_constrain=auto constrains calls in free text, too)"
    if protocol.write.unconstrained:
        return None, f"no grammar: dialect {protocol.write.name}: {protocol.write.unconstrained}"
    if request.constrained:
        return None, "no grammar: the request says the form of its answer itself"
    if thinking.begins_inside and not form.startswith("gbnf"):
        return None, "no grammar: replies begin with thoughts, and the server may not wait for their end"
    found = held_to(form, protocol.write, offered, tool_choice, thinking, several=protocol.max_calls != 1)
    told = "calls alone may be written" if demanded else "calls in free text are held to it"
    return found, f"a grammar of {protocol.write.name} is to be sent ({form}): {told}"


def held_to(
    form: Form,
    dialect: Description,
    offered: Sequence[Tool],
    tool_choice: str,
    thinking: Thinking,
    *,
    several: bool = True,
) -> Constraining:
    """Say what the grammar of a reply is made of."""
    demand = Demand(
        demanded=tool_choice not in ("auto", "none"),
        several=several,
        thoughts=() if thinking.never else thinking.tags,
        begun=tuple(close for _, close in thinking.tags[:1] if thinking.may_begin_inside),
    )
    tools = tuple(tool for tool in offered if tool.name == tool_choice) or tuple(offered)
    return Constraining(form, dialect, tools, demand)
