"""One choice of a reply on its way from the reader to the API, and what the plan does to it there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax import tool_names
from vtc.dialects.text_client import conversation
from vtc.events import (
    Call,
    Denied,
    Event,
    Intervention,
    Markup,
    Reasoning,
    Refusal,
    Rewritten,
    Text,
    Tool,
    ToolCall,
)
from vtc.guards.chain import Chain
from vtc.profiles.plan import Plan
from vtc.reporting.report import Report

MOST_GAP = 9
"""Newlines that a client profile may want between text and a call, at the most."""
MESSAGE_GAP = 2
"""Newlines before a message that stands in the place of a call."""
NATIVE = "tool_calls"
"""Stands for the dialect of calls in their structured form."""

type Fault = tuple[Literal["malformed", "arguments", "denied", "tool_choice"], str]
"""What may be worth asking again for, and what to say about it."""


class Channel:
    """One choice's text between reader and API: runs the guards, numbers the calls, keeps to `max_calls`, writes the
    report.

    For a client that reads text, calls leave as text: those it can read already as the characters they came in.
    Without a reader text is text.
    """

    def __init__(
        self,
        reader: Reader | None,
        thoughts: Reader | None,
        identify: Callable[[Call], Call],
        plan: Plan,
        tools: Mapping[str, Tool],
        report: Report,
        guards: Chain | None = None,
    ) -> None:
        self._reader = reader
        self._thoughts = thoughts
        self._thought_events: list[Event] = []
        self._identify = identify
        self._plan = plan
        self._tools = tools
        self._report = report
        self._guards = guards
        self._calls: list[str] = []  # names of those that were delivered
        self._plain = guards is None and plan.client_text is None  # nothing is done to text
        self._native = False
        self._spelled: list[tuple[Call, ToolCall]] = []  # upstream's own calls, and as it wrote them
        self._extra: list[str] = []
        self._end = ""  # of what the client has been told in text, as far as a gap could go
        self._in_text: list[tuple[str, Any]] = []  # calls that a text client was given already
        self.faults: list[Fault] = []

    @property
    def structured(self) -> bool:
        return self._plan.client_text is None

    @property
    def takes_calls(self) -> bool:
        plan = self._plan
        return not self.structured or plan.limits_native or self.guarded

    @property
    def guarded(self) -> bool:
        return any(guards.on_calls for guards in self._plan.guards)

    @property
    def watched(self) -> str | None:
        if self._guards or self._reader is None:
            return None
        if not self._plain and (not self._end or self._end.endswith("\n")):
            return None  # how much a gap lacks would be different
        return self._reader.watched

    def late(self) -> None:
        self._report.intervened("unread_calls", "dropped", "", "upstream went on behind the end of its message")

    def feed(self, text: str) -> list[Event]:
        if self._plain and self._reader:
            events = self._reader.feed(text)
            if not events or (len(events) == 1 and isinstance(events[0], Text)):
                return events  # as nearly always
            return self._passed(events)
        return self._passed(self._reader.feed(text) if self._reader else [Text(text)])

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        events = self._passed(self._reader.finish(complete=complete) if self._reader else [])
        events += self._passed(self._thought(complete=complete))
        events += self._passed(self._upstreams(calls))
        if self._guards:
            events += self._sent(self._guards.finish())
        if complete:
            self._check_choice()
        else:
            self.faults.clear()  # the model was cut off: it would be again
        return [*events, *self._note()]

    def _thought(self, *, complete: bool) -> list[Event]:
        """Calls inside of the reasoning, for a reply that holds no other; what they were written with stays there."""
        think = self._plan.reasoning
        if self._thoughts is None or self._reader is None or think is None or self._calls:
            return []
        if think.calls == "unclosed" and not self._reader.in_reasoning:
            return []
        events = [*self._thought_events, *self._thoughts.finish(complete=complete)]
        calls = [event for event in events if isinstance(event, Call)]
        return [replace(call, raw="", repairs=(*call.repairs, "call-in-reasoning")) for call in calls]

    def reasoned(self) -> None:
        if self._reader:
            self._reader.reasoned()

    def release(self) -> list[Event]:
        reader, self._reader, self._native = self._reader, None, True
        return self._passed(reader.release()) if reader else []

    def _upstreams(self, calls: Sequence[ToolCall]) -> list[Event]:
        """Calls that upstream made in their structured form: as they are, or for a client that reads text as calls of
        the tools that it documents."""
        if self.structured:
            # Guards are told which tool is meant; a call that they leave alone leaves as it was spelled.
            meant = [tool_names.resolve(call.name.strip(), self._tools) or tool_names.bare(call.name) for call in calls]
            named = [Call("", replace(call, name=name), NATIVE) for call, name in zip(calls, meant, strict=True)]
            self._spelled += zip(named, calls, strict=True)
            return [*named]
        events: list[Event] = []
        for call in calls:
            name = tool_names.resolve(call.name, self._tools) or call.name
            body = JsonBody(lenient=self._plan.lenient)
            end = body.feed(call.arguments, 0, final=True)
            arguments = json.loads(body.text()) if body.done and not call.arguments[end:].strip() else None
            fault = ""
            if not isinstance(arguments, dict):
                fault = "its arguments are not a whole JSON object"
            elif not name:
                fault = "it has no name"
            elif (name, arguments) in self._in_text:
                fault = "the text holds the same call"
            if fault:
                events.append(Refusal(fault, NATIVE, name, call.arguments[:EXCERPT]))
            else:
                whole = replace(call, name=name, arguments=body.text())
                events.append(Call("", whole, NATIVE, tuple(body.repairs)))
        return events

    def _passed(self, events: list[Event]) -> list[Event]:
        """What was read, through the guards and on to the client."""
        self.faults += [("malformed", event.reason) for event in events if isinstance(event, Refusal)]
        return self._sent(self._guards.feed(events) if self._guards else events)

    def _sent(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Refusal):
                self._refused(event)
            elif isinstance(event, Intervention):
                self._intervened(event)
                continue
            elif isinstance(event, Reasoning) and self._thoughts:
                self._thought_events += self._thoughts.feed(event.raw)
            elif isinstance(event, Call):
                event = self._called(event)
            elif isinstance(event, Denied):
                event = self._denied(event)
            elif isinstance(event, Markup) and event.raw.isspace() and self._calls and not self.structured:
                event = Text(event.raw)  # behind a call that stays where it was in the text
            match event:
                case Text(text) | Rewritten(_, text):
                    self._end = (self._end + text)[-MOST_GAP:]
            out.append(event)
        return out

    def _called(self, event: Call) -> Event:
        native = event.dialect == NATIVE
        if not native and self._plan.unknown_tools != "allow" and event.call.name not in self._tools:
            reason = "no tool of that name is offered"  # it was read for a reactor, which did not want it
            self._refused(Refusal(reason, event.dialect, event.call.name, event.raw[:EXCERPT]))
            return Markup(event.raw) if self._plan.unknown_tools == "drop" else Text(event.raw)
        limit = self._plan.max_calls
        if limit is not None and len(self._calls) >= limit:
            self._extra.append(event.call.name)
            reason = f"only {limit} call{'s' * (limit > 1)} a reply: dropped"
            self._refused(Refusal(reason, event.dialect, event.call.name, event.raw[:EXCERPT]))
            return Markup(event.raw)
        self._calls.append(event.call.name)
        client = self._plan.client_text
        if native and client is None:
            call = next((call for known, call in self._spelled if known is event), event.call)
            event = replace(event, call=call)
            return event if call.id else self._identify(event)
        event = self._identify(event)
        call = event.call
        self._report.calls.append(
            {"name": call.name, "id": call.id, "dialect": event.dialect, "repairs": list(event.repairs)}
        )
        if client is None:
            return event
        if not native:
            self._in_text.append((call.name, json.loads(call.arguments)))
        if conversation.is_readable(event, client.dialect):
            return Text(event.raw)
        written = conversation.as_read(call, client.dialect, self._tools)
        if self.guarded and not conversation.is_one_call(written, call.name, client.dialect, self._tools):
            reason = "written for this client its arguments would be read as calls"
            self._intervened(Intervention("unread_calls", "refused", call.name, reason))
            return Rewritten(
                event.raw, f"{self._gap(MESSAGE_GAP)}The call of `{call.name}` was not passed on: {reason}."
            )
        return Rewritten(event.raw, self._gap(client.gap) + written)

    def _denied(self, event: Denied) -> Event:
        """What stands in the place of a call that a policy refused."""
        if event.manner == "drop":
            return Markup(event.raw)
        if event.manner == "text" and self.structured:
            written = json.dumps({"name": event.call.name, "arguments": event.call.arguments}, ensure_ascii=False)
            return Text(event.raw) if event.raw else Rewritten("", self._gap(MESSAGE_GAP) + written)
        return Rewritten(event.raw, self._gap(MESSAGE_GAP) + event.message)

    def _gap(self, newlines: int) -> str:
        """What parts it from the text before it."""
        there = len(self._end) - len(self._end.rstrip("\n"))
        return "\n" * (newlines - there) if self._end else ""

    def _note(self) -> list[Event]:
        """For a one-call client: what else the model called, in words, so that the model will see it too."""
        client, extra = self._plan.client_text, self._extra
        if not extra or client is None or client.extra_calls == "drop":
            return []
        self._extra = []
        most = "one tool" if self._plan.max_calls == 1 else f"{self._plan.max_calls} tools"
        return [Rewritten("", f"\n\n(Not carried out, as only {most} can be used at a time: {', '.join(extra)}.)")]

    def _check_choice(self) -> None:
        """Whether the reply calls what `tool_choice` demands; calls that pass by are not looked at."""
        demanded = self._plan.tool_choice
        if demanded in ("auto", "none") or not self._plan.tools or (self._native and not self.takes_calls):
            return
        if demanded == "required" and not self._calls:
            self._missed("", "`tool_choice` demands a call, and the reply makes none")
        elif demanded != "required" and demanded not in self._calls:
            self._missed(demanded, f"`tool_choice` demands a call of `{demanded}`, and the reply makes none")

    def _missed(self, tool: str, reason: str) -> None:
        self._report.intervened("tool_choice", "missed", tool, reason)
        self.faults.append(("tool_choice", reason))

    def _refused(self, event: Refusal) -> None:
        self._report.refusals.append(
            {"reason": event.reason, "dialect": event.dialect, "name": event.name, "excerpt": event.excerpt}
        )

    def _intervened(self, event: Intervention) -> None:
        self._report.intervened(event.policy, event.action, event.tool, event.reason)
        if event.policy == "arguments" and event.action in ("passed", "refused"):
            self.faults.append(("arguments", f"the arguments of `{event.tool}`: {event.reason}"))
        elif event.action == "refused":
            self.faults.append(("denied", f"the call of `{event.tool}`: {event.reason}"))
