"""The base class of all policies. A guard must declare the tools whose calls it may deny.

Everything else follows from this declaration: whether anything may pass unread, which openers are broken up for a text
client, and the handling of a call on which the policy fails. A guard that denies any other call is faulty: `GuardChain`
reports the fault, and the call stays denied.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping

from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure
from vtc.guards.patterns import Patterns, any_match

type Refuses = Callable[[str], bool] | None
"""Predicate on the tool name: can this guard deny or change its calls? None if never."""


class Guard(ABC):
    """A policy on one choice of a reply; the joined `raw` of its output equals that of its input."""

    held = ""
    """Buffered text."""
    reads_text = False
    """False if text passes through unchanged and at once."""

    def __init__(self, *, refuses: Refuses, on_failure: OnFailure) -> None:
        self.refuses = refuses
        self.on_failure: OnFailure = on_failure if refuses else "pass"
        """Handling of a call on which the guard raises. With `refuse`, nothing that it has not seen may be
        forwarded."""

    def may_refuse(self, name: str) -> bool:
        """Return True if a call of this tool may be denied or changed."""
        return self.refuses is not None and self.refuses(name)

    @abstractmethod
    def feed(self, event: Event) -> list[Event]: ...

    def finish(self) -> list[Event]:
        """Return the buffered text."""
        return []


class UndeclaredRefusalError(Exception):
    """A guard denied a call that its `refuses` does not name."""


def always(_: str) -> bool:
    """Match all tools."""
    return True


# Names of tools: valid names, and the names by which a policy may refer to a tool.


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
MESSAGE = "A call was not carried out, as its name is none that a tool can have."


def is_name(text: str) -> bool:
    """Return True if servers accept the text as the name of a tool."""
    return _NAME.fullmatch(text) is not None


class ToolNames:
    """The tools that a request declares, and the names by which patterns of a policy refer to them.

    fs.read     its own name: the tool `read` in the namespace `fs`
    fs__read    its own name for servers without namespaces
    read        without the namespace; other tools may share it
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self._declared = frozenset(declared)
        self._tools: dict[str, set[str]] = {}
        """The tools by each of their names."""
        for tool in self._declared:
            for name in _names(tool):
                self._tools.setdefault(name, set()).add(tool)

    def match(self, patterns: Patterns, name: str) -> bool:
        """Return True if a pattern matches any name of a tool: for rules and denials."""
        return any(any_match(patterns, alias) for tool in self._meant(name) for alias in _names(tool))

    def match_alone(self, patterns: Patterns, name: str) -> bool:
        """Return True if a pattern matches a name that no other tool has: for permissions and exceptions."""
        return all(any(any_match(patterns, alias) for alias in self._alone(tool)) for tool in self._meant(name))

    def _meant(self, name: str) -> Iterable[str]:
        """Find the tools of a name, usually the tool's own one."""
        return {name} if name in self._declared else self._tools.get(name, {name})

    def _alone(self, tool: str) -> Iterable[str]:
        return (alias for alias in _names(tool) if alias == tool or self._tools.get(alias, set()) <= {tool})


def _names(tool: str) -> tuple[str, ...]:
    space, _, short = tool.rpartition(".")
    return (tool, tool.replace(".", "__"), short) if space and short else (tool,)


class NameGuard(Guard):
    """Denies calls of undeclared tools whose names are invalid: markup, multiple lines, look-alike letters."""

    def __init__(self, tools: Container[str]) -> None:
        super().__init__(refuses=lambda name: name not in tools and not is_name(name), on_failure="refuse")

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or not self.may_refuse(event.call.name):
            return [event]
        refusal = Intervention("unread_calls", "refused", "", "its name is none that a tool can have", event.call.name)
        return [refusal, Denied(event.raw, event.call, "steer", MESSAGE)]


# Access: which tools may be offered in the request and called in the reply.


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
    """Denies calls of tools that are not allowed, or denied."""

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
        """Return the policy that forbids a tool, and the reason; None if the tool may be used."""
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
