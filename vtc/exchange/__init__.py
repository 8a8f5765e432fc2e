"""One exchange from top to bottom: a request and its reply as they pass through VTC.

    request body -> Session.open(…) -> session.encode_request()            sent to the model server
    reply        -> session.stream(…).feed(…) or session.whole.rewrite(…)  sent to the client
    session.report                                                         a record of VTC's actions, as plain data

VTC writes some replies itself (`session.answer`), and retries some requests with a question about the reply
(`session.whole.rewrite_with_retry`).

Nothing here does I/O, reads a clock or draws a random number. `replying/fate.py` decides the fate of traffic that
cannot be read. VTC's own faults are caught in `pass_through_on_fault` (requests), `Stream` and `WholeReplies`
(replies).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from vtc.apis import Api, Request, RequestError, find_api
from vtc.apis.seals import SealSource
from vtc.exchange.asking import prompt
from vtc.exchange.asking.reminder import Reminder
from vtc.exchange.asking.request import (
    MAX_REQUESTS,
    Outgoing,
    ReceivedRequest,
    RequestEncoder,
    SentRequest,
    pass_through_on_fault,
)
from vtc.exchange.context import ExchangeContext
from vtc.exchange.remembering.conversation import Conversation
from vtc.exchange.remembering.past import PlannedExchange, make_plan_maker
from vtc.exchange.remembering.responses import ResponseStore
from vtc.exchange.replying.factory import ReplyFactory, is_warm
from vtc.exchange.replying.fate import JSON_MEDIA_TYPE, WITHHELD, Fate, LocalReply, OwnReplies
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.exchange.replying.stream import Stream
from vtc.exchange.whole_replies import Ask, NoAnswer, Rejection, WholeReplies
from vtc.json_text import decode_json, encode_json, is_unambiguous
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.planner import REPLANNING_QUIRKS, Planner
from vtc.reporting.case import Case
from vtc.reporting.report import Parties, Report, choose_model_name
from vtc.scrub import format_exception
from vtc.wire import compression
from vtc.wire.sse import EventStream

__all__ = ["WITHHELD", "Ask", "Fate", "NoAnswer", "PlannedExchange", "PlannedRequest", "Rejection", "Session", "Stream"]

logger = logging.getLogger(__name__)
NO_FACTS = Facts()


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A decoded request with its plan; `create_session` does the rest, which is slow for a new model."""

    api: Api
    request: Request
    body: bytes
    planned: PlannedExchange
    seed: str
    facts: Facts = NO_FACTS
    secrets: Sequence[bytes] = (b"",)
    """Keys derived from these sign the server's seals for the client."""

    @property
    def is_warm(self) -> bool:
        """True if everything that reading the reply needs is compiled."""
        return is_warm(self.planned.plan.reading)

    def create_session(self) -> Session:
        """Create the session; raises `RequestError`."""
        with pass_through_on_fault(self.facts.secrets):
            return Session(self)


class Session:
    """One request in an API that VTC speaks, and its plan."""

    def __init__(self, opened: PlannedRequest) -> None:
        """Set up the session of a planned request."""
        api, request, plan, facts = opened.api, opened.request, opened.planned.plan, opened.facts
        parties = Parties(plan.stack.client.name, asked=request.model, api=api.name)
        self.report = Report(parties, secrets=facts.secrets)
        if plan.protocol.client_text:
            self.report.parties.form = plan.protocol.client_text.dialect.name
        self._api = api
        self._request = request
        self._received = ReceivedRequest(opened.body, facts.headers)
        # Keep host, port and credentials only; `facts` would keep the request alive.
        self._seal_source = SealSource(opened.secrets, facts.host, facts.port, facts.credentials)
        self._build_parts(opened.planned, OwnReplies(api, request, plan.protocol, opened.seed, facts.time), {})

    def _build_parts(self, planned: PlannedExchange, own: OwnReplies, quirks: Mapping[str, Any]) -> None:
        """Create the parts that depend on the plan, at first and after a rejection that changes the plan.

        `quirks` holds the quirks learned from rejections of this request.
        """
        self.plan, self._past, self._replan, kept = planned
        plan, past, request = self.plan, self._past, self._request
        apis = plan.stack.apis
        self.server = self._api if not apis or self._api.name in apis else find_api(apis[0]) or self._api
        # Flags in headers belong to one API, so another API's server gets none
        # (`vtc.exchange.target.translate_headers`).
        has_flags = self.server.place.flags == self._api.place.flags
        received = self._received if has_flags else ReceivedRequest(self._received.body, {})
        self.report.parties.server_api = self.server.name if self.is_bridged else ""
        self.report.parties.model, self.report.parties.server_model = plan.stack.model.name, plan.server_model
        self.report.why[:] = plan.why
        self.report.request[:] = plan.request_lines()
        self.fate = Fate(plan.is_strict, self.is_bridged, replace(own, protocol=plan.protocol), self.report.secrets)
        seals = None
        if self.is_bridged:
            opening = Conversation(request.messages).opening
            seals = self._seal_source.make_key(opening, self.server.name, plan.server_model or request.model)
        context = ExchangeContext(self._api, self.server, request, plan, self.report, seals, kept)
        self._factory = ReplyFactory(context, self.fate, past.reasoning if past else None)
        self._encoder = RequestEncoder(context, received, self._factory, quirks)
        store = past.responses.make_recorder(request) if past and self.is_bridged else None
        self._make_stream = partial(self._factory.stream, report=self.report, on_response=store)
        reminder = Reminder(request, self._encoder, past, self.report)
        self.whole = WholeReplies(context, self._factory, self._encoder, self.fate, reminder, store)
        """Rewrites replies that are not streamed."""
        self._outgoing: Outgoing | None = None  # set once the request has been rewritten

    @classmethod
    def open(
        cls,
        api: Api,
        body: bytes,
        facts: Facts,
        planner: Planner,
        seed: str,
        memory: Memory | None = None,
        secrets: Sequence[bytes] = (b"",),
    ) -> Session:
        """Decode and plan a request; raises `RequestError`, and then the caller forwards the body unchanged.

        `seed` must differ for every exchange because ids of calls are derived from it. `memory` stores the facts that
        later exchanges need, and nothing else. `secrets` sign the values that clients send back: the first one
        signs, all verify.
        """
        return cls.plan_request(api, body, facts, planner, seed, memory, secrets).create_session()

    @staticmethod
    def plan_request(
        api: Api,
        body: bytes,
        facts: Facts,
        planner: Planner,
        seed: str,
        memory: Memory | None = None,
        secrets: Sequence[bytes] = (b"",),
    ) -> PlannedRequest:
        """Decode and plan a request: the first part of `open`, before `PlannedRequest.create_session`."""
        with pass_through_on_fault(facts.secrets):
            request = api.request(body, facts.path)
            if memory and (resolved := ResponseStore(memory, facts.whose).resolve_references(request)):
                body, request = resolved, api.request(resolved, facts.path)
            facts = replace(
                facts, model=request.model, body=request.fields, path=api.place.whole_reply_path(facts.path)
            )
            planned = make_plan_maker(planner, facts, request, memory, seed)({})
            plan = planned.plan
            # Decode the request again without repairs of its shape if a profile disables them, or re-encoded if the
            # server could parse other tools or messages from its bytes than VTC did.
            keeps_shape = bool(request.body.lines) and plan.steps.get("shapes") is False
            is_ambiguous = plan.is_strict and not is_unambiguous(body)
            if keeps_shape or is_ambiguous:
                body = encode_json(decode_json(body)) if is_ambiguous else body
                request = api.request(body, facts.path, unrepaired=keeps_shape)
        return PlannedRequest(api, request, body, planned, seed, facts, secrets)

    def encode_request(self) -> bytes:
        """Rewrite the body for the model server, once; return the original bytes if the plan changes nothing.

        Raises `RequestError`, and then the caller forwards the body unchanged. Call it before `stream`, which discards
        the conversation.
        """
        return self._rewrite().body

    def answer(self) -> LocalReply | None:
        """Return a reply or error in the client's form in place of the server's; None to ask the server.

        It is an error if the request must not be sent.
        """
        stop, own = self._rewrite().stop, self.fate.own
        if stop or (self.is_bridged and self._request.idle):
            return own.convert_to_asked(own.render_text(f"Stopped: {stop}. Say how to go on." if stop else ""))
        return self.fate.render_rejection(self.server.name)

    def _rewrite(self) -> Outgoing:
        if self._outgoing is None:
            plan, request = self.plan, self._request
            try:
                with pass_through_on_fault(self.report.secrets):
                    stop, steer = self._answer_to_loops
                    lines, messages = self.report.request, request.messages
                    add = None if self.is_bridged else partial(self.server.writer.with_reasoning, field=plan.thoughts)
                    if self._past:
                        messages = self._past.restore_conversation(request, add, self._encoder.seals, lines)
                    body = self._encoder.encode(prompt.prepare_messages(request, messages, plan, steer, lines))
            except RequestError as error:
                self.fate.decide_request(error, self.report)
                self._encoder.forget()
                stop, body = "", self._received.body  # the policies still apply to its reply
            self._outgoing = Outgoing(body, stop)
            if self._past and not stop:
                self.report.prefix = self._past.record_prompt(*self._encoder.sent_prompt, request)
        return self._outgoing

    @cached_property
    def _answer_to_loops(self) -> tuple[str, str]:
        """Return the reason to stop the agent, and the remark that steers the model out of a loop; report both."""
        return prompt.answer_to_loops(self.plan, self._request, self._factory.make_whole_reader, self.report)

    def encode_after_rejection(self, body: bytes, status: int) -> bytes | None:
        """Encode the request with the quirks of the server's error, for a retry; None if that changes nothing.

        Call it before `stream`, at most `MAX_REQUESTS` - 1 times; call `confirm_quirks` when the server accepts the
        request.
        """
        self._rewrite()
        request = self._encoder.encode_after_rejection(body, status)
        if request is None and self._replan and not self._encoder.learned_quirks.keys().isdisjoint(REPLANNING_QUIRKS):
            sent = (self._encoder.sent_body, self.sent_request)
            prefix = self.report.prefix
            quirks = self._encoder.learned_quirks
            self._build_parts(self._replan(quirks), self.fate.own, quirks)
            request = self._rewrite().body
            self.report.prefix = prefix  # compared with the last turn's prompt, not with the rejected one
            return request if (self._encoder.sent_body, self.sent_request) != sent else None
        if request and self._past:
            self._past.record_prompt(*self._encoder.sent_prompt, self._request)
        return request

    def retry_rejected(self, rejected: Rejection, ask: Ask) -> Generator[Any, Any, bytes | Rejection]:
        """Retry with the quirks learned from each rejection; return the body of the reply, or the last rejection.

        If every retry is rejected for another reason, the quirks learned before the last one still apply to the next
        request of the conversation.
        """
        for _ in range(MAX_REQUESTS - 1):
            again = self.encode_after_rejection(rejected.body, rejected.status)
            if again is None:
                return rejected
            try:
                body = yield from ask(again)
            except NoAnswer as failed:
                self.report.errors.append(f"retried without the rejected parts: {failed}")
                if not failed.status:
                    return rejected
                rejected = Rejection(failed.status, failed.error)
            else:
                self.confirm_quirks()
                self.report.errors.clear()
                return body
        self.encode_after_rejection(rejected.body, rejected.status)
        return rejected

    def confirm_quirks(self) -> None:
        """Store the quirks of this request, because the server accepted the request with them."""
        self._encoder.confirm_quirks()

    @property
    def learned_quirks(self) -> Mapping[str, Any]:
        """The quirks learned from rejections of this request: steps by name."""
        return self._encoder.learned_quirks

    @property
    def sent_request(self) -> SentRequest:
        """The model, the reply's form and the changed headers of the request to the server."""
        return self._encoder.sent_request

    @property
    def is_bridged(self) -> bool:
        """True if client and server speak different APIs."""
        return self.server is not self._api

    @property
    def may_change_reply(self) -> bool:
        """True if this plan can change the reply. If False, the body is streamed through unread."""
        return self.plan.may_change_reply or self.is_bridged or self._encoder.folds_stream

    @property
    def media_type(self) -> str:
        """The media type of the reply that the client asked for."""
        return self._api.framing.media_type if self._request.stream else JSON_MEDIA_TYPE

    def is_streamed(self, media_type: str) -> bool:
        """Return True if a reply of this media type is forwarded as a stream."""
        has_asked_form = self._request.stream or not (self.is_bridged or self._encoder.folds_stream)
        return media_type == self.server.framing.media_type and has_asked_form

    def warm(self) -> None:
        """Prepare the reading of the reply before it arrives.

        Scanning a long conversation takes milliseconds; compiling for the first reply of a model takes a tenth of a
        second (`PlannedRequest.is_warm`).
        """
        try:
            self._factory.warm()
        except Exception as error:  # reading the reply reports it
            logger.debug(
                "vtc: warming up failed; the reply will be compiled when it arrives\n%s", format_exception(error)
            )

    def stream(self, content_encoding: str = "", clock: Callable[[], float] = float, *, whole: bool = False) -> Stream:
        """Create the stream for a reply; `clock` measures its work. Raises `UnsupportedEncoding`.

        A `whole` reply is buffered up to its end, and passed through if it is too long.

        From then on the session holds nothing of the conversation, because a stream may be long. The exception is a
        reply whose turn may need a retry at its end.
        """
        self._encoder.confirm_held_quirks()
        decoder = compression.make_decoder(content_encoding)
        if whole or not self.plan.stack.silences:
            self._forget()
        rewrite_whole = self.whole.rewrite if whole or isinstance(self.server.framing, EventStream) else None
        stream = self._make_stream(decoder, whole=False, clock=clock, as_one=rewrite_whole)
        if whole:
            stream.collect()
        return stream

    def create_pipeline(self, *, whole: bool) -> ReplyPipeline:
        """Create the pipeline for the text of a reply that arrives without frames, as a `whole` or in pieces."""
        return self._factory.make_pipeline(self.report, self.plan, whole=whole)

    def continue_reply(self, first: Stream, clock: Callable[[], float] = float) -> Stream:
        """Create the stream for the reply to `whole.reminder.encode_question`, which continues the first reply."""
        if first.turn:
            self.whole.reminder.mark_answered(first.turn)
        self._forget()
        return self._make_stream(compression.make_decoder(""), whole=False, clock=clock, first=first)

    def report_unread_call(self, received: Callable[[], bytes | None]) -> Callable[[str], Case] | None:
        """Report text that resembles a call if no call was read.

        `received` returns the reply as the server sent it, or its end. Return a function that creates a case of the
        reply, given an id for its name; None if nothing was found.
        """
        if not self.may_change_reply or self.report.calls or self.report.outcome not in ("", "rewritten"):
            return None
        call, reply = self._factory.find_possible_call(received() or b"") or (None, None)
        if call is None or reply is None:
            return None
        self.report.unread = call._asdict()
        plan, parties, secrets = self.plan, self.report.parties, self.report.secrets
        name = choose_model_name(parties.model, parties.asked)
        return lambda id_: Case.record_reply(f"{name} {id_}", reply, plan.reading, secrets)

    def _forget(self) -> None:
        """Discard the conversation once the reply factory has scanned it."""
        _ = self._factory.model_facts  # cached, so that the conversation is scanned before it is discarded
        self._request.forget()
        self._encoder.forget()
        self._replan = None
        self._received = ReceivedRequest(self._received.body)
