"""The tool that the name of a call means."""

from __future__ import annotations

from collections.abc import Mapping

from vtc.dialects.arguments import values
from vtc.dialects.arguments.values import Schema
from vtc.dialects.syntax import tool_names
from vtc.events import Tool


class NamedTool:
    """A name as the model wrote it, empty as long as it is inside JSON, and the offered tool that it means."""

    __slots__ = ("declared", "schema", "tool", "tools", "written")

    def __init__(self, written: str, tools: Mapping[str, Tool]) -> None:
        self.written = written
        self.tools = tools
        """All that are offered."""
        self.tool = self.offered(written)
        """None if no such tool is offered."""
        self.schema: Schema = self.tool.parameters if self.tool else {}
        self.declared: Mapping[str, Schema] = values.properties(self.schema)
        """The tool's parameters."""

    def offered(self, written: str) -> Tool | None:
        """Find the tool that a name means."""
        return self.tools.get(tool_names.resolve(written, self.tools) or "")

    def without_key(self) -> tuple[str, str] | None:
        """Part a tool's name and the name of one of its parameters that stand together; None if they do not.

        GLM leaves the key's opening tag out: `<tool_call>bashcommand</arg_key><arg_value>ls`.
        """
        found = [
            (tool.name, key)
            for tool in self.tools.values()
            if self.written.startswith(tool.name)
            and (key := self.written[len(tool.name) :]) in values.properties(tool.parameters)
        ]
        return found[0] if len(found) == 1 and self.tool is None else None
