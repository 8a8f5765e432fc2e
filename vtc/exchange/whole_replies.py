"""Rewrite whole replies: bodies that are no streams, streams that are buffered to their end, and errors.

    body -> equivalent stream -> `Stream` -> the body that it adds up to

`Fate` decides about replies that cannot be rewritten. When the plan says so, a wrong reply is retried.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from vtc.apis import NoReply, convert_to_stream, fold_rewritten, fold_stream, unwrap_gateway_envelope
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json
from vtc.apis.relay import NO_REASON
from vtc.apis.relay.turn import TurnEncoder
from vtc.apis.whole import get_first_text
from vtc.dialects.reading.reader import Reader
from vtc.events import Call, Failure, Text
from vtc.exchange.asking.reminder import Reminder
from vtc.exchange.asking.request import RequestEncoder
from vtc.exchange.context import ExchangeContext
from vtc.exchange.replying.factory import ReplyFactory
from vtc.exchange.replying.fate import JSON_MEDIA_TYPE, UNREADABLE_REASON, Fate, LocalReply, render_whole_reply
from vtc.exchange.replying.faults import ReplyFault
from vtc.json_text import decode_json
from vtc.profiles.matching import texts_at
from vtc.profiles.schema import ErrorReply
from vtc.reporting import hints
from vtc.reporting.report import Report
from vtc.scrub import format_exception
from vtc.wire import compression

logger = logging.getLogger(__name__)

EMPTY_REPLY_FAULT = "the reply is empty"


class NoAnswer(Exception):
    """A retry got no reply; the text is the reason.

    If the server answered with an error, `status` and `error` hold its status and body.
    """

    def __init__(self, why: str, status: int = 0, error: bytes = b"") -> None:
        super().__init__(why)
        self.status = status
        self.error = error


class Rejection(NamedTuple):
    """A server's error about a request."""

    status: int
    body: bytes


type Ask = Callable[[bytes], Generator[Any, Any, bytes]]
"""Sends a request's body to the server of the exchange and returns the body of the reply; raises `NoAnswer`.

It yields values that its caller has to await."""


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A rewritten reply, with its report and its faults."""

    body: bytes
    report: Report
    faults: Sequence[ReplyFault] = ()
    response: Json | None = None
    """The reply, if its API lets later requests refer to it."""
    turn: TurnEncoder | None = None
    """The content of the reply, if its turn ended in silence and the model is to be reminded."""

    @property
    def problems(self) -> list[str]:
        """The reasons not to use this as the reply to a retry; a missing finish reason is none."""
        return [*self.report.failures, *(error for error in self.report.errors if error != NO_REASON)]


class WholeReplies:
    """Rewrites the whole replies of one exchange."""

    def __init__(
        self,
        context: ExchangeContext,
        factory: ReplyFactory,
        encoder: RequestEncoder,
        fate: Fate,
        reminder: Reminder,
        store_response: Callable[[Json], None] | None = None,
    ) -> None:
        """Set up the rewriting; `store_response` is called with a response to which later requests may refer."""
        self._client, self._server = context.client, context.server
        self._is_bridged = context.is_bridged
        self._request = context.request
        self._plan = context.plan
        self._factory = factory
        self._fate = fate
        self._encoder = encoder
        self._report = context.report
        self._store_response = store_response
        self.reminder = reminder
        """Asks the model to continue a turn that ended in silence."""

    def rewrite(self, body: bytes, *, is_error: bool = False) -> bytes:
        """Rewrite a reply into the form that the client asked for; an error (`is_error`) keeps its form."""
        if not is_error:
            self._encoder.confirm_held_quirks()
        reply = self._rewrite_safely(body)
        self._record(reply)
        return reply.body if is_error else self._convert_to_asked(reply.body)

    def rewrite_with_retry(self, body: bytes, ask: Ask) -> Generator[Any, Any, bytes]:
        """Rewrite a reply as `rewrite` does, but retry the request if the plan says so and the reply has faults."""
        first = reply = self._rewrite_safely(body)
        retry = self._plan.stack.retry
        for _ in range(retry.max if retry else 0):
            faults = [fault for fault in reply.faults if retry and fault.kind in retry.on]
            if not faults:
                break
            try:
                body = yield from ask(self._encoder.encode_retry(get_first_text(self._server, body), faults))
            except NoAnswer as error:
                self._report.record_intervention("retry", "failed", "", str(error))
                break
            except Exception as error:
                logger.error("vtc: the retry failed\n%s", format_exception(error, self._report.secrets))
                self._report.failures.append(f"{type(error).__name__}: {error}")
                break
            reply = self._rewrite_safely(body)
            self._report.record_intervention("retry", "asked", "", faults[0].reason)
        if reply is first and reply.turn:
            first = reply = yield from self._retry_silent_turn(body, reply, reply.turn, ask)
        remaining = [fault.reason for fault in reply.faults if retry and fault.kind in retry.on]
        remaining = remaining or reply.problems
        if reply is not first and remaining:
            self._report.record_intervention("retry", "exhausted", "", remaining[0])
            reply = first
        self._record(reply)
        return self._convert_to_asked(reply.body)

    def _record(self, reply: WholeReply) -> None:
        """Record the reply that is sent."""
        self._report.add_reply(reply.report)
        if self._store_response and reply.response:
            self._store_response(reply.response)

    def _retry_silent_turn(
        self, body: bytes, first: WholeReply, turn: TurnEncoder, ask: Ask
    ) -> Generator[Any, Any, WholeReply]:
        """Remind the model in a turn that ended in silence; return both replies joined, or the first alone."""
        try:
            more = yield from ask(self.reminder.encode_question(turn))
        except NoAnswer as error:
            self.reminder.mark_failed(str(error))
            return first
        except Exception as error:
            logger.error("vtc: the reminder failed\n%s", format_exception(error, self._report.secrets))
            self.reminder.mark_failed(type(error).__name__)
            return first
        reply = self._rewrite_safely(body, more)
        if reply.problems:
            self.reminder.mark_failed(reply.problems[0])
            return first
        self.reminder.mark_answered(turn)
        return reply

    def extract_from_error(self, body: bytes, status: int | None = None) -> LocalReply | None:
        """Return the reply that a server's error contains, in the form that the client asked for.

        None if the server's profile lists no such error, or if the text calls no tool.
        """
        text = _find_text_in_error(self._plan.stack.server.errors, body, status, self._factory.make_whole_reader)
        if not text:
            return None
        own = self._fate.own
        reply = self._rewrite_safely(render_whole_reply(self._server, self._request, text, own.seed, own.created))
        if reply.report.failures:
            return None
        self._report.add_reply(reply.report)
        self._report.record_intervention(
            "errors", "read", "", f"the server answered {status} with the reply in its error"
        )
        return self._fate.own.convert_to_asked(reply.body)

    def translate_error(self, body: bytes, status: int) -> LocalReply | None:
        """Translate a server's error, or a web page, into the client's API; None if it needs no translation.

        `status` is the HTTP status of the server's answer. The message is preserved, whatever its form. A prompt that
        is too long is reported in the words of the client's own API, because agents react to them by compacting.
        """
        failure = self._encoder.translate_full_window(body, status)
        is_page = hints.is_web_page(body) and self._fate.may_pass(body)
        if failure is None and is_page and status < 300:
            failure, status = Failure(f"VTC: {hints.explain_error(None, body)}"), 502
        elif failure is None and (is_page or self._is_bridged) and status >= 400:
            failure = Failure(hints.extract_message(body) or f"the server answered {status}")
        return self._fate.own.render_error(failure, status) if failure else None

    def replace_unread(self, reason: str) -> LocalReply | None:
        """Return the replacement of a reply that was not read; None if the reply passes unchanged."""
        reply, report = self._fate.replace_body(reason)
        self._report.add_reply(report)
        return reply

    def detect_media_type(self, body: bytes) -> str:
        """Detect the media type of a rewritten reply by its bytes: a stream or JSON."""
        framing = self._client.framing
        return framing.media_type if framing.matches(body) else JSON_MEDIA_TYPE

    def choose_media_type(self, body: bytes) -> str:
        """Choose the media type to declare for a changed reply; empty to keep the server's."""
        media_type = self.detect_media_type(body)
        if self._is_bridged or self._encoder.folds_stream:
            return media_type
        may_differ = self._fate.strict if media_type == JSON_MEDIA_TYPE else self._plan.buffered
        return media_type if may_differ else ""

    def _rewrite_safely(self, body: bytes, more: bytes | None = None) -> WholeReply:
        """Rewrite a reply, and the reply `more` that continues its turn, as one; never raises."""
        report = Report(secrets=self._report.secrets)
        try:
            return self._rewrite_as_stream(body, report, more)
        except NoReply as error:
            report.errors += hints.explain_body(body)
            if self._is_bridged:
                translated = self.translate_error(body, 502)
                return WholeReply(translated.body if translated else b"", report)
            if self._fate.may_pass(body):
                return WholeReply(body, report)
            reply, report = self._fate.replace_body(UNREADABLE_REASON, str(error))
        except Exception as error:
            reply, report = self._fate.replace_broken_body(error)
        return WholeReply(reply.body if reply else body, report)

    def _rewrite_as_stream(self, body: bytes, report: Report, more: bytes | None = None) -> WholeReply:
        """Rewrite a reply by converting it to a stream; raises `NoReply`."""
        # Step 1: convert the body to a stream, also from inside a gateway's envelope.
        try:
            received, is_stream = self._convert_to_stream(body)
        except NoReply:
            inner = unwrap_gateway_envelope(body)
            if inner == body:
                raise
            body, (received, is_stream) = inner, self._convert_to_stream(inner)
        # Step 2: rewrite the stream, and the one that continues its turn.
        responses: list[Json] = []
        make_stream = partial(
            self._factory.stream, report=report, on_response=responses.append if self._store_response else None
        )
        stream = make_stream(compression.make_decoder(""), whole=not is_stream)
        sent = b"".join([*stream.feed(received), *stream.finish()])
        turn = stream.turn
        if turn and more is not None:
            rest, is_rest_stream = self._convert_to_stream(more)
            stream = make_stream(compression.make_decoder(""), whole=not is_rest_stream, first=stream)
            sent += b"".join([*stream.feed(rest), *stream.finish()])
        elif turn:
            sent += b"".join(stream.release_end())
        # Step 3: replace a reply that was not read completely, or ended in an error.
        if stream.has_dropped and not (is_stream and self._request.stream):
            reply, report = self._fate.replace_body(UNREADABLE_REASON, "it could not be read")
            return WholeReply(reply.body if reply else body, report)
        if self._is_bridged and (failure := stream.failure):
            failure = failure if failure.kind == CONTEXT_LENGTH_EXCEEDED else Failure(failure.message)
            return WholeReply(self._fate.own.render_error(failure, 502).body, report)
        if stream.failed and not is_stream:  # the parsed part is not sent
            return WholeReply(body, Report(failures=report.failures))
        # Step 4: fold the stream into the form that the client asked for, keeping unchanged bytes if possible.
        if self._is_bridged or (is_stream and self._encoder.folds_stream):
            sent = fold_stream(self._client, sent)
        elif not is_stream:
            keeps = self._fate.keeps_bytes(body, unchanged=received == sent)
            sent = fold_rewritten(self._client, body, received, sent) if keeps else fold_stream(self._client, sent)
        return WholeReply(sent, report, stream.faults, responses[-1] if responses else None, turn)

    def convert_to_stream_or_none(self, body: bytes) -> bytes | None:
        """Return a whole reply of the server as an equivalent stream; None if it is no reply."""
        try:
            return self._convert_to_stream(body)[0] if body.strip() else None
        except NoReply:
            return None

    def _convert_to_stream(self, body: bytes) -> tuple[bytes, bool]:
        """Return a reply as a stream, and whether it already was one; raises `NoReply`."""
        is_stream = self._server.framing.matches(body)
        return body if is_stream else convert_to_stream(self._server, body), is_stream

    def _convert_to_asked(self, body: bytes) -> bytes:
        """Convert a reply to the form that the client asked for."""
        may_differ = self._plan.buffered or self._is_bridged
        if not may_differ or not self._request.stream or self._client.framing.matches(body):
            return body
        try:
            return convert_to_stream(self._client, body, self._request)
        except NoReply:  # reported already
            return body
        except Exception as error:
            logger.error(
                "vtc: converting the reply to a stream failed; it is sent whole\n%s",
                format_exception(error, self._report.secrets),
            )
            self._report.failures.append(f"{type(error).__name__}: {error}")
            return body


def _find_text_in_error(
    errors: Iterable[ErrorReply], body: bytes, status: int | None, reader: Callable[[], Reader]
) -> str | None:
    """Find the model's text in the error of a server that could not parse it; None if the text calls no tool.

    `errors` are those that the server's profile lists. Only the ones with this `status` are examined; all without one.
    """
    listed = [error for error in errors if status in (error.status, None)]
    try:
        value = decode_json(body, "replace") if listed else None
    except ValueError:
        return None
    for error in listed:
        for text in texts_at(value, error.path.split(".")):
            start = re.match(error.after, text)
            if not start:
                continue
            reply = text[start.end() :]
            if _calls_tool(reply, reader(), alone=error.rest):
                return reply
    return None


def _calls_tool(text: str, reader: Reader, *, alone: bool) -> bool:
    """Return True if a text calls a tool; `alone` requires that it contains nothing else."""
    events = reader.read_whole(text)
    has_other_text = any(isinstance(event, Text) and not event.raw.isspace() for event in events)
    return any(isinstance(event, Call) for event in events) and not (alone and has_other_text)
