"""One choice of a reply on its way from the reader to the API, and what the plan does to it there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from vtc.dialects import conversation, names
from vtc.dialects.delivery import EXCERPT
from vtc.dialects.json_body import JsonBody
from vtc.dialects.reader import Reader
from vtc.events import Call, Event, Markup, Reasoning, Refusal, Rewritten, Text, Tool, ToolCall
from vtc.profiles.plan import Plan
from vtc.report import Report

MOST_GAP = 9
"""Newlines that a client profile may want between text and a call, at the most."""


class Channel:
    """One choice's text between reader and API: numbers the calls, keeps to `max_calls`, writes the report.

    For a client that reads text, calls leave as text: those it can read already as the characters they came in.
    """

    def __init__(
        self,
        reader: Reader,
        thoughts: Reader | None,
        identify: Callable[[Call], Call],
        plan: Plan,
        tools: Mapping[str, Tool],
        report: Report,
    ) -> None:
        self._reader = reader
        self._thoughts = thoughts
        self._thought_events: list[Event] = []
        self._identify = identify
        self._plan = plan
        self._tools = tools
        self._report = report
        self._calls = 0
        self._extra: list[str] = []
        self._end = ""  # of what the client has been told in text, as far as a gap could go
        self._in_text: list[tuple[str, Any]] = []  # calls that a text client was given already

    @property
    def structured(self) -> bool:
        return self._plan.client_text is None

    def feed(self, text: str) -> list[Event]:
        return self._passed(self._reader.feed(text))

    def finish(self, *, complete: bool) -> list[Event]:
        events = self._passed(self._reader.finish(complete=complete))
        return [*events, *self._passed(self._thought(complete=complete)), *self._note()]

    def _thought(self, *, complete: bool) -> list[Event]:
        """Calls inside of the reasoning, for a reply that holds no other; what they were written with stays there."""
        think = self._plan.reasoning
        if self._thoughts is None or think is None or self._calls:
            return []
        if think.calls == "unclosed" and not self._reader.in_reasoning:
            return []
        events = [*self._thought_events, *self._thoughts.finish(complete=complete)]
        calls = [event for event in events if isinstance(event, Call)]
        return [replace(call, raw="", repairs=(*call.repairs, "call-in-reasoning")) for call in calls]

    def reasoned(self) -> None:
        self._reader.reasoned()

    def release(self) -> list[Event]:
        return self._passed(self._reader.release())

    def calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        events: list[Event] = []
        for call in calls:
            name = names.resolve(call.name, self._tools) or call.name
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
                events.append(Refusal(fault, "tool_calls", name, call.arguments[:EXCERPT]))
            else:
                whole = replace(call, name=name, arguments=body.text())
                events.append(Call("", whole, "tool_calls", tuple(body.repairs)))
        return [*self._passed(events), *self._note()]

    def _passed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Refusal):
                self._refused(event)
            elif isinstance(event, Reasoning) and self._thoughts:
                self._thought_events += self._thoughts.feed(event.raw)
            elif isinstance(event, Call):
                event = self._called(event)
            elif isinstance(event, Markup) and event.raw.isspace() and self._calls and not self.structured:
                event = Text(event.raw)  # behind a call that stays where it was in the text
            match event:
                case Text(text) | Rewritten(_, text):
                    self._end = (self._end + text)[-MOST_GAP:]
            out.append(event)
        return out

    def _called(self, event: Call) -> Event:
        if event.dialect != "tool_calls" and not self._is_allowed(event.call.name):
            reason = "the profile's allowed_tools do not hold it"
            self._refused(Refusal(reason, event.dialect, event.call.name, event.raw[:EXCERPT]))
            return Text(event.raw)
        limit = self._plan.max_calls
        if limit is not None and self._calls >= limit:
            self._extra.append(event.call.name)
            reason = f"only {limit} call{'s' * (limit > 1)} a reply: dropped"
            self._refused(Refusal(reason, event.dialect, event.call.name, event.raw[:EXCERPT]))
            return Markup(event.raw)
        self._calls += 1
        event = self._identify(event)
        call = event.call
        self._report.calls.append(
            {"name": call.name, "id": call.id, "dialect": event.dialect, "repairs": list(event.repairs)}
        )
        client = self._plan.client_text
        if client is None:
            return event
        if event.dialect != "tool_calls":
            self._in_text.append((call.name, json.loads(call.arguments)))
        if conversation.is_readable(event, client.dialect):
            return Text(event.raw)
        gap = client.gap - (len(self._end) - len(self._end.rstrip("\n"))) if self._end else 0
        return Rewritten(event.raw, "\n" * gap + conversation.as_read(call, client.dialect, self._tools))

    def _is_allowed(self, name: str) -> bool:
        return any(fnmatchcase(name.casefold(), glob.casefold()) for glob in self._plan.allowed)

    def _note(self) -> list[Event]:
        """For a one-call client: what else the model called, in words, so that the model will see it too."""
        client, extra = self._plan.client_text, self._extra
        if not extra or client is None or client.extra_calls == "drop":
            return []
        self._extra = []
        most = "one tool" if self._plan.max_calls == 1 else f"{self._plan.max_calls} tools"
        return [Rewritten("", f"\n\n(Not carried out, as only {most} can be used at a time: {', '.join(extra)}.)")]

    def _refused(self, event: Refusal) -> None:
        self._report.refusals.append(
            {"reason": event.reason, "dialect": event.dialect, "name": event.name, "excerpt": event.excerpt}
        )
