"""The example of a call in a prompt, as the dialect writes it, with nothing in it that means anything.

Small models copy an example as it stands. Values that look real are carried out, and the tool that is shown is called
more often than it should (benchmarks/README.md has what was measured). So every value is `...`, and so are the names
where the call is a JSON object, whose keys say what is what. Elsewhere models need to see where real names go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import dumped
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.writing.calls import write_calls
from vtc.events import Tool, ToolCall

BLANK = "..."
ID = "a1b2c3d4e5"
"""As long as the ids of the dialect that writes them into its calls (Solar)."""
NAMELESS = Tool(BLANK, parameters={"properties": {BLANK: {"type": "string"}}})
ENOUGH = 2
"""Texts that show how one argument follows another."""


def example(dialect: Description, tools: Sequence[Tool]) -> str:
    """Write a call of no tool, or of the first one that shows two texts, or as many as there are.

    Empty if there are no tools.
    """
    if not tools:
        return ""
    is_object = pattern.body(dialect.calls[0]) == "json"
    tool = NAMELESS if is_object else max(tools, key=_fitness)
    return written(dialect, tool, dict.fromkeys(shown(tool), BLANK))


def written(dialect: Description, tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Write a call of a tool with blanks or plain words, which every dialect reads back as what they are.

    So that need not be proved for each set of tools.
    """
    # Where an id is no part of the text, as in JSON, no model has to think of one.
    call = ToolCall(tool.name, dumped(arguments), ID if "{id}" in dialect.calls[0] else "")
    return write_calls([call], replace(dialect, json_body=False), {tool.name: tool}).strip()


def _fitness(tool: Tool) -> int:
    """Count the texts in its call, but no more than enough, less the values that are no text."""
    declared, names = values.properties(tool.parameters), shown(tool)
    texts = sum(values.is_text(declared[name], tool.parameters) for name in names)
    return min(texts, ENOUGH) - (len(names) - texts)


def shown(tool: Tool) -> list[str]:
    """The parameters that it requires, or all that it has if it requires none."""
    declared, required = values.properties(tool.parameters), values.required(tool.parameters)
    return [name for name in declared if name in required] or list(declared)
