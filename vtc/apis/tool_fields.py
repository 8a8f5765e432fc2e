"""Reading the fields about tools in the body of a request: their declarations, and the choice among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from vtc.apis.fields import part_of
from vtc.apis.layout import BodyLayout
from vtc.events import Tool, ToolOffer
from vtc.json_text import encode_json

SINGLE_TOOL_TYPES = ("tool", "function", "custom", "namespace")
"""The types of a choice of one tool; other types choose none, or a tool that the server runs."""


class ToolFields(ABC):
    """The fields about tools in a decoded body."""

    def __init__(self, fields: Mapping[str, Any], layout: BodyLayout) -> None:
        self.fields = fields
        self.layout = layout

    @abstractmethod
    def _read_tools(self) -> Sequence[Tool]:
        """Decode the tools that are functions."""

    @staticmethod
    def get_name(entry: Any) -> str | None:
        """Return the name in a declaration."""
        name = entry.get("name")
        return name if isinstance(name, str) else None

    def read_offer(self) -> ToolOffer:
        """Decode the tools, and which calls are allowed."""
        layout, read = self.layout, [*map(_intern_tool, self._read_tools())]
        by_name: dict[str, Tool] = {}
        for tool in read:
            by_name.setdefault(tool.name, tool)  # servers reject two tools of one name
        declared = [name for entries in self.find_declarations() for name in self.list_names(entries)]
        choice, allowed = self._read_choice((layout.choice and self.fields.get(layout.choice)) or "auto", declared)
        return ToolOffer(
            tools=[tool for name, tool in by_name.items() if allowed is None or name in allowed],
            declared=declared,
            redeclared={tool.name for tool in read if tool != by_name[tool.name]},
            choice="required" if choice == "any" else choice,
            restricted=allowed is not None,
            parallel=layout.parallel is None or self.fields.get(layout.parallel) is not False,
        )

    def _read_choice(self, choice: Any, declared: Sequence[str]) -> tuple[str, Collection[str] | None]:
        """Decode the choice of a tool and the names of the allowed tools; None for all."""
        if not isinstance(choice, dict):
            return str(choice), None
        kind = choice.get("type") or "function"
        if kind == "allowed_tools":
            given = choice.get("allowed_tools", choice)
            names = (self._find_chosen_tool(entry, declared) for entry in given.get("tools") or ())
            return str(given.get("mode") or "auto"), {name or "" for name in names}
        if kind in SINGLE_TOOL_TYPES and (name := self._find_chosen_tool(choice, declared)) is not None:
            return name, None
        if kind in SINGLE_TOOL_TYPES:
            raise TypeError("`tool_choice` names no tool")
        return (str(kind) if kind in ("none", "any", "required") else "auto"), None

    def _find_chosen_tool(self, choice: Mapping[str, Any], declared: Sequence[str]) -> str | None:
        """Return the name of the chosen tool among those `declared`."""
        return self.get_name(part_of(choice, "function") or choice)

    def find_declarations(self) -> Iterator[list[Any]]:
        """Find the lists of declarations."""
        return (entries for entries in (self.fields.get("tools"),) if isinstance(entries, list))

    def list_names(self, entries: Sequence[Any]) -> Iterator[str]:
        """List the names of all declarations."""
        return (name for entry in entries if (name := self.get_name(entry)))


_SHARED_TOOLS: WeakValueDictionary[bytes, Tool] = WeakValueDictionary()
"""Tools of the current exchanges, by all their fields."""


def _intern_tool(tool: Tool) -> Tool:
    """Return an equal tool of another current exchange: agents declare the same tools in every turn."""
    found = _SHARED_TOOLS.setdefault(encode_json([tool.name, tool.description, tool.parameters, tool.strict]), tool)
    return found if found == tool else tool  # NaN is encoded as null
