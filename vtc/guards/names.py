"""Names of tools: those that one may have, and those by which a policy may mean it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from vtc.events import Call, Denied, Event, Intervention
from vtc.guards.guard import Guard
from vtc.guards.patterns import Patterns, any_match

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
MESSAGE = "A call was not carried out, as its name is none that a tool can have."


def is_name(text: str) -> bool:
    """True for what servers take for the name of a tool."""
    return _NAME.fullmatch(text) is not None


class ToolNames:
    """The tools that a request declares, and the names by which the patterns of a policy mean them.

    fs.read     its own: the tool `read` in the namespace `fs`
    fs__read    its own for servers that know no namespaces
    read        without the namespace; other tools may have it, too
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self._declared = frozenset(declared)
        self._tools: dict[str, set[str]] = {}
        """By each name, the tools that have it."""
        for tool in self._declared:
            for name in _names(tool):
                self._tools.setdefault(name, set()).add(tool)

    def match(self, patterns: Patterns, name: str) -> bool:
        """True if a pattern means a tool by any of its names: for rules, and for what denies."""
        return any(any_match(patterns, one) for tool in self._meant(name) for one in _names(tool))

    def match_alone(self, patterns: Patterns, name: str) -> bool:
        """True if a pattern means a tool by a name that no other tool has: for what allows or spares it."""
        return all(any(any_match(patterns, one) for one in self._alone(tool)) for tool in self._meant(name))

    def _meant(self, name: str) -> Iterable[str]:
        """Find the tools that are called by a name; mostly it is the own one of a tool."""
        return {name} if name in self._declared else self._tools.get(name, {name})

    def _alone(self, tool: str) -> Iterable[str]:
        return (one for one in _names(tool) if one == tool or self._tools.get(one, set()) <= {tool})


def _names(tool: str) -> tuple[str, ...]:
    space, _, short = tool.rpartition(".")
    return (tool, tool.replace(".", "__"), short) if space and short else (tool,)


class Names(Guard):
    """Refuses calls by names that nobody declared and that are none: markup, several lines, letters that look alike."""

    def __init__(self, tools: Container[str]) -> None:
        super().__init__(refuses=lambda name: name not in tools and not is_name(name), on_failure="refuse")

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or not self.may_refuse(event.call.name):
            return [event]
        told = Intervention("unread_calls", "refused", "", "its name is none that a tool can have", event.call.name)
        return [told, Denied(event.raw, event.call, "steer", MESSAGE)]
