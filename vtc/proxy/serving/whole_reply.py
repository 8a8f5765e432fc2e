"""Process whole replies and errors: parse them, retry if that may help, and rewrite them.

This is one generator. It yields follow-up requests to the server, which the event loop awaits, and does the work
between two of them, in a thread if there is much of it. Only `process_reply` makes that decision.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from mitmproxy import ctx, http
from mitmproxy.net.http import status_codes

from vtc.apis.fields import is_error, object_of
from vtc.events import Failure
from vtc.exchange import NoAnswer, Rejection, Session
from vtc.exchange.replying.fate import JSON_MEDIA_TYPE, LocalReply
from vtc.exchange.whole_replies import EMPTY_REPLY_FAULT
from vtc.proxy import flows
from vtc.proxy.serving import bodies
from vtc.proxy.serving.bodies import DecodedBody
from vtc.proxy.serving.follow_up import REPLY_SECONDS, FollowUpRequests
from vtc.proxy.serving.server_request import build_request
from vtc.proxy.serving.stream_callable import LiveExchange
from vtc.reporting import hints

LONG_BODY_BYTES = 1 << 17
"""Size of a request or a whole reply beyond which it is processed in a thread, off the event loop."""


def is_long(*messages: http.Message) -> bool:
    """True if a message may take long to process; a compressed body counts as long because it can expand."""
    return any(
        len(message.raw_content or b"") > LONG_BODY_BYTES or "content-encoding" in message.headers
        for message in messages
    )


class FullCollections:
    """Postpones full garbage collections while long work runs in threads.

    A full collection traverses all objects while every thread waits: 0.4 s when a reply of 1 MB is parsed as 70,000
    calls. Nearly all of these objects are freed without it when the work ends.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._thresholds = gc.get_threshold()

    @contextmanager
    def postpone(self) -> Iterator[None]:
        """Postpone full collections until no work is running, but not indefinitely if work never pauses."""
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._since, self._thresholds = self._clock(), gc.get_threshold()
                gc.set_threshold(*self._thresholds[:2], NO_FULL_COLLECTION)
            elif self._clock() - self._since > MAX_POSTPONED_SECONDS:
                gc.set_threshold(*self._thresholds)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    gc.set_threshold(*self._thresholds)


NO_FULL_COLLECTION = 1 << 30
"""Threshold of younger collections that is never reached, so that no full collection starts."""
MAX_POSTPONED_SECONDS = 60.0
"""Seconds after which full collections resume even if work is still running."""
FULL_COLLECTIONS = FullCollections()


async def run_work[T](work: Callable[[], T], *, in_thread: bool) -> T:
    """Run work, if `in_thread` off the event loop; the hand-over would take a tenth of a short exchange's time."""
    return await asyncio.to_thread(FULL_COLLECTIONS.postpone()(work)) if in_thread else work()


OK_STATUS = 200
"""The status of replies that must have a body; some other statuses of success have none."""
MAX_BLANK_BYTES = 100
"""Maximum size of an encoded body that can be blank."""
SWITCHING_PROTOCOLS = 101
"""The status by which a server switches to another protocol."""
SWITCHED_PROTOCOL = "the server switched to a protocol that VTC does not read"

type FollowUpQuestion = Callable[[], Awaitable[http.Response]]
type ReplySteps[T] = Generator[FollowUpQuestion, http.Response, T]
"""The processing of a reply: yields follow-up requests, and receives their answers or a thrown `NoAnswer`."""


async def process_reply(flow: http.HTTPFlow, live: LiveExchange, response: http.Response) -> None:
    """Process a whole reply or an error."""
    steps, last = _process(flow, live, response), response
    step: Callable[[], FollowUpQuestion] = partial(next, steps)
    while True:
        question, seconds = await run_work(partial(_time_step, step), in_thread=is_long(flow.request, last))
        live.seconds += seconds
        if question is None:
            return
        try:
            last = await question()
            step = partial(steps.send, last)
        except NoAnswer as error:
            step = partial(steps.throw, error)


def _time_step(step: Callable[[], FollowUpQuestion]) -> tuple[FollowUpQuestion | None, float]:
    """Run a step; return the follow-up request that it yields (None at the end) and the duration in seconds."""
    started, question = time.perf_counter(), None
    with suppress(StopIteration):  # futures cannot carry it
        question = step()
    return question, time.perf_counter() - started


def _process(flow: http.HTTPFlow, live: LiveExchange, response: http.Response) -> ReplySteps[None]:
    """Process a whole reply or an error: retry, translate or rewrite it."""
    session, explanation = live.session, ""
    # Step 1: Block a switch to a protocol that cannot be read.
    if response.status_code == SWITCHING_PROTOCOLS and _is_rewriting():
        session.report.errors.append(SWITCHED_PROTOCOL)
        flow.websocket = None
        response.headers.pop("upgrade", None)
        _replace(live, response, b"", session.fate.own.render_error(Failure(f"VTC: {SWITCHED_PROTOCOL}"), 502))
        return
    # Step 2: Answer an error that contains a reply, or retry with the quirks learned from it.
    body = DecodedBody(response)
    is_rejection = response.status_code >= 400 or (not response.stream and is_error(object_of(body.beginning) or {}))
    if is_rejection:
        if response.status_code >= 400 and session.may_change_reply and _answer_error(live, response, body):
            return
        if not response.stream:  # otherwise the client has received it
            remaining = yield from _retry(flow, live, response, body)
            if remaining is None:
                return
            body = remaining
    # Step 3: Explain the remaining error, and translate it or a web page for the client.
    status = response.status_code
    if status >= 400:
        explanation = hints.explain_error(status, body.beginning, flows.get_asked_path(flow))
    if (is_rejection or hints.is_web_page(body.beginning)) and _is_rewriting():
        error = session.whole.translate_error(body.beginning, status)
        if error:
            session.report.errors[:] = [explanation or hints.explain_error(None, body.beginning)]
            _replace(live, response, response.raw_content or b"", error)
            return
    # Step 4: Rewrite the reply (an error only if a policy lets nothing pass unread); report an empty one.
    if status == OK_STATUS and not response.stream and _is_empty(response, body):
        session.report.errors.append(EMPTY_REPLY_FAULT)
        if _is_rewriting():
            _replace(live, response, b"", session.fate.own.render_error(Failure(f"VTC: {EMPTY_REPLY_FAULT}"), 502))
        return
    if session.may_change_reply and not response.stream and session.fate.reads_status(status):
        yield from _rewrite_reply(flow, live, response, body)
    session.report.errors[:] = [explanation] if explanation else session.report.errors


def _is_empty(response: http.Response, body: DecodedBody) -> bool:
    """True if the body is blank; a long body is not decoded for this because VTC may not have to read it."""
    return len(response.raw_content or b"") <= MAX_BLANK_BYTES and not body.fault and not body.content.strip()


def _replace(live: LiveExchange, response: http.Response, received: bytes, reply: LocalReply) -> None:
    """Replace the server's reply by another one."""
    live.received.add(received)
    live.sent.add(reply.body)
    bodies.replace_reply_body(response, reply.body, reply.media_type)
    if response.status_code != reply.status:
        response.status_code, response.reason = reply.status, status_codes.RESPONSES.get(reply.status, "")


def _is_rewriting() -> bool:
    return bool(ctx.options.vtc_mode == "rewrite")


def _rewrite_reply(
    flow: http.HTTPFlow, live: LiveExchange, response: http.Response, body: DecodedBody
) -> ReplySteps[None]:
    session, is_rewriting = live.session, _is_rewriting()
    if reason := _explain_unreadable(body):
        reply = session.whole.replace_unread(reason)
        if reply and is_rewriting:
            bodies.replace_reply_body(response, reply.body, reply.media_type)
            if reply.status >= 400:
                response.status_code = reply.status
        return
    is_error = not 200 <= response.status_code < 300
    retry = session.plan.stack.retry if is_rewriting and not is_error else None
    if retry:
        ask = partial(ask_server, FollowUpRequests(flow, retry.seconds))
        sent = yield from session.whole.rewrite_with_retry(body.content, ask)
    else:
        sent = session.whole.rewrite(body.content, is_error=is_error)
    live.received.add(body.content)
    live.sent.add(sent)
    if is_rewriting:
        _replace_body(session, response, body.content, sent)


def _explain_unreadable(body: DecodedBody) -> str:
    """Explain why a body cannot be read; empty if it can."""
    if body.fault:
        return f"the body cannot be decoded: {body.fault}"
    size, most = len(body.content), ctx.options.vtc_max_body_bytes
    return f"the reply is longer than vtc_max_body_bytes ({size} bytes)" if size > most else ""


def _replace_body(session: Session, response: http.Response, received: bytes, sent: bytes) -> None:
    """Set the body that is sent, and headers that make clients decode it as VTC did."""
    if session.fate.overrides_headers(changed=received != sent):
        bodies.drop_other_charset(response)
    if received != sent:
        response.content = sent
        if declared := session.whole.choose_media_type(sent):
            response.headers["content-type"] = declared


def ask_server(asker: FollowUpRequests, request: bytes) -> ReplySteps[bytes]:
    """Send a follow-up request, and return the body of its reply; raises `NoAnswer`."""
    return read_answer((yield partial(asker, request)))


def read_answer(response: http.Response) -> bytes:
    """Return the body of the answer to a follow-up request; raises `NoAnswer` if it is not a reply that can be read."""
    body = DecodedBody(response)
    if not 200 <= (status := response.status_code) < 300:
        raise NoAnswer(f"the server answered {status}", status, body.beginning)
    if reason := _explain_unreadable(body):
        raise NoAnswer(reason)
    if not body.content.strip():
        raise NoAnswer(EMPTY_REPLY_FAULT)
    return body.content


def _answer_error(live: LiveExchange, response: http.Response, body: DecodedBody) -> bool:
    """Answer with the reply that an error contains; False if it contains none."""
    if body.fault:
        return False
    reply = live.session.whole.extract_from_error(body.content, response.status_code)
    if reply and _is_rewriting():
        _replace(live, response, body.content, reply)
    return reply is not None


def _retry(
    flow: http.HTTPFlow, live: LiveExchange, response: http.Response, body: DecodedBody
) -> ReplySteps[DecodedBody | None]:
    """Retry after a rejection; return the last error if no retry succeeds, else None."""
    if not _is_rewriting():
        return body
    session, client, original = live.session, flows.find_client_api(flow), live.original
    requests = FollowUpRequests(flow, REPLY_SECONDS)

    def ask_again(request: bytes) -> ReplySteps[bytes]:
        if client and original:
            build_request(flow, original, client, session, request, keep=live.keep)
            session.report.measures.sizes["request_went"] = len(request)
        return (yield from ask_server(requests, request))

    first = Rejection(response.status_code, body.beginning)
    received = yield from session.retry_rejected(first, ask_again)
    if received is first:
        return body
    if isinstance(received, Rejection):
        response.status_code, response.reason = received.status, ""
        bodies.replace_reply_body(response, received.body, JSON_MEDIA_TYPE)
        return DecodedBody(response)
    sent = session.whole.rewrite(received)
    _replace(live, response, received, LocalReply(session.whole.detect_media_type(sent), sent))
    return None
