"""The base class of all policies, and two of them: on the names of tools, and on the tools that may be called.

A guard must declare the tools whose calls it may deny. This declaration decides if content may be forwarded unread,
which call openers are broken up for a client that parses calls from text, and what happens to a call on which the guard
raises. If a guard denies any other call, `GuardChain` reports a fault, and the call stays denied.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Literal

from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure, flatten_name
from vtc.guards.patterns import Patterns, any_match

type Refuses = Callable[[str], bool] | None
"""Predicate on the tool name: can this guard deny or change its calls? None if never."""


class Guard(ABC):
    """A policy on one choice of a reply.

    Events may be changed, but no text is lost: the joined `raw` of the output equals that of the input.
    """

    held = ""
    """Buffered text."""
    reads_text = False
    """True if text must go through `feed`; False if the guard would return it unchanged."""

    def __init__(self, *, refuses: Refuses, on_failure: OnFailure) -> None:
        self.refuses = refuses
        self.on_failure: OnFailure = on_failure if refuses else "pass"
        """Handling of a call on which the guard raises: `refuse` denies it, `pass` forwards it. With `refuse`, nothing
        that the guard has not seen may be forwarded."""

    def may_refuse(self, name: str) -> bool:
        """Return True if a call of this tool may be denied or changed."""
        return self.refuses is not None and self.refuses(name)

    @abstractmethod
    def feed(self, event: Event) -> list[Event]: ...

    def finish(self) -> list[Event]:
        """Return the buffered text."""
        return []


def describe_failure(kind: Literal["call", "text"], *, refuses: bool) -> str:
    """Describe for the report that a policy raised on a call or a text, and if it `refuses` that call."""
    return f"it fails on this {kind}, so the call is denied" if refuses else f"it fails on this {kind} and is skipped"


class UndeclaredRefusalError(Exception):
    """A guard denied a call that its `refuses` does not name."""


def match_every_tool(_: str) -> bool:
    """Return True: a predicate for guards that may deny calls of every tool."""
    return True


_VALID_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
INVALID_NAME_REASON = "its name is not valid for a tool"
INVALID_NAME_MESSAGE = f"A call was not carried out, because {INVALID_NAME_REASON}."


def is_name(text: str) -> bool:
    """Return True if servers accept the text as the name of a tool."""
    return _VALID_NAME.fullmatch(text) is not None


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
            for name in _list_aliases(tool):
                self._tools.setdefault(name, set()).add(tool)

    def match(self, patterns: Patterns, name: str) -> bool:
        """Return True if a pattern matches any of a tool's names. Rules and denials use this."""
        return any(any_match(patterns, alias) for tool in self._find_named_tools(name) for alias in _list_aliases(tool))

    def match_alone(self, patterns: Patterns, name: str) -> bool:
        """Return True if a pattern matches one of a tool's names that no other tool has.

        Permissions and exceptions use this, so that they never include another tool of the same short name.
        """
        return all(
            any(any_match(patterns, alias) for alias in self._list_unique_aliases(tool))
            for tool in self._find_named_tools(name)
        )

    def _find_named_tools(self, name: str) -> Iterable[str]:
        """Find the tools that a name can refer to; an unknown name refers to itself."""
        return {name} if name in self._declared else self._tools.get(name, {name})

    def _list_unique_aliases(self, tool: str) -> Iterable[str]:
        """List the names of a tool that no other tool has."""
        return (alias for alias in _list_aliases(tool) if alias == tool or self._tools.get(alias, set()) <= {tool})


def _list_aliases(tool: str) -> tuple[str, ...]:
    """List all names by which a policy may refer to a tool."""
    space, _, short = tool.rpartition(".")
    return (tool, flatten_name(tool), short) if space and short else (tool,)


class NameGuard(Guard):
    """The guard that denies calls of undeclared tools with invalid names.

    Such a name may hold markup, several lines, or letters that look like others.
    """

    def __init__(self, tools: Container[str]) -> None:
        super().__init__(refuses=lambda name: name not in tools and not is_name(name), on_failure="refuse")

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or not self.may_refuse(event.call.name):
            return [event]
        refusal = Intervention("unread_calls", "refused", "", INVALID_NAME_REASON, event.call.name)
        return [refusal, Denied(event.raw, event.call, "steer", INVALID_NAME_MESSAGE)]


DENIAL_REPLACEMENTS: Mapping[Manner, str] = {
    "steer": "a message replaces it",
    "text": "its text replaces it",
    "drop": "it is removed",
}
"""The end of the reported reason: what the client receives instead of the denied call."""


def _find_violation(names: ToolNames, allowed: Patterns, denied: Patterns, name: str) -> tuple[str, str] | None:
    if names.match(denied, name):
        return "denied_tools", "the tool is denied"
    if not names.match_alone(allowed, name):
        return "allowed_tools", "the tool is not allowed"
    return None


class Access(Guard):
    """The guard that denies calls of tools that `denied_tools` names or `allowed_tools` does not."""

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
        super().__init__(
            refuses=lambda name: _find_violation(names, allowed, denied, name) is not None, on_failure=on_failure
        )
        self._allowed = allowed
        self._denied = denied
        self._manner: Manner = manner
        self._message = message

    def find_violation(self, name: str) -> tuple[str, str] | None:
        """Return the policy that forbids a tool, and the reason; None if the tool may be used."""
        return _find_violation(self._names, self._allowed, self._denied, name)

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or (fault := self.find_violation(event.call.name)) is None:
            return [event]
        policy, reason = fault
        name = event.call.name
        message = self._message or f"The tool `{name}` may not be used here, so the call was not carried out."
        return [
            Intervention(policy, "refused", name, f"{reason}; {DENIAL_REPLACEMENTS[self._manner]}"),
            Denied(event.raw, event.call, self._manner, message),
        ]
