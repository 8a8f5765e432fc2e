"""Build the processing of a reply from its plan: readers of its text, the pipeline of each choice, the stream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

from msgspec.structs import replace as replace_fields

from vtc.apis import Request
from vtc.apis.bridge import BridgeDecoder, RenamedModel, RenamedTools, ReplyIdReader, WireNames
from vtc.apis.contract import Decoder, Json, ReferableReply, Reply
from vtc.apis.relay import Relay
from vtc.apis.relay.turn import SilentReply, TurnEncoder
from vtc.apis.whole import read_replies
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.dialects.reading.reader import Begins, ModelFacts, Reader, ReaderOptions
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.dialects.writing.history import PLACEHOLDER, render_sample_call
from vtc.events import CUT_OFF, Failure, Silence, Tool
from vtc.exchange.context import ExchangeContext
from vtc.exchange.remembering import echoes
from vtc.exchange.remembering.echoes import Echoes
from vtc.exchange.remembering.reasoning import ReasoningStore
from vtc.exchange.remembering.recorder import ReasoningRecorder
from vtc.exchange.replying.expectation import Expectation
from vtc.exchange.replying.fate import Fate
from vtc.exchange.replying.native_calls import make_name_reader
from vtc.exchange.replying.repeats import RepeatGuard
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.exchange.replying.silence import classify_silence
from vtc.exchange.replying.stages import Ids
from vtc.exchange.replying.stream import CodedStream, Stream
from vtc.exchange.replying.text_reading import Guess, LeftoverMarkup, ReasoningCalls, TextReading
from vtc.guards.chain import build_chain
from vtc.guards.patterns import Budget
from vtc.profiles.plan import Plan, ReadingPlan
from vtc.reporting import hints
from vtc.reporting.report import Report
from vtc.wire import compression

SAMPLE_TOOL = Tool("write_file", "", {"properties": {"path": {"type": "string"}, "text": {"type": "string"}}})
"""The tool whose call is read to warm up for a model's first reply."""
MAX_UNREAD_BYTES = 1 << 19
"""Bytes at the end of a stream that are searched for an unread call: some thousand frames."""
UNFINISHED_REASONS = ("pause_turn", "compaction", "function_call")
"""Finish reasons of replies that do not end a turn."""


def _warmth(reading: ReadingPlan) -> Hashable:
    """Return the cache key that records that the reading of such replies is compiled."""
    return "warm", reading.dialects, reading.thinking.tags, reading.markers, reading.answer


def is_warm(reading: ReadingPlan) -> bool:
    """Return True if everything that reads replies by this plan is compiled, or if it reads none."""
    return not (reading.dialects and reading.tools) or COMPILED_PATTERNS.get(_warmth(reading)) is not None


class ReplyFactory:
    """Builds the parts that process a reply. It retains facts of the request, but nothing of the conversation."""

    def __init__(
        self,
        context: ExchangeContext,
        fate: Fate,
        thoughts: ReasoningStore | None,
    ) -> None:
        """Set up the factory; `thoughts` stores the model's reasoning, if any is stored."""
        request, plan = context.request, context.plan
        self._context = context
        self._thoughts = thoughts
        self._client, self._server = context.client, context.server
        self._plan = plan
        self._fate = fate
        self.expected = Expectation()
        """Set whenever the request is encoded."""
        self._tools = plan.protocol.by_name
        self._has_several_choices = request.generation.wants_choices
        self._form = request.form_with(plan.stack.response_thoughts)
        self._model = request.model
        self._seed = fate.own.seed
        prefix, length = ("", 9) if plan.stack.ids == "alphanumeric9" else (self._client.call_ids, 24)
        self._ids = Ids(self._seed, request.call_ids, prefix, length, counted=plan.stack.ids == "kimi")
        self._budget = Budget()
        self._results = self._make_echo_finder(request)

    def _make_echo_finder(self, request: Request) -> Callable[[], Echoes | None] | None:
        """Return a function that searches the request's results for calls; it runs after the request was sent."""
        reading, client = self._plan.reading, self._plan.protocol.client_text
        if not (reading.dialects and self._tools) or reading.echo == "call":
            return None
        dialect = client.dialect if client else None
        return partial(
            echoes.find_echoes, request.messages, reading.dialects, self._tools, dialect, self._list_written_tools
        )

    @cached_property
    def model_facts(self) -> ModelFacts:
        """The facts that decide which texts are calls; the conversation is scanned once and then discarded."""
        look, self._results = self._results, None
        return self._make_model_facts(look() if look else None)

    def _make_model_facts(self, found: Echoes | None) -> ModelFacts:
        plan = self._plan
        steers = plan.reading.echo == "steer"
        blank = PLACEHOLDER if plan.protocol.prompt_tools else ""
        return ModelFacts(plan.reading.own, found, steers, steers or self._fate.strict, blank)

    def stream(
        self,
        coding: compression.ContentDecoder,
        report: Report,
        *,
        whole: bool,
        clock: Callable[[], float] = float,
        as_one: Callable[[bytes], bytes] | None = None,
        first: Stream | None = None,
        on_response: Callable[[Json], None] | None = None,
    ) -> Stream:
        """Create the stream of a reply; `first` is the stream that it continues, whose end is buffered.

        `on_response` is called with the reply if later requests may refer to it.
        """

        def pipeline() -> ReplyPipeline:
            is_first, plan = not relay.choices.pipelines, self._plan
            if not is_first and fate.strict and not self._has_several_choices:
                # A client that ignores the index of a choice would join the calls of all choices.
                protocol = replace_fields(plan.protocol, max_calls=0, limits_native=True)
                plan = replace_fields(plan, protocol=protocol)
            hear = recorder.write if recorder and recorder.keeps_text and is_first else None
            return self.make_pipeline(report, plan, hear, stop if stops and is_first else None, whole=whole)

        def silent(reply: SilentReply) -> Silence | None:
            faults = [fault for pipeline in relay.choices.pipelines.values() for fault in pipeline.faults]
            return None if any(fault.kind != "tool_choice" for fault in faults) else self._classify_silence(reply)

        def handle_error(error: bytes) -> Failure | None:
            report.errors.append(hints.explain_error(None, error))
            return self.expected.on_error(error)

        def stop(message: str) -> None:
            relay.stop_message = message

        stops = self._plan.stops_repeats and not (whole or self._has_several_choices)
        recorder = self._make_recorder()
        fate = replace(self._fate, bridged=self._is_bridged or self.expected.names is not None)
        encoder = self._client.encoder(self._form, self._plan.stack.response_drop)
        if on_response:
            cast(ReferableReply, encoder).on_response = on_response
        if self._plan.stack.silences and not self._has_several_choices:
            encoder = TurnEncoder(encoder, silent)
        relay = Relay(
            self._make_decoder(),
            encoder,
            pipeline,
            same_api=not fate.bridged,
            strict=fate.strict,
            whole=whole,
            cites=self._client.cites,
        )
        relay.on_prompt_tokens, relay.on_error = self.expected.on_count, handle_error
        make = Stream if isinstance(coding, compression.Identity) else partial(CodedStream, coding)
        stream = make(relay, report, fate, clock, whole=as_one, heard=recorder)
        if first:
            stream.continue_from(first)
        return stream

    def _classify_silence(self, reply: SilentReply) -> Silence | None:
        """Classify the silence of a reply; None if it was not silent, or if the model is not to be reminded."""
        plan, finish = self._plan, reply.finish
        goes_on = finish.reason in CUT_OFF or finish.native_reason in UNFINISHED_REASONS
        if goes_on or (self._thoughts and self._thoughts.reminded_last):
            return None
        offered = bool(plan.offered) and plan.tool_choice != "none"
        kind = classify_silence(reply.text, thought=reply.has_reasoning, offered=offered)
        return kind if kind in plan.stack.silences else None

    @property
    def _is_bridged(self) -> bool:
        return self._server is not self._client

    def _make_decoder(self) -> Decoder:
        """Create the decoder of the server's frames, with the client's names and model."""
        drop, names = self._plan.stack.response_drop, self.expected.names
        decoder = self._server.decoder(self._server.layout.bridged_form if self._context.seals else self._form, drop)
        if self._context.kept:
            decoder = ReplyIdReader(decoder, self._context.kept.reply_id_path, self._context.kept.record_id)
        if self._context.seals:
            id_ = hashlib.sha256(self._seed.encode()).hexdigest()[:24]
            names, created = names or WireNames(()), self._fate.own.created
            return BridgeDecoder(
                decoder, names, self._model, id_, self._context.seals, self._server.signs_reasoning, created
            )
        if self._plan.server_model:
            decoder = RenamedModel(decoder, self._server.layout.model_paths, self._model)
        return RenamedTools(decoder, names) if names else decoder

    def _make_recorder(self) -> ReasoningRecorder | None:
        """Create the recorder of a reply for later requests, if they need anything of it."""
        past, kept = self._thoughts, self._context.kept
        if not past:
            return ReasoningRecorder(None, plain=False, signed=False, store_reply=kept.store_reply) if kept else None
        write = self._plan.protocol.write if past.as_text else None
        sections = write.sections[:1] if write else ()
        around = tuple(part.strip() for text in sections for part in text.partition("{calls}")[::2] if part.strip())
        closers = [close for _, close in self._plan.reading.thinking.tags] if write else []
        return ReasoningRecorder(
            past.store_turn,
            around if write else None,
            closers,
            plain=past.recalls,
            signed=self._server.signs_reasoning,
            between=self._server.seals != "field",
            seals=self._context.seals,
            store_reply=kept.store_reply if kept else None,
        )

    def make_pipeline(
        self,
        report: Report,
        plan: Plan,
        hear: Callable[[str], None] | None = None,
        stop: Callable[[str], None] | None = None,
        *,
        whole: bool,
    ) -> ReplyPipeline:
        """Create the pipeline of one choice of the reply; `stop` ends a reply that repeats itself."""
        think = self._plan.reading.thinking
        reads = bool(self._plan.reading.dialects and self._tools)
        dialects = self._plan.reading.dialects
        in_pieces = plan.in_pieces and not whole and bool(self._client.in_pieces or plan.protocol.client_text)
        begins = think.begins(whole=whole)
        kept = begins == "reasoning" and think.to in ("keep", "opened")
        opened = think.to == "opened" and not kept

        def beside_calls(begins: Begins) -> tuple[Reader, LeftoverMarkup]:
            return self.make_reader(begins, dialects=()), LeftoverMarkup(dialects, self.make_reader())

        guards, policies, client = None, plan.stack.guards, plan.protocol.client_text
        if policies or client:
            declared = plan.unoffered
            guards = build_chain(policies, self._tools, declared=declared, is_text=bool(client), budget=self._budget)
        repeats = RepeatGuard(report, stop, cuts=plan.stops_repeats and stop is None)
        text = TextReading(make_name_reader(dialects, self.make_reader), hear, repeats=repeats)
        if reads:
            reader = self.make_reader(begins, incremental=in_pieces)
            guess = Guess(opened, whole) if opened or (begins == "reasoning" and not kept) else None
            thoughts = ReasoningCalls(self.make_reader(), guess, think.may_show, kept)
            text = TextReading(text.read_name, hear, reader, thoughts, think.learned, beside_calls, repeats=repeats)
        return ReplyPipeline(
            plan,
            self._tools,
            text,
            self._ids,
            report,
            guards,
            expected=self.expected,
            crosses=self._fate.bridged,
        )

    def warm(self) -> None:
        """Compile everything that reading the reply needs, by reading a sample, unless it is compiled already."""
        _ = self.model_facts
        if not is_warm(self._plan.reading):
            COMPILED_PATTERNS.get_or_make(_warmth(self._plan.reading), self._read_sample, lambda _: 0, lasting=True)

    def _read_sample(self) -> bool:
        """Read calls of a sample tool in small pieces; the client's own tool names must not be retained for it."""
        plan, thinking, facts = self._plan.reading, self._plan.reading.thinking, self._make_model_facts(None)
        call = render_sample_call(plan.dialects[0], SAMPLE_TOOL, {"path": "a", "text": "b < c"})
        for begins in dict.fromkeys(thinking.begins(whole=whole) for whole in (False, True)):
            options = ReaderOptions(think=thinking.to, begins=begins)
            reader = Reader(plan.grammar, {SAMPLE_TOOL.name: SAMPLE_TOOL}, options, facts)
            thought = "".join(
                f"{'' if begins == 'reasoning' else opened}\n{closed}" for opened, closed in thinking.tags[:1]
            )
            text = f"{thought}\nIt is `a` < b:\n\n{call}"
            for at in range(0, len(text), 4):
                reader.feed(text[at : at + 4])
            reader.finish()
        return True

    def find_possible_call(self, received: bytes) -> tuple[hints.PossibleCall, Reply] | None:
        """Find text that resembles a call in the bytes of the server's reply; None if it contains native tool calls.

        Of a long stream only the end is read, because other streams wait meanwhile.
        """
        framing = self._server.framing
        if len(received) > MAX_UNREAD_BYTES and framing.matches(received[:MAX_UNREAD_BYTES]):
            end = received.find(framing.end, len(received) - MAX_UNREAD_BYTES)
            received = received[end + len(framing.end) :] if end >= 0 else received
        try:
            choices = read_replies(self._server, received)
        except ValueError:
            return None
        if any(reply.message.calls for reply in choices):
            return None
        names = {*self._tools, *(self.expected.names.changed.values() if self.expected.names else ())}
        found = ((hints.find_possible_call(reply.message.text, names), reply) for reply in choices)
        return next(((call, reply) for call, reply in found if call), None)

    def _list_written_tools(self) -> dict[str, Tool]:
        """Return the tools by the client's names and by the server's."""
        tools, changed = self._plan.reading.tools, self.expected.names.changed if self.expected.names else {}
        return {**tools, **{wire: tools[name] for name, wire in changed.items() if name in tools}}

    def make_whole_reader(self) -> Reader:
        """Create a reader for the text of a whole reply."""
        return self.make_reader(self._plan.reading.thinking.begins(whole=True))

    def make_reader(
        self, begins: Begins = "text", *, dialects: Sequence[Description] | None = None, incremental: bool = False
    ) -> Reader:
        """Create a reader for text of a reply, in these dialects or in all of the plan."""
        plan, client = self._plan.reading, self._plan.protocol.client_text
        read = plan.dialects if dialects is None else tuple(dialects)
        options = ReaderOptions(
            lenient=plan.lenient,
            unknown_tools=plan.unknown_tools,
            max_call_bytes=plan.max_call_bytes,
            think=plan.thinking.to,
            begins=begins,
            incremental=incremental,
            client_dialect=client.dialect.name if client else None,
        )
        grammar = compile_grammar(read, plan.thinking.tags, plan.markers, plan.answer)
        return Reader(grammar, self._list_written_tools(), options, self.model_facts)
