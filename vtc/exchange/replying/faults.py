"""Faults of a reply: in the report, and as reasons for a retry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from vtc.events import Event, Intervention, Tool, UnreadCall
from vtc.reporting.report import Report

REPORTED_EVENTS = (UnreadCall, Intervention)
"""Events that only the report contains."""


class ReplyFault(NamedTuple):
    """A fault that may justify a retry."""

    kind: Literal["malformed", "arguments", "denied", "tool_choice"]
    reason: str
    """For logs: it contains no argument values."""
    quoted: str = ""
    """For the model, which may see more."""
    tool: str = ""  # the called tool


class FaultRecorder(msgspec.Struct):
    """Moves the interventions and parse failures of the stages into the report."""

    report: Report
    tools: Mapping[str, Tool]
    faults: list[ReplyFault] = []
    """Faults that may justify a retry."""

    def take(self, events: Iterable[Event]) -> list[Event]:
        """Record the events for the report, and return the others."""
        others: list[Event] = []
        for event in events:
            match event:
                case UnreadCall():
                    self._record_unread_call(event)
                case Intervention():
                    self.record_intervention(event)
                case _:
                    others.append(event)
        return others

    def _record_unread_call(self, call: UnreadCall) -> None:
        if call.malformed:
            named = (tool for tool in self.tools if f'"{tool}"' in call.excerpt)  # in broken JSON
            self.faults.append(ReplyFault("malformed", call.reason, tool=call.name or next(named, "")))
        last = ((entry["reason"], entry["name"], entry["excerpt"]) for entry in self.report.refusals[-1:])
        if (call.reason, call.name, call.excerpt) not in last:
            # report it once, not for each dialect that the text could be
            self.report.record_unread_call(call)

    def record_intervention(self, event: Intervention) -> None:
        """Record the action of a policy."""
        self.report.record_intervention(event.policy, event.action, event.tool, event.reason, event.detail)
        if event.policy == "arguments" and event.action in ("passed", "refused"):
            about, detail = f"the arguments of `{event.tool}`: ", event.detail or event.reason
            self.faults.append(ReplyFault("arguments", about + event.reason, about + detail, event.tool))
        elif event.action == "refused":
            self.faults.append(ReplyFault("denied", f"the call of `{event.tool}`: {event.reason}"))

    def check_choice(self, demanded: str, called: Collection[str], *, constrained: bool = False) -> None:
        """Record that a reply with these calls lacks the call that `tool_choice` demands: a tool, or `required`.

        If decoding was `constrained` to a call, the server ignored the grammar.
        """
        if demanded in called or (demanded == "required" and called):
            return
        tool = "" if demanded == "required" else demanded
        reason = f"`tool_choice` demands a call{f' of `{tool}`' * bool(tool)}, and the reply makes none"
        self.report.record_intervention("tool_choice", "missed", tool, reason)
        if constrained:
            ignored = "the server accepted the grammar but did not decode by it: the reply makes no call"
            self.report.record_intervention("grammar", "missed", tool, ignored)
        self.faults.append(ReplyFault("tool_choice", reason))
