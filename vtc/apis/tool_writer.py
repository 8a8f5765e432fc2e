"""Writing the fields about tools in the body of a request; unchanged fields keep their bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vtc.apis.fields import split_items
from vtc.apis.tool_fields import ToolFields
from vtc.events import Tool, ToolOffer


class ToolWriter(ABC):
    """Changes the fields about tools in `kept`, the fields of a body that will be sent."""

    def __init__(self, received: ToolFields) -> None:
        """Set up the writer for the fields of a decoded body."""
        self.received = received

    @staticmethod
    @abstractmethod
    def render_declaration(tool: Tool) -> Mapping[str, Any]:
        """Declare a tool."""

    @abstractmethod
    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Mapping[str, Any] | None:
        """Update a declaration with the name and parameters of the tool given for its name; None if none is given."""

    def declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        """Replace the declarations of tools."""
        if tools:
            kept["tools"] = [*map(self.render_declaration, tools)]

    def withhold(self, kept: dict[str, Any], names: Collection[str], offer: ToolOffer) -> None:
        """Remove the declarations of the named tools, and a choice of one of them."""
        if isinstance(entries := self.received.fields.get("tools"), list) and "tools" in kept:
            kept["tools"] = [*self.withhold_entries(entries, names)]
        if not kept.get("tools"):
            self.forget(kept)
        elif offer.choice in names or offer.restricted:
            _remove(kept, self.received.layout.choice)

    def forget(self, kept: dict[str, Any]) -> None:
        """Remove all fields about tools."""
        _remove(kept, "tools", self.received.layout.choice, self.received.layout.parallel)

    def redeclare(self, kept: dict[str, Any], tools: Mapping[str, Tool]) -> None:
        """Update the declarations of some tools, by their previous names, and a choice of one of them."""
        if isinstance(entries := self.received.fields.get("tools"), list) and (raw := kept.get("tools")) is not None:
            written = split_items(raw, entries) if isinstance(raw, msgspec.Raw) else [*raw]
            entries = entries if isinstance(raw, msgspec.Raw) else raw
            kept["tools"] = [
                self.rewrite_declaration(entry, tools) or as_it_is
                for entry, as_it_is in zip(entries, written, strict=True)
            ]
        names, field = (
            {name: tool.name for name, tool in tools.items() if name != tool.name},
            self.received.layout.choice,
        )
        if names and field and field in kept:
            kept[field] = self._rename_choice(self.received.fields[field], names)

    def withhold_entries(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        """Remove the declarations of the named tools."""
        return (entry for entry in entries if self.received.get_name(entry) not in names)

    def _rename_choice(self, choice: Any, names: Mapping[str, str]) -> Any:
        """Replace names in the choice of a tool."""
        if isinstance(choice, list):
            return [self._rename_choice(part, names) for part in choice]
        if not isinstance(choice, dict):
            return choice
        return {
            key: names.get(value, value)
            if key == "name" and isinstance(value, str)
            else self._rename_choice(value, names)
            for key, value in choice.items()
        }


def _remove(fields: dict[str, Any], *names: str | None) -> None:
    for name in names:
        if name:
            fields.pop(name, None)
