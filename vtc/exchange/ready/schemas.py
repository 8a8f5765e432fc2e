"""Schemas of tools, for servers that make a grammar of each: one that is beyond them takes all tools with it.

What only narrows is said in the description, where the model still reads it; what a call must fit is checked here,
against the schema that the client sent. `plain` is for servers that refuse keys besides: `$schema`, `const`,
`additionalProperties`.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Tool
from vtc.exchange.ready.given import Given, counted
from vtc.exchange.ready.simple_schema import Simple

MOST_PARTS = 12000
"""Schemas within those of all tools that are looked at."""
MOST_TOLD = 6
"""Tools that are named in the report."""


def schemas(asked: Asked, value: Any, _given: Given) -> tuple[Asked, str]:
    """Simplify the schemas that say more than types, names and choices."""
    tools: list[Tool] = []
    told: list[str] = []
    left = MOST_PARTS
    for tool in asked.tools:
        simple = Simple(tool.parameters, plain=value == "plain", most=left)
        parameters = simple.of(tool.parameters)
        left -= simple.parts
        if parameters is not tool.parameters:
            told.append(f"{tool.name}: {', '.join([*simple.gone])}" if simple.gone else tool.name)
            tool = with_fields(tool, parameters=parameters)
        tools.append(tool)
    if not told:
        return asked, ""
    shown = "; ".join(told[:MOST_TOLD]) + "; …" * (len(told) > MOST_TOLD)
    return replace(asked, tools=tuple(tools)), f"{counted(len(told), 'schema')} simplified ({shown})"
