"""One exchange, from top to bottom: a request and its reply on their way through VTC.

    request body -> Exchange.open(…) -> exchange.request()      what goes to the model server
    reply        -> exchange.stream(…).feed(…) or exchange.body(…)   what goes to the client
    exchange.report                                             what was done, as plain data

Some replies are our own (`exchange.answer`), and some requests are sent again with a question about the reply
(`exchange.rewrite_with_retry`).

Nothing here does I/O, reads a clock or draws a random number. Bad traffic fails open in one place for each direction:
`as_it_came` for a request (the body goes on as it came), `Stream` for a reply (what waits is given back, the rest
passes).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from vtc.apis import Api, BadRequest, Request, may_be_reply, named
from vtc.apis.contract import FULL
from vtc.apis.crossing import origin_of
from vtc.apis.whole import NoReply, folded, joined, streamed
from vtc.apis.whole import text as summary_of
from vtc.events import Failure
from vtc.exchange.asking import prompt
from vtc.exchange.asking.request import Outgoing, RequestEncoder, SentRequest, as_it_came
from vtc.exchange.remembering.past import History, Planned, planning
from vtc.exchange.replying.own_reply import WITHHELD, own_reply, reply_in_error, saying
from vtc.exchange.replying.reply import ReplyPipeline, WholeReply
from vtc.exchange.replying.stages import ReplyFault
from vtc.exchange.replying.stream import Stream
from vtc.exchange.replying.way import ReplyFactory, is_warm
from vtc.json_text import decode, encode, is_proper
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.plan import Plan
from vtc.profiles.planner import PROMPT, Planner
from vtc.reporting import hints
from vtc.reporting.report import Report
from vtc.scrub import told
from vtc.wire import compression
from vtc.wire.framing import Framing
from vtc.wire.sse import EventStream

__all__ = ["WITHHELD", "Ask", "Exchange", "NoAnswer", "Opening", "Stream"]

logger = logging.getLogger(__name__)
NOBODY = Facts()


class NoAnswer(Exception):
    """Upstream was asked once more, and there is no reply; the text says why.

    If it answered with an error, that has a `status` and a body, in `error`.
    """

    def __init__(self, why: str, status: int = 0, error: bytes = b"") -> None:
        super().__init__(why)
        self.status = status
        self.error = error


type Ask = Callable[[bytes], Generator[Any, Any, bytes]]
"""Sends a request's body to where the exchange's own went and returns the body of the reply; raises `NoAnswer`.

It yields what somebody else has to wait for.
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """A request that is decoded and decided about, and of which no exchange was made yet."""

    _plan: Plan
    _make: Callable[[], Exchange]
    _facts: Facts

    @property
    def is_warm(self) -> bool:
        """True if all is compiled that reading its reply takes."""
        return is_warm(self._plan.reading)

    def exchange(self) -> Exchange:
        """Make the exchange; raises `BadRequest`."""
        with as_it_came(self._facts.secrets):
            return self._make()


class Exchange:
    """One request of an API that VTC speaks, and the plan for it."""

    def __init__(
        self,
        api: Api,
        request: Request,
        body: bytes,
        plan: Plan,
        seed: str,
        facts: Facts = NOBODY,
        past: History | None = None,
        planned: Planned | None = None,
    ) -> None:
        """`planned` decides anew, given what the server taught meanwhile; without it, no refusal changes the plan."""
        self.report = Report(plan.stack.client.name, plan.stack.model.name, request.model, secrets=facts.secrets)
        if plan.protocol.client_text:
            self.report.form = plan.protocol.client_text.dialect.name
        self._api = api
        apis = plan.stack.apis
        self.server = api if not apis or api.name in apis else named(apis[0]) or api
        self._request = request
        self._body = body
        self._seed = seed
        if self.crosses:
            self.report.server_api = self.server.name
        self._origin = origin_of(self.server.name, facts.host, facts.port)
        self._planned = planned
        self._begin(plan, past, {})

    def _begin(self, plan: Plan, past: History | None, taught: Mapping[str, Any]) -> None:
        """Make what depends on the plan; `taught` are the steps that refusals of this request taught."""
        self.plan = plan
        self._past = past
        crossing = [f"{self._api.name} -> {self.server.name}"] if self.crosses else []
        self.report.why[:] = plan.why
        self.report.request[:] = [*plan.request_lines(), *crossing]
        of = (self._api, self.server, self._request)
        self._way = ReplyFactory(*of, plan, self._seed, self._origin, past.thoughts if past else None)
        self._sending = RequestEncoder(*of, self._body, plan, self._way, self.report, self._origin, taught)
        self._outgoing: Outgoing | None = None  # when it was asked for

    @classmethod
    def open(
        cls,
        api: Api,
        body: bytes,
        facts: Facts,
        planner: Planner,
        seed: str,
        memory: Memory | None = None,
    ) -> Exchange:
        """Decode a request and decide about it; raises `BadRequest`, and then the body goes on as it came.

        `seed` must differ for every exchange: the ids of calls are derived from it. What later exchanges need of this
        one is kept in `memory`, and nothing else.
        """
        return cls.opening(api, body, facts, planner, seed, memory).exchange()

    @classmethod
    def opening(
        cls, api: Api, body: bytes, facts: Facts, planner: Planner, seed: str, memory: Memory | None = None
    ) -> Opening:
        """Begin what `open` does, and leave what takes long where this model is new to `Opening.exchange`."""
        with as_it_came(facts.secrets):
            request = api.request(body, facts.path)
            facts = replace(facts, model=request.model, body=request.fields, path=api.place.whole(facts.path))
            planned = planning(planner, facts, request, memory)
            plan, past = planned({})
            if plan.is_strict and not is_proper(body):  # its server may read another request than VTC
                body = encode(decode(body))
                request = api.request(body, facts.path)
        return Opening(plan, partial(cls, api, request, body, plan, seed, facts, past, planned), facts)

    # The request

    def request(self) -> bytes:
        """Rewrite the body for the model server, once; the very bytes that came unless the plan says otherwise.

        Raises `BadRequest`, and then the body goes on as it came. To be asked for before `stream`, which forgets the
        conversation.
        """
        return self._rewritten().body

    def answer(self, created: int) -> tuple[str, bytes] | None:
        """Write a reply in upstream's place, as its content type and body; None to ask upstream.

        It is a complete one, in the form that the client asked for; `created` is the time in seconds since 1970.
        """
        stop, loads = self._rewritten().stop, self.crosses and self._request.idle
        if not (stop or loads):
            return None
        body = self._own(f"Stopped: {stop}. Say how to go on." if stop else "", created)
        if not self._request.stream:
            return "application/json", body
        return self._api.framing.media_type, streamed(self._api, body, self._request)

    def refused(self) -> bytes | None:
        """Write an error of the client's API for a request that may not be sent; None for any other.

        It would mean another thing to the server, or declares tools in a form in which no policy sees them.
        """
        refers, unread = self._request.refers, self._request.unread
        if self.crosses and refers:
            said = f"{refers} is known to no server of {self.server.name}: send the whole conversation"
        elif self.plan.is_strict and unread:
            said = f"{unread} is not read, and a policy forbids some tools: declare them in `tools`"
        else:
            return None
        return encode(self._api.error(Failure(said), 400))

    def _own(self, text: str, created: int = 0) -> bytes:
        """Make a whole reply of our own."""
        return own_reply(self._api, self._request, self.plan, text, self._seed, created)

    def _rewritten(self) -> Outgoing:
        if self._outgoing is None:
            plan, request = self.plan, self._request
            try:
                with as_it_came(self.report.secrets):
                    stop, steer = self._answer_to_loops
                    lines, field = self.report.request, None if self.crosses else plan.thoughts
                    came = self._past.conversation(request, field, lines) if self._past else request.messages
                    messages = prompt.prepared(request, came, plan, steer, lines)
                    body = self._sending.encoded(messages)
            except BadRequest as error:
                if not self.plan.is_strict:
                    raise
                self.report.failures.append(f"the request went on as it came: {error}")
                self._sending.forget()
                stop, messages, body = "", None, self._body  # its reply is held to the policies all the same
            self._outgoing = Outgoing(body, messages, stop)
            if self._past and not stop:
                self.report.prefix = self._past.kept_prefix(*self._sending.left, request)
        return self._outgoing

    @cached_property
    def _answer_to_loops(self) -> tuple[str, str]:
        plan, whole = self.plan, partial(self._way.reader, self.plan.reading.thinking.begins(whole=True))
        return prompt.answer_to_loops(plan, self._request, whole, self.report)

    def again(self, body: bytes, status: int) -> bytes | None:
        """Encode the request with what the server's error teaches; None if that is nothing, or changes nothing.

        To be asked for before `stream`, at most `MOST_ASKED` - 1 times; then with `learned`, if the server took it.
        """
        went = self._sending.again(self._rewritten().messages, body, status)
        if went is None and self._sending.taught.get(PROMPT) and self._planned:
            before, prefix = self._sending.sent, self.report.prefix
            self._begin(*self._planned(self._sending.taught), self._sending.taught)
            went, self.report.prefix = self._rewritten().body, prefix
            return went if self._sending.sent != before else None
        if went and self._past:
            self._past.kept_prefix(*self._sending.left, self._request)
        return went

    def learned(self) -> None:
        """Take note that the server took the request with what its refusals taught."""
        self._sending.learned()

    @property
    def asked(self) -> SentRequest:
        """The model and the form of the reply that the server is asked for."""
        return self._sending.asked

    @property
    def crosses(self) -> bool:
        """True if the server's API is another one than the client's."""
        return self.server is not self._api

    @property
    def streams(self) -> bool:
        """True if the client is to be given a stream; where no API is crossed it is whatever the server gives it."""
        return self._request.stream or not self.crosses

    # The reply

    @property
    def reads(self) -> bool:
        """True if this plan can change the reply. If False, the body is streamed through unread."""
        return self.plan.may_change_reply or self.crosses

    def warm(self) -> None:
        """Compile what reading the reply takes before it comes: for the first with a model that is a tenth of a second.

        It is done once for all exchanges of the kind (`Opening.is_warm`).
        """
        try:
            self._way.warm()
        except Exception as error:  # the reply itself will say so
            logger.debug("vtc: nothing is compiled beforehand\n%s", told(error))

    @property
    def came(self) -> Framing:
        """How a streamed reply of the server's is cut into frames."""
        return self.server.framing

    @property
    def framing(self) -> Framing:
        """How a streamed reply is cut into frames for the client."""
        return self._api.framing

    def stream(self, content_encoding: str = "", clock: Callable[[], float] = float, *, whole: bool = False) -> Stream:
        """Make the way of a streamed reply, from bytes to bytes; `clock` measures it. Raises `UnsupportedEncoding`.

        A `whole` one is kept up to its end, and left alone if it is too long.

        From then on the exchange holds nothing of the conversation, as a stream may go on for long.
        """
        decoder = compression.decoder(content_encoding)
        self._request.forget()
        self._sending.forget()
        self._planned = None
        self._outgoing = self._outgoing and replace(self._outgoing, messages=None)
        as_one = self.body if whole or isinstance(self.came, EventStream) else None
        stream = self._way.stream(decoder, self.report, [], whole=False, clock=clock, as_one=as_one)
        if whole:
            stream.collect()
        return stream

    def whole(self, body: bytes) -> bytes:
        """Rewrite a whole reply in the form in which it came, be it JSON or a stream; as it came if that fails.

        Where a policy refuses calls, what cannot be read does not leave, unless it can hold no call.
        """
        reply = self._attempt(body)
        self.report.adopt(reply.report)
        return reply.body

    def body(self, body: bytes) -> bytes:
        """Rewrite a whole reply as `whole` does, in the form that the client asked for."""
        return self._as_asked(self.whole(body))

    def from_error(self, body: bytes, created: int, status: int | None = None) -> tuple[str, bytes] | None:
        """Write the reply that an error of the server holds, as its content type and body, in the form asked for.

        None if the server's profile knows of none in there, or if that calls no tool. `created` as for `answer`.
        """
        reader = partial(self._way.reader, self.plan.reading.thinking.begins(whole=True))
        text = reply_in_error(self.plan.stack.server.errors, body, status, reader)
        reply = self._attempt(saying(self.server, self._request, text, self._seed, created)) if text else None
        if reply is None or reply.report.failures:
            return None
        self.report.adopt(reply.report)
        self.report.intervened("errors", "read", "", f"the server answered {status} with the reply in its error")
        if not self._request.stream:
            return "application/json", reply.body
        return self.framing.media_type, streamed(self._api, reply.body, self._request)

    def failed(self, body: bytes, status: int) -> tuple[int, bytes] | None:
        """Write an error of the server's as one of the client's API, with its status; None if that is the same.

        `status` is that of the server's answer. Its words are kept, whatever form they came in. That a prompt is too
        long is said as the client's own API says it, so that agents make it shorter.
        """
        failure = self._sending.full(body, status)
        if failure is None and self.crosses:
            failure = Failure(hints.words_of(body) or f"the server answered {status}")
        if failure is None:
            return None
        status = 400 if failure.kind == FULL else status
        return status, encode(self._api.error(failure, status))

    def rewrite_with_retry(self, body: bytes, ask: Ask) -> Generator[Any, Any, bytes]:
        """Rewrite as `body` does, but ask upstream again, where the plan says so, about faults of its reply."""
        first = reply = self._attempt(body)
        retry = self.plan.stack.retry
        for _ in range(retry.max if retry else 0):
            wrong = [fault for fault in reply.faults if retry and fault.kind in retry.on]
            if not wrong:
                break
            try:
                body = yield from ask(self._correction(body, wrong))
            except NoAnswer as error:
                self.report.intervened("retry", "failed", "", str(error))
                break
            except Exception as error:
                logger.error("vtc: upstream is not asked again\n%s", told(error, self.report.secrets))
                self.report.failures.append(f"{type(error).__name__}: {error}")
                break
            reply = self._attempt(body)
            self.report.intervened("retry", "asked", "", wrong[0].reason)
        left = [fault.reason for fault in reply.faults if retry and fault.kind in retry.on]
        left = left or reply.report.failures or reply.report.errors
        if reply is not first and left:
            self.report.intervened("retry", "exhausted", "", left[0])
            reply = first
        self.report.adopt(reply.report)
        return self._as_asked(reply.body)

    def withheld(self, reason: str) -> bytes | None:
        """Make what stands for a whole reply that could not be looked at; None if it may pass."""
        if not self.plan.is_strict:
            self.report.failures.append(reason)
            return None
        self.report.intervened("unread_calls", "refused", "", f"{reason}, so it was withheld")
        return self._own(WITHHELD)

    def _attempt(self, body: bytes) -> WholeReply:
        """Read and rewrite one reply."""
        report = Report(secrets=self.report.secrets)
        pipelines: list[ReplyPipeline] = []
        strict, is_stream = self.plan.is_strict, self.came.matches(body)
        why = ""  # why some of it was not looked at
        went = body
        try:
            came = body if is_stream else streamed(self.server, body)
            stream = self._way.stream(compression.decoder(""), report, pipelines, whole=not is_stream)
            went = b"".join([*stream.feed(came), *stream.finish()])
            if stream.left_out and not (is_stream and self._request.stream):
                why = "it could not be read"
            elif self.crosses and stream.failure:
                return WholeReply(encode(self._api.error(Failure(stream.failure), 502)), report, [])
            elif self.crosses:
                went = joined(self._api, went)
            elif not (is_stream or stream.failed):
                # Where nothing may leave that was not read, a body keeps its bytes only if all of it was.
                kept = not strict or (is_proper(body) and came == went)
                went = folded(self._api, body, came, went) if kept else joined(self._api, went)
        except NoReply as error:
            report.errors += hints.instead(body)
            if self.crosses:
                return WholeReply((self.failed(body, 502) or (502, b""))[1], report, [])
            if not strict or not may_be_reply(body):
                return WholeReply(body, report, [])
            why = str(error)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if not strict:
                become = "becomes an error" if self.crosses else "is passed on as it came"
                logger.error("vtc: the reply %s\n%s", become, told(error, report.secrets))
                report.failures.append(why)
        if strict and why:
            report = Report()
            report.intervened("unread_calls", "refused", "", "the reply could not be read, so it was withheld", why)
            return WholeReply(self._own(WITHHELD), report, [])
        if self.crosses and (why or report.failures):  # the client could not read it as it came
            failure = Failure("The reply of the server could not be read")
            return WholeReply(encode(self._api.error(failure, 502)), Report(failures=report.failures or [why]), [])
        if report.failures and not is_stream:  # what was read of it is not what is sent
            return WholeReply(body, Report(failures=report.failures), [])
        return WholeReply(went, report, [fault for pipeline in pipelines for fault in pipeline.faults])

    def _as_asked(self, body: bytes) -> bytes:
        """Return a whole reply in the form that the client asked for."""
        if not (self.plan.buffered or self.crosses) or not self._request.stream or self.framing.matches(body):
            return body
        try:
            return streamed(self._api, body, self._request)
        except Exception as error:
            if not isinstance(error, NoReply):  # which was told
                logger.error("vtc: the reply is passed on whole\n%s", told(error, self.report.secrets))
                self.report.failures.append(f"{type(error).__name__}: {error}")
        return body

    def _correction(self, body: bytes, faults: Sequence[ReplyFault]) -> bytes:  # the reply, and what is wrong with it
        return self._sending.corrected(self._rewritten().messages, summary_of(self.server, body), faults)
