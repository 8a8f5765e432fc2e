"""The base of all policies: a class that must say of which tools it may refuse calls before it can be made.

All that depends on it follows from that: whether anything may leave unseen, which openers are parted for a text client,
and what becomes of a call on which the policy fails. A guard that refuses another call is wrong: `Chain` tells so, and
refuses the call.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping

from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure
from vtc.guards.patterns import Patterns, any_match

type Refuses = Callable[[str], bool] | None
"""Tells by the name of a tool if its calls may be refused, or must not leave unchanged; None: no call ever."""


class Guard(ABC):
    """A policy on one choice of a reply; the `raw` of what it returns, joined, is that of what it was fed."""

    held = ""
    """Text that it has not returned yet."""
    reads_text = False
    """False if it passes all text at once, as it came."""

    def __init__(self, *, refuses: Refuses, on_failure: OnFailure) -> None:
        self.refuses = refuses
        self.on_failure: OnFailure = on_failure if refuses else "pass"
        """What becomes of a call on which it raises. With `refuse`, nothing may leave that it has not seen."""

    def may_refuse(self, name: str) -> bool:
        """True if a call of this tool may be one that is not to be carried out."""
        return self.refuses is not None and self.refuses(name)

    @abstractmethod
    def feed(self, event: Event) -> list[Event]: ...

    def finish(self) -> list[Event]:
        """Return what is held."""
        return []


class UndeclaredRefusalError(Exception):
    """A guard refused a call that its `refuses` does not name."""


def always(_: str) -> bool:
    """Name all tools."""
    return True


# Names of tools: those that one may have, and those by which a policy may mean it.


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
        return any(any_match(patterns, alias) for tool in self._meant(name) for alias in _names(tool))

    def match_alone(self, patterns: Patterns, name: str) -> bool:
        """True if a pattern means a tool by a name that no other tool has: for what allows or spares it."""
        return all(any(any_match(patterns, alias) for alias in self._alone(tool)) for tool in self._meant(name))

    def _meant(self, name: str) -> Iterable[str]:
        """Find the tools that are called by a name; mostly it is the own one of a tool."""
        return {name} if name in self._declared else self._tools.get(name, {name})

    def _alone(self, tool: str) -> Iterable[str]:
        return (alias for alias in _names(tool) if alias == tool or self._tools.get(alias, set()) <= {tool})


def _names(tool: str) -> tuple[str, ...]:
    space, _, short = tool.rpartition(".")
    return (tool, tool.replace(".", "__"), short) if space and short else (tool,)


class NameGuard(Guard):
    """Refuses calls by names that no one declared and that are none: markup, several lines, letters that look alike."""

    def __init__(self, tools: Container[str]) -> None:
        super().__init__(refuses=lambda name: name not in tools and not is_name(name), on_failure="refuse")

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or not self.may_refuse(event.call.name):
            return [event]
        refusal = Intervention("unread_calls", "refused", "", "its name is none that a tool can have", event.call.name)
        return [refusal, Denied(event.raw, event.call, "steer", MESSAGE)]


# Which tools may be used: offered in the request, and called in the reply.


INSTEAD: Mapping[Manner, str] = {
    "steer": "a message stands in its place",
    "text": "its text stands in its place",
    "drop": "nothing stands in its place",
}


def _fault(names: ToolNames, allowed: Patterns, denied: Patterns, name: str) -> tuple[str, str] | None:
    if names.match(denied, name):
        return "denied_tools", "it is one of the denied tools"
    if not names.match_alone(allowed, name):
        return "allowed_tools", "it is none of the allowed tools"
    return None


class Access(Guard):
    """Refuses calls of tools that are not allowed, or denied."""

    def __init__(
        self,
        allowed: Patterns,
        denied: Patterns,
        manner: Manner,
        message: str = "",
        *,
        names: ToolNames | None = None,
        on_failure: OnFailure = "refuse",
    ) -> None:
        names = self._names = names or ToolNames()
        super().__init__(refuses=lambda name: _fault(names, allowed, denied, name) is not None, on_failure=on_failure)
        self._allowed = allowed
        self._denied = denied
        self._manner: Manner = manner
        self._message = message

    def fault(self, name: str) -> tuple[str, str] | None:
        """Name the policy that forbids a tool, and say why; None for one that may be used."""
        return _fault(self._names, self._allowed, self._denied, name)

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or (fault := self.fault(event.call.name)) is None:
            return [event]
        policy, reason = fault
        name = event.call.name
        message = self._message or f"The tool `{name}` may not be used here, so the call was not carried out."
        return [
            Intervention(policy, "refused", name, f"{reason}; {INSTEAD[self._manner]}"),
            Denied(event.raw, event.call, self._manner, message),
        ]
