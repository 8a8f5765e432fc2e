"""One choice of a reply, between the codec that decoded it and the one that writes it.

text -> its reading (`text_reading.py`) -----------> events -> stages (`stages.py`) -> events
upstream's own calls (`upstream_calls.py`) --------/
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from vtc.dialects.reading.reader import PlainRule
from vtc.dialects.text_client.conversation import trimmed
from vtc.events import (
    NATIVE,
    Call,
    CallDelta,
    CallPiece,
    Event,
    Intervention,
    Markup,
    Reasoning,
    Rewritten,
    Text,
    Tool,
    ToolCall,
)
from vtc.exchange.replying.held import NOTHING, GrammarCheck
from vtc.exchange.replying.stages import (
    MESSAGE_GAP,
    ForStructuredClient,
    ForTextClient,
    Gap,
    Identify,
    Ids,
    Limit,
    OutputFilter,
    Record,
    ReplyFault,
    Stage,
)
from vtc.exchange.replying.text_reading import ANYTHING, TextReading
from vtc.exchange.replying.upstream_calls import UpstreamCalls
from vtc.guards.chain import Chain, joined
from vtc.guards.openers import Openers
from vtc.profiles.plan import Plan
from vtc.reporting.report import Report


def _again(event: Event) -> Event:
    """Say something whose characters were passed on before, as something else."""
    match event:
        case Text(raw):
            return Rewritten("", raw)
        case Rewritten():
            return Rewritten("", event.text)
        case Call():
            return replace(event, raw="")
        case Markup():
            return Markup("")
    return event


def _with_name(event: Event, named: Callable[[str], str]) -> Event:
    """Give a call out of the text the name that the client knows."""
    if isinstance(event, CallPiece) and event.name:
        return msgspec.structs.replace(event, name=named(event.name))
    if isinstance(event, Call) and event.dialect != NATIVE:
        return replace(event, call=replace(event.call, name=named(event.call.name)))
    return event


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A whole reply, rewritten, and what was done to it and is wrong with it."""

    body: bytes
    report: Report
    faults: list[ReplyFault]


class Stages:
    """Policies, and the stages after them, in their order (`stages.py`)."""

    def __init__(
        self,
        plan: Plan,
        tools: Mapping[str, Tool],
        ids: Ids,
        report: Report,
        guards: Chain | None = None,
        openers: Collection[str] = (),
        named: Callable[[str], str] | None = None,
    ) -> None:
        """`named` tells the client's name of a tool that the server knows by another."""
        self._named = named
        client, structured = plan.protocol.client_text, plan.protocol.client_text is None
        self._guards = guards
        self._reads = client.dialect if client and plan.checks_calls else None
        """How the client reads the arguments of calls; None if no policy looks at them."""
        self.gap = Gap()
        self.given: list[ToolCall] = []
        """Calls that the client was given out of the text."""
        self.limit = Limit(plan, tools)
        self.identify = Identify(ids, structured=structured)
        self.record = Record(report, tools, structured=structured)
        leaving = OutputFilter(self.record, Openers(openers) if openers else None, joined(plan.stack.guards))
        self.reads_text = leaving.reads_text or (guards is not None and guards.reads_text)
        self._client = ForStructuredClient(self.gap, leaving)
        if client:
            strict = plan.is_strict or bool(openers)
            self._client = ForTextClient(self.gap, leaving, client, tools, self.limit, self.record, strict=strict)
        self._order: tuple[Stage, ...] = (self.limit, self.identify, self.record, self._client)

    def feed(self, events: list[Event], *, judged: bool = False) -> list[Event]:
        """Put events through policies and stages; through these alone if the policies have `judged` them."""
        if self._named and not judged:
            events = [_with_name(event, self._named) for event in events]
        if self._guards and not judged:
            events = self._guards.feed([*map(self._as_meant, events)])
        self.given += [event.call for event in events if isinstance(event, Call) and event.dialect != NATIVE]
        for stage in self._order:
            events = [out for event in events for out in stage.feed(event)]
        return events

    def finish_policies(self) -> list[Event]:
        """Return what the policies have held."""
        return self.feed(self._guards.finish(), judged=True) if self._guards else []

    def finish(self) -> list[Event]:
        """Return what is added to the end of the reply."""
        return self._client.finish()

    def as_text(self, call: ToolCall) -> Event:
        """Write a call that no one could carry out as text, so that nothing vanishes."""
        written = f"The call of `{call.name}` could not be read"
        if self._reads is not None:
            return Rewritten("", f"{written}.")
        return Rewritten("", f"{self.gap.before(MESSAGE_GAP)}{written}: {call.arguments}")

    def _as_meant(self, event: Event) -> Event:
        """Show policies the arguments that the client will use."""
        if self._reads is None or not isinstance(event, Call):
            return event
        return replace(event, call=trimmed(event.call, self._reads))


class ReplyPipeline:
    """One choice of a reply: its text in, events out (`apis.relay.Pipeline`)."""

    def __init__(
        self,
        plan: Plan,
        tools: Mapping[str, Tool],
        text: TextReading,
        stages: Stages,
        *,
        as_they_come: bool = True,
        read_name: Callable[[str], Call | None] = lambda _: None,
        held: GrammarCheck = NOTHING,
    ) -> None:
        """Where upstream's own calls may leave `as_they_come`, no policy looks at events."""
        self.structured = plan.protocol.client_text is None
        self.guarded = plan.checks_calls
        self.takes_calls = not self.structured or plan.protocol.limits_native or self.guarded or bool(tools)
        self._demanded = plan.tool_choice if tools else "auto"
        self._held = held
        self._text = text
        self._stages = stages
        self._calls = UpstreamCalls(
            tools,
            stages.given,
            stages.identify,
            lenient=plan.reading.lenient,
            read_name=read_name,
            as_they_come=as_they_come and self.structured and not (self.guarded or plan.protocol.limits_native),
            as_text=None if self.structured else stages.as_text,
        )

    @property
    def faults(self) -> list[ReplyFault]:
        """What may be worth asking again for."""
        return self._stages.record.faults

    def plain(self, *, waits: bool = False) -> PlainRule | None:
        """Tell which text would pass without a difference to anything; None if all of it must be fed.

        Where white space `waits`, with which the last frame ends, it is to leave first (`spaced`).
        """
        text, tail = self._text, self._stages.gap.tail
        if self._stages.reads_text or not tail or tail[-1] == "\n":
            return None  # the line breaks that are missing before a call would not be the same
        if text.leftovers and not text.leftovers.decided:
            return None
        if not text.reader:
            return ANYTHING
        return text.reader.plain_once_spaced if waits else text.reader.plain

    @property
    def plain_reasoning(self) -> PlainRule | None:
        """Tell the same of reasoning that upstream parted off."""
        return self._text.thoughts.reader.plain if self._text.thoughts else ANYTHING

    def feed(self, text: str) -> list[Event]:
        reading, stages = self._text, self._stages
        events: list[Event] = reading.reader.feed(text) if reading.reader else [Text(text)]
        if reading.leftovers or (reading.thoughts and reading.thoughts.kept):
            events = reading.more(text, events)
        if not stages.reads_text:
            if not events:
                return events
            if len(events) == 1 and type(events[0]) is Text:  # as nearly always
                stages.gap.after(events[0].raw)
                return events
        return self._staged(events)

    def passed(self, text: str) -> None:
        """Take note of the end of the text that left unread."""
        if self._text.reader:
            self._text.reader.passed(text)

    def spaced(self) -> None:
        """Take note that the white space which waited has left as text."""
        if self._text.reader:
            self._stages.gap.after(self._text.reader.spaced())

    def reasoned(self, text: str) -> None:
        self._text.reasoned(text)

    def piece(self, delta: CallDelta) -> CallDelta | None:
        """Take a piece of a call of upstream's; return what may leave of it now, None if its call waits."""
        streamed = self._calls.streamed
        return streamed.piece(delta) if streamed else None

    def upstream(self, calls: Sequence[ToolCall]) -> list[Event]:
        return self._staged(self._calls.whole(calls))

    def pause(self) -> list[Event]:
        return self._staged(self._text.pause())

    def release(self) -> list[Event]:
        return self._staged(self._text.release())

    def late(self) -> None:
        reason = "upstream went on after the end of its message"
        self._stages.record.intervened(Intervention("unread_calls", "dropped", "", reason))

    def end_calls(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        return self._calls.end(complete=complete)

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        text, stages, ended = self._text, self._stages, self._calls.ended
        out = self._staged(text.finish([*self._calls.made, *calls], complete=complete))
        if not (stages.limit.delivered or ended or calls):
            thought = text.in_thoughts(said=bool(stages.gap.tail.strip()), complete=complete)
            out += map(_again, self._staged(thought))
        if others := self._calls.others():
            out += self._staged(others)
        if calls:
            out += self._staged(self._calls.meant(calls, complete=complete))
        out += stages.finish_policies()
        text.learn(complete=complete)
        stages.limit.delivered += [one.call.name for one in ended]
        for one in ended:
            stages.record.left(one)
        if complete:
            stages.record.chosen(self._demanded, stages.limit.delivered, constrained=self._held.constrained)
            for tool, reason in self._held.broken([*self._calls.made, *calls]):
                stages.record.intervened(Intervention("grammar", "missed", tool, reason))
        else:
            stages.record.faults.clear()  # the model was cut off: it would be again
        return [*out, *stages.finish()]

    def _staged(self, events: list[Event]) -> list[Event]:
        """Put events through the stages; calls are looked for in reasoning, too."""
        if self._text.thoughts:
            for event in events:
                if isinstance(event, Reasoning):
                    self._text.thoughts.feed(event.raw)
        return self._stages.feed(events)
