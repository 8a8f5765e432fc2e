"""One choice of a reply, between the decoder of the server's API and the encoder of the client's.

text -> `text_reading.py` -----------------------> events -> stages (`stages.py`) -> events
native tool calls (`native_call_events.py`) ----/
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from vtc.dialects.reading.reader import HeldCall
from vtc.dialects.syntax.scan import PlainRule
from vtc.dialects.text_client import conversation
from vtc.events import CallDelta, Event, Intervention, Reasoning, Text, Tool, ToolCall
from vtc.exchange.replying.content_rules import ContentRules
from vtc.exchange.replying.expectation import NO_EXPECTATION, Expectation
from vtc.exchange.replying.faults import REPORTED_EVENTS, FaultRecorder
from vtc.exchange.replying.native_call_events import NativeCalls
from vtc.exchange.replying.repeats import STEP_CHARACTERS
from vtc.exchange.replying.stages import (
    MAX_GAP_NEWLINES,
    ClientTerms,
    ForStructuredClient,
    Identify,
    Ids,
    Limit,
    RecordCalls,
    Stage,
    TextEnd,
)
from vtc.exchange.replying.streamed_calls import CallEnd
from vtc.exchange.replying.text_client import ForTextClient
from vtc.exchange.replying.text_reading import ANYTHING, TextReading
from vtc.guards.chain import GuardChain, list_refusable_tools
from vtc.guards.output_filter import OutputFilter
from vtc.profiles.plan import Plan, TextClient
from vtc.reporting.report import Report


class ReplyPipeline:
    """The pipeline of one choice of a reply: text in, events out (`apis.relay.Pipeline`)."""

    def __init__(
        self,
        plan: Plan,
        tools: Mapping[str, Tool],
        text: TextReading,
        ids: Ids,
        report: Report,
        guards: GuardChain | None = None,
        *,
        expected: Expectation = NO_EXPECTATION,
        crosses: bool = False,
    ) -> None:
        """Set up the pipeline; `crosses` is set for a bridge, on which native calls are reported, too."""
        self.repeats = text.repeats
        names = expected.names
        client, structured = plan.protocol.client_text, plan.protocol.client_text is None
        self.structured = structured
        self.guarded = plan.checks_calls
        self.takes_calls = not structured or plan.protocol.limits_native or self.guarded or bool(tools)
        self._demanded = plan.tool_choice if tools and plan.tool_choice not in ("auto", "none") else ""
        self._grammar = expected.grammar
        self.text = text
        self._text_end = end = TextEnd()
        self._limit = limit = Limit(plan, tools)
        self._record_calls = RecordCalls(report, tools, plan.learned, every=crosses or not structured)
        self._fault_recorder = FaultRecorder(report, tools)
        self.faults = self._fault_recorder.faults
        """Faults that may justify a retry."""
        taken: set[str] = set()
        reads = client.dialect if client and plan.checks_calls else None
        openers = _list_refusable_openers(plan, client, tools) if client else []
        rules = [rule for policies in plan.stack.guards for rule in policies.content]
        strict = plan.is_strict or bool(openers)
        # The order of the stages. Policies on calls are the first that may change an event, so that denied calls do not
        # count toward the limit. Content rules follow all stages that turn calls into text.
        self._stages: list[Stage] = []
        if names or reads:
            self._stages.append(ClientTerms(names.to_client if names else None, reads))
        if guards:
            self._stages.append(guards)
        self._stages += (limit, Identify(ids, taken, structured=structured), self._record_calls)
        if rules:
            self._stages.append(ContentRules(rules, structured=structured, crosses=crosses))
        self._stages.append(
            ForTextClient(end, client, tools, limit.delivered, strict=strict) if client else ForStructuredClient(end)
        )
        if client or rules:
            self._stages.append(OutputFilter(openers, rules))
        self._reads_text = self.repeats.cuts or any(stage.reads_text for stage in self._stages)
        as_they_come = guards is None and structured and not (self.guarded or plan.protocol.limits_native)
        self._calls = NativeCalls(
            plan, tools, limit.from_text, taken, ids.used, read_name=text.read_name, as_they_come=as_they_come
        )

    @property
    def plain(self) -> PlainRule | None:
        """The rule for text that passes without effect; None if all text must be fed.

        White space at the end of the last frame must be sent first, and the reader be notified (`release_whitespace`).
        """
        text, end = self.text, self._text_end
        if self._reads_text or not end or end[-1] == "\n":
            return None  # they would change the missing line breaks before a call
        if text.leftovers and not text.leftovers.decided:
            return None
        if not text.reader:
            return ANYTHING
        return text.reader.plain_rule

    @property
    def plain_reasoning(self) -> PlainRule | None:
        """The same rule for native reasoning."""
        if not self.text.reasoning:
            return ANYTHING
        reader = self.text.reasoning.reader
        return None if reader.has_pending_whitespace else reader.plain_rule

    @property
    def held_call(self) -> HeldCall | None:
        """The rule for text that merely extends the buffered call; None if no call is buffered."""
        return self.text.reader.held_call if self.text.reader else None

    def feed(self, text: str) -> list[Event]:
        reading = self.text
        if reading.hear:
            reading.hear(text)
        events: list[Event] = reading.reader.feed(text) if reading.reader else [Text(text)]
        thoughts = reading.reasoning
        guess = thoughts.guess if thoughts else None
        if thoughts and guess and guess.opened and not guess.text and events and type(events[0]) is Text:
            thoughts.guess = guess = None  # the reply does not begin with an opening tag
        if reading.leftovers or (thoughts and (thoughts.kept or guess)):
            events = reading.read_more(text, events)
            thoughts = None
        if not self._reads_text:
            if not events:
                return events
            if len(events) == 1 and type(events[0]) is Text:  # the usual case
                self._text_end.extend(events[0].raw[-MAX_GAP_NEWLINES:])
                repeats = self.repeats.text
                repeats.write(events[0].raw)
                if repeats.tell() >= repeats.max_unchecked:
                    repeats.check()
                return events
        if thoughts:
            for event in events:
                if isinstance(event, Reasoning):
                    thoughts.feed(event.raw)
        return self._run_stages(events)

    def record_reasoning(self, text: str) -> None:
        self.text.record_reasoning(text)
        self.repeats.reasoning.add(text)

    def process_piece(self, delta: CallDelta) -> CallDelta | None:
        """Process a piece of a native call; return the part to send now, None if the call is buffered."""
        streamed = self._calls.streamed
        return streamed.process_piece(delta) if streamed else None

    def process_calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        again, rest = self.text.settle()
        return [*self._run_stages([*again, *rest]), *self._run_stages(self._calls.read_buffered(calls))]

    def pause(self) -> list[Event]:
        return self._run_stages(self.text.pause())

    def release(self) -> list[Event]:
        return self._run_stages(self.text.release())

    def record_late_content(self) -> None:
        reason = "the server continued after the end of its message"
        self._fault_recorder.record_intervention(Intervention("unread_calls", "dropped", "", reason))

    def end_calls(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        return self._calls.end(complete=complete)

    @property
    def sent_calls(self) -> Sequence[CallEnd]:
        return self._calls.ended

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        text, delivered, ended = self.text, self._limit.delivered, self._calls.ended
        again, rest = text.settle() if calls else ((), ())
        out = self._run_stages([*again, *rest, *text.finish([*self._calls.made, *calls], complete=complete)])
        if not (delivered or ended or calls):
            spoke = not all(map(str.isspace, self._text_end))
            out += self._run_stages(text.end_reasoning(spoke=spoke, complete=complete))
        out += self._run_stages(
            [*self._calls.list_others(), *self._calls.read_calls(calls, complete=complete)], ends=True
        )
        for repeats in (self.repeats.text, self.repeats.reasoning):
            if repeats.tell() >= STEP_CHARACTERS:
                repeats.check()
        text.learn(complete=complete)
        for call in ended:
            delivered.append(call.call.name)
            self._record_calls.record_forwarded(call)
        if complete:
            if self._demanded:
                self._fault_recorder.check_choice(self._demanded, delivered, constrained=self._grammar.constrained)
            for tool, reason in self._grammar.find_violations([*self._calls.made, *calls]):
                self._fault_recorder.record_intervention(Intervention("grammar", "missed", tool, reason))
        else:
            self.faults.clear()  # a retry would be cut off, too
        return out

    def _run_stages(self, events: Sequence[Event], *, ends: bool = False) -> list[Event]:
        """Run events through the stages; `ends` finishes the stages, too."""
        staged: list[Event] = []
        for event in events:
            if isinstance(event, Text | Reasoning):
                repeats = self.repeats.text if isinstance(event, Text) else self.repeats.reasoning
                repeats.add(event.raw)
                if self.repeats.cuts and repeats.found and isinstance(event, Text):
                    staged += self.repeats.cut(event.raw, repeats.found)
                    continue
            staged.append(event)
        for stage in self._stages:
            staged = [out for event in staged for out in stage.feed(event)]
            if ends:
                staged += stage.finish()
        if any(isinstance(event, REPORTED_EVENTS) for event in staged):
            staged = self._fault_recorder.take(staged)
        return self.text.without_repeated(staged) if self.text.repeated else staged


def _list_refusable_openers(plan: Plan, client: TextClient, tools: Collection[str]) -> list[str]:
    """List the texts with which a text client begins to parse a call that a policy may deny."""
    names = list_refusable_tools(plan.stack.guards, [*tools, *client.profile.known_tools])
    return conversation.list_openers(client.dialect, names)
