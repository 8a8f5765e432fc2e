"""One choice of a reply, between the codec that decoded it and the one that writes it.

    text -> reader -> events -> stages (`stages.py`) -> events

Without a reader text is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.reading.reader import Begins, PlainRule, Reader
from vtc.dialects.reading.speech import note_last_calls, out_of_reasoning
from vtc.dialects.syntax import tool_names
from vtc.dialects.text_client.client_reader import trimmed
from vtc.events import Call, CallDelta, Event, Markup, Reasoning, Refusal, Rewritten, Text, Tool, ToolCall
from vtc.exchange.leftovers import Leftovers
from vtc.exchange.native_calls import NotInOrder, in_order, meant
from vtc.exchange.stages import (
    MESSAGE_GAP,
    NATIVE,
    Fault,
    ForStructuredClient,
    ForTextClient,
    Gap,
    Identify,
    Ids,
    Leaving,
    Limit,
    Record,
    Stage,
)
from vtc.exchange.streamed_calls import Ended, StreamedCalls
from vtc.guards.chain import Chain, joined
from vtc.guards.openers import Openers
from vtc.profiles.memory import Learned
from vtc.profiles.plan import ReplyPlan
from vtc.reporting.report import Report

ANYTHING = PlainRule("", "")
"""The rule for what is not read."""


@dataclass(slots=True)
class Thoughts:
    """Looks for calls at the end of the reasoning, for a reply that stops there."""

    reader: Reader
    guessed: bool = False
    """The reply was taken to begin inside of its reasoning; if that never ends, it is the answer."""
    learned: bool = False
    """Only replies before it make that guess, so it may be wrong where the reply was cut off, too."""
    kept: bool = False
    """It was guessed, and stays text: it has left already."""
    events: list[Event] = field(default_factory=list)
    """All of it, if it was guessed."""
    last: list[Call] = field(default_factory=list)
    """The calls after which no text came so far."""

    def feed(self, text: str) -> None:
        """Read a part of the reasoning."""
        self._note(self.reader.feed(text))

    def finish(self, *, in_reasoning: bool, complete: bool) -> list[Event]:
        """Return the calls that the reasoning ends with; what they were written with stays in it.

        If the guess was wrong, which shows as the reply ends `in_reasoning`, return what the reply says. One that is
        not `complete` has been cut off: it may have been thinking still, so nothing in it is a call.
        """
        self._note(self.reader.finish(complete=complete))
        if not complete:
            is_said = self.guessed and self.learned and in_reasoning and not self.kept
            return [Text("".join(event.raw for event in self.events))] if is_said else []
        if self.kept:
            return [replace(event, raw="") for event in self.events if in_reasoning and isinstance(event, Call)]
        if self.guessed and in_reasoning:
            return self.events
        return [*out_of_reasoning(self.last)]

    def _note(self, events: Sequence[Event]) -> None:
        if self.guessed:
            self.events += events
        note_last_calls(self.last, events)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


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


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A whole reply, rewritten, and what was done to it and is wrong with it."""

    body: bytes
    report: Report
    faults: list[Fault]


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
        learned: Learned | None = None,
        beside_calls: Callable[[Begins], tuple[Reader, Leftovers]] | None = None,
        read_name: Callable[[str], Call | None] = lambda _: None,
        guards: Chain | None = None,
        openers: Collection[str] = (),
    ) -> None:
        client = plan.client_text
        self.structured = client is None
        self.guarded = plan.checks_calls
        self.takes_calls = client is not None or plan.limits_native or self.guarded or bool(tools)
        self._plan = plan
        self._tools = tools
        self._report = report
        self._reader = reader
        self._thoughts = thoughts
        self._native = False  # upstream made calls itself
        self._learned = learned
        self._beside_calls = beside_calls
        self._read_name = read_name
        self._leftovers: Leftovers | None = None  # once upstream made calls itself
        self._gap = Gap()
        self._limit = Limit(plan, tools)
        self._identify = Identify(ids, structured=self.structured)
        self._record = Record(report, structured=self.structured)
        leaving = Leaving(self._record, Openers(openers) if openers else None, joined(plan.guards))
        self._text_client: ForTextClient | None = None
        if client:
            self._text_client = ForTextClient(
                self._gap, leaving, client, tools, self._limit, self._record, strict=plan.is_strict or bool(openers)
            )
        self._client = self._text_client or ForStructuredClient(self._gap, leaving)
        self._guards = guards
        as_they_come = self.structured and not (self.guarded or plan.limits_native or guards)
        self._streamed = StreamedCalls(tools, lenient=plan.lenient) if as_they_come else None
        self._ended: list[Ended] = []
        self._made_before: list[ToolCall] = []
        """Upstream's own calls that waited and were dealt with."""
        self._given: list[ToolCall] = []
        """Calls that the client was given out of the text."""
        self._reads_text = leaving.reads_text or (guards is not None and guards.reads_text)
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
        if self._leftovers and not self._leftovers.decided:
            return None
        return self._reader.plain if self._reader else ANYTHING

    @property
    def plain_reasoning(self) -> PlainRule | None:
        """Tell the same of reasoning that upstream parted off."""
        return self._thoughts.reader.plain if self._thoughts else ANYTHING

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = self._reader.feed(text) if self._reader else [Text(text)]
        if self._thoughts and self._thoughts.kept and self._reader and self._reader.began_inside is None:
            self._thoughts.feed(text)  # no end of it came yet
        if self._leftovers:
            events = self._leftovers.feed(events)
        if not self._reads_text:
            if not events:
                return events
            if len(events) == 1 and type(events[0]) is Text:  # as nearly always
                self._gap.after(events[0].raw)
                return events
        return self._staged(events)

    def reasoned(self, text: str) -> None:
        if self._reader:
            self._reader.reasoned()
        if self._thoughts:
            self._thoughts.feed(text)

    def piece(self, delta: CallDelta) -> CallDelta | None:
        """Take a piece of a call of upstream's; return what may leave of it now, None if its call waits."""
        return self._streamed.piece(delta, {call.name for call in self._given}) if self._streamed else None

    def upstream(self, calls: Sequence[ToolCall]) -> list[Event]:
        self._made_before += calls
        return self._staged(self._meant(calls, complete=True))

    def pause(self) -> list[Event]:
        events = self._reader.pause() if self._reader else []
        return self._staged(self._leftovers.feed(events) if self._leftovers else events)

    def release(self) -> list[Event]:
        reader, self._native = self._reader, True
        if reader is None or self._beside_calls is None:
            self._reader = None
            return self._staged(reader.release()) if reader else []
        self._learn(reader, complete=False)
        self._reader, self._leftovers = self._beside_calls(reader.begins)
        return self._staged(self._leftovers.feed(reader.release()))

    def late(self) -> None:
        reason = "upstream went on after the end of its message"
        self._report.intervened("unread_calls", "dropped", "", reason)

    def end_calls(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        self._ended = self._streamed.finish(complete=complete) if self._streamed else []
        return {one.number: one.piece for one in self._ended}

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        events = self._reader.finish(complete=complete) if self._reader else []
        ended = self._ended
        if self._leftovers:
            made = [*self._made_before, *(one.call for one in ended), *calls]
            events = [*self._leftovers.feed(events), *self._leftovers.finish(made)]
        out = self._staged(events)
        if (
            self._thoughts
            and self._reader
            and not (self._limit.delivered or ended or calls or (self._gap.tail.strip() and not self._thoughts.kept))
        ):
            out += map(
                _again, self._staged(self._thoughts.finish(in_reasoning=self._reader.in_reasoning, complete=complete))
            )
        others = [event for one in ended for call in one.others for event in self._made(call, one.repairs)]
        if others:
            out += self._staged(others)
        if calls:
            out += self._staged(self._meant(calls, complete=complete))
        if self._guards:
            out += self._judged(self._guards.finish())
        if self._reader:
            self._learn(self._reader, complete=complete)
        self._note(ended)
        if complete:
            self._check_choice()
        else:
            self._record.faults.clear()  # the model was cut off: it would be again
        return [*out, *self._client.finish()]

    def _note(self, calls: Iterable[Ended]) -> None:
        """Note the calls that left as they came."""
        for call, _, _, repairs, fault, _ in calls:
            self._limit.delivered.append(call.name)
            if repairs:
                self._report.called(call.name, call.id, NATIVE, repairs)
            if fault:
                self._report.refused(Refusal(fault, NATIVE, call.name, call.arguments[:EXCERPT]))

    def _learn(self, reader: Reader, *, complete: bool) -> None:
        """Note whether the reply began inside of the reasoning: if several did, the next one will, too."""
        inside = reader.began_inside if reader.shows_beginning else None
        if reader.began_inside is None and complete and reader.in_reasoning and not self._native:
            inside = False  # what was taken for reasoning never ended
        if self._learned and inside is not None:
            self._learned.note(inside=inside)
        if reader.began_inside is not None:
            self._learned = None  # what comes after upstream's calls is no beginning

    def _staged(self, events: list[Event]) -> list[Event]:
        """Put events through policies and stages."""
        for event in events:
            if isinstance(event, Reasoning) and self._thoughts:
                self._thoughts.feed(event.raw)
        if self._guards:
            events = self._guards.feed([*map(self._as_meant, events)])
        self._given += [event.call for event in events if isinstance(event, Call) and event.dialect != NATIVE]
        return self._judged(events)

    def _as_meant(self, event: Event) -> Event:
        """Show policies the arguments that the client will use."""
        client = self._plan.client_text
        if client is None or not self.guarded or not isinstance(event, Call):
            return event
        return replace(event, call=trimmed(event.call, client.dialect))

    def _judged(self, events: list[Event]) -> list[Event]:
        """Put what the policies passed through the stages."""
        for stage in self._stages:
            events = [out for event in events for out in stage.feed(event)]
        return events

    def _meant(self, calls: Iterable[ToolCall], *, complete: bool) -> list[Event]:
        """Read calls that upstream made itself; one that cannot be put in order stays, for a text client as text."""
        if self._streamed:
            self._identify.give(self._streamed.ids)
        events: list[Event] = []
        for call in calls:
            try:
                found = in_order(call, self._tools, lenient=self._plan.lenient, complete=complete, read=self._read_name)
            except NotInOrder as error:
                known = meant(call.name, self._tools)
                name = known.tool if known else call.name
                events.append(Refusal(str(error), NATIVE, name, call.arguments[:EXCERPT]))
                events.append(self._as_text(call) if self._text_client else self._identify.named(call, name))
                continue
            for one in found.calls:
                if self._is_given(one):
                    events.append(Refusal("the text holds the same call", NATIVE, one.name, one.arguments[:EXCERPT]))
                elif found.repairs or self._text_client:
                    events += self._made(one, found.repairs)
                else:  # policies are told which tool is meant; a call that they leave alone leaves as it was spelled
                    events.append(
                        self._identify.named(one, one.name if one.name in self._tools else tool_names.bare(one.name))
                    )
        return events

    def _made(self, call: ToolCall, repairs: tuple[str, ...]) -> list[Event]:
        """Make the event for a call of upstream's that is written anew, unless the client has it already."""
        if not call.name:
            return [Refusal("it has no name", NATIVE, call.name, call.arguments[:EXCERPT])]
        if self._text_client and not _is_json(
            call.arguments
        ):  # of a tool that is not offered: nothing was put in order
            return [Refusal("its arguments are no JSON", NATIVE, call.name, ""), self._as_text(call)]
        return [Call("", call, NATIVE, repairs)]

    def _is_given(self, call: ToolCall) -> bool:
        """True if the client was given this call already, out of the text."""
        same = [given.arguments for given in self._given if given.name == call.name]
        return bool(same) and _is_json(call.arguments) and json.loads(call.arguments) in map(json.loads, same)

    def _as_text(self, call: ToolCall) -> Event:
        """Write a call that no one could carry out as text, so that nothing vanishes."""
        written = f"The call of `{call.name}` could not be read"
        return Rewritten(
            "", f"{self._gap.before(MESSAGE_GAP)}{written}: {call.arguments}" if not self.guarded else f"{written}."
        )

    def _check_choice(self) -> None:
        """Note if the reply does not call what `tool_choice` demands; calls that pass by are not looked at."""
        demanded, called = self._plan.tool_choice, self._limit.delivered
        if demanded in ("auto", "none") or not self._tools or (self._native and not self.takes_calls):
            return
        if demanded == "required" and not called:
            self._record.missed("", "`tool_choice` demands a call, and the reply makes none")
        elif demanded != "required" and demanded not in called:
            self._record.missed(demanded, f"`tool_choice` demands a call of `{demanded}`, and the reply makes none")
