"""Which tools may be used: offered in the request, and called in the reply."""

from __future__ import annotations

from collections.abc import Mapping

from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure
from vtc.guards.guard import Guard
from vtc.guards.names import ToolNames
from vtc.guards.patterns import Patterns

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
        """The policy that forbids a tool, and why; None for one that may be used."""
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
