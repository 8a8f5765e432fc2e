"""One choice of a reply, between the codec that decoded it and the one that writes it.

    text -> reader -> events -> stages (`stages.py`) -> events

Without a reader text is text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.reading.reader import PlainRule, Reader
from vtc.dialects.syntax import tool_names
from vtc.events import Call, Event, Reasoning, Refusal, Text, Tool, ToolCall
from vtc.exchange.stages import (
    NATIVE,
    Fault,
    ForStructuredClient,
    ForTextClient,
    Gap,
    Identify,
    Ids,
    Limit,
    Record,
    Stage,
)
from vtc.guards.chain import Chain
from vtc.profiles.plan import ReplyPlan
from vtc.reporting.report import Report


@dataclass(slots=True)
class Thoughts:
    """Looks for calls inside of the reasoning of a reply that holds no other."""

    reader: Reader
    when: Literal["unclosed", "rescue"]
    events: list[Event] = field(default_factory=list)

    def feed(self, events: Iterable[Event]) -> None:
        """Read the reasoning among some events."""
        for event in events:
            if isinstance(event, Reasoning):
                self.events += self.reader.feed(event.raw)

    def calls(self, *, unclosed: bool, complete: bool) -> list[Event]:
        """Return the calls; what they were written with stays in the reasoning."""
        if self.when == "unclosed" and not unclosed:
            return []
        events = [*self.events, *self.reader.finish(complete=complete)]
        calls = [event for event in events if isinstance(event, Call)]
        return [replace(call, raw="", repairs=(*call.repairs, "call-in-reasoning")) for call in calls]


class ReplyPipeline:
    """One choice of a reply: its text in, events out (`apis.relay.Pipeline`)."""

    def __init__(
        self,
        plan: ReplyPlan,
        tools: Mapping[str, Tool],
        ids: Ids,
        report: Report,
        *,
        reader: Reader | None = None,
        thoughts: Thoughts | None = None,
        guards: Chain | None = None,
    ) -> None:
        client = plan.client_text
        self.structured = client is None
        self.guarded = plan.checks_calls
        self.takes_calls = client is not None or plan.limits_native or self.guarded
        self._plan = plan
        self._tools = tools
        self._report = report
        self._reader = reader
        self._thoughts = thoughts
        self._native = False  # upstream made calls itself
        self._reads_text = thoughts is not None or (guards is not None and guards.reads_text)
        self._gap = Gap()
        self._limit = Limit(plan, tools)
        self._identify = Identify(ids, structured=self.structured)
        self._record = Record(report, structured=self.structured)
        self._client: ForStructuredClient = (
            ForTextClient(self._gap, client, tools, self._limit, self._record, guarded=self.guarded)
            if client
            else ForStructuredClient(self._gap)
        )
        self._guards = guards
        self._stages: tuple[Stage, ...] = (self._limit, self._identify, self._record, self._client)

    @property
    def faults(self) -> list[Fault]:
        """What may be worth asking again for."""
        return self._record.faults

    @property
    def plain(self) -> PlainRule | None:
        """Tell which text would pass without a difference to anything; None if all of it must be fed."""
        if self._reads_text or not self._gap.tail or self._gap.tail[-1] == "\n":
            return None  # the line breaks that are missing before a call would not be the same
        return self._reader.plain if self._reader else PlainRule("", "")

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = self._reader.feed(text) if self._reader else [Text(text)]
        if not self._reads_text:
            if not events:
                return events
            if len(events) == 1 and type(events[0]) is Text:  # as nearly always
                self._gap.after(events[0].raw)
                return events
        return self._staged(events)

    def reasoned(self) -> None:
        if self._reader:
            self._reader.reasoned()

    def pause(self) -> list[Event]:
        return self._staged(self._reader.pause() if self._reader else [])

    def release(self) -> list[Event]:
        reader, self._reader, self._native = self._reader, None, True
        return self._staged(reader.release()) if reader else []

    def late(self) -> None:
        reason = "upstream went on after the end of its message"
        self._report.intervened("unread_calls", "dropped", "", reason)

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        out = self._staged(self._reader.finish(complete=complete) if self._reader else [])
        if self._thoughts and self._reader and not self._limit.delivered:
            out += self._staged(self._thoughts.calls(unclosed=self._reader.in_reasoning, complete=complete))
        if calls:
            out += self._staged(self._meant(calls))
        if self._guards:
            out += self._judged(self._guards.finish())
        if complete:
            self._check_choice()
        else:
            self._record.faults.clear()  # the model was cut off: it would be again
        return out + self._client.note()

    def _staged(self, events: list[Event]) -> list[Event]:
        """Put events through policies and stages."""
        if self._thoughts:
            self._thoughts.feed(events)
        return self._judged(self._guards.feed(events) if self._guards else events)

    def _judged(self, events: list[Event]) -> list[Event]:
        """Put what the policies passed through the stages."""
        if events:
            for stage in self._stages:
                events = stage.feed(events)
        return events

    def _meant(self, calls: Iterable[ToolCall]) -> list[Event]:
        """Read calls that upstream made itself: the tools that they mean, and for a text client their arguments."""
        if self.structured:
            names = ((call, tool_names.resolve(call.name.strip(), self._tools)) for call in calls)
            return [self._identify.named(call, name or tool_names.bare(call.name)) for call, name in names]
        return [self._checked(call) for call in calls]

    def _checked(self, call: ToolCall) -> Event:
        name = tool_names.resolve(call.name, self._tools) or call.name
        body = JsonBody(lenient=self._plan.lenient)
        end = body.feed(call.arguments, 0, final=True)
        arguments = json.loads(body.text()) if body.done and not call.arguments[end:].strip() else None
        fault = ""
        if not isinstance(arguments, dict):
            fault = "its arguments are not a whole JSON object"
        elif not name:
            fault = "it has no name"
        elif isinstance(self._client, ForTextClient) and (name, arguments) in self._client.given:
            fault = "the text holds the same call"
        if fault:
            return Refusal(fault, NATIVE, name, call.arguments[:EXCERPT])
        return Call("", replace(call, name=name, arguments=body.text()), NATIVE, tuple(body.repairs))

    def _check_choice(self) -> None:
        """Note if the reply does not call what `tool_choice` demands; calls that pass by are not looked at."""
        demanded, called = self._plan.tool_choice, self._limit.delivered
        if demanded in ("auto", "none") or not self._tools or (self._native and not self.takes_calls):
            return
        if demanded == "required" and not called:
            self._record.missed("", "`tool_choice` demands a call, and the reply makes none")
        elif demanded != "required" and demanded not in called:
            self._record.missed(demanded, f"`tool_choice` demands a call of `{demanded}`, and the reply makes none")
