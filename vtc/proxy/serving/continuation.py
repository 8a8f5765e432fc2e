"""Continue a streamed reply that ended without an answer: send a follow-up request, and append its reply."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from functools import partial

from mitmproxy import ctx, http

from vtc.exchange import NoAnswer
from vtc.exchange.replying.stream import Stream
from vtc.proxy.serving import bodies
from vtc.proxy.serving.client_stream import continue_reply
from vtc.proxy.serving.follow_up import FollowUpRequests
from vtc.proxy.serving.stream_callable import LiveExchange
from vtc.proxy.serving.whole_reply import is_long, read_answer, run_work
from vtc.scrub import format_exception

logger = logging.getLogger(__name__)


def begin_continuation(flow: http.HTTPFlow, live: LiveExchange, first: Stream) -> None:
    """Continue a reply at the end of its stream, if text of it is still deferred or its end is held back.

    Text is deferred (`Stream.defers`) if it belongs to so many frames that they are sent in several steps. The end is
    held back (`Stream.turn`) if a follow-up request may complete the turn.
    """
    if first.defers:
        continue_reply(flow, stream_parts(flow, live, first))
    elif first.turn:
        continue_reply(flow, stream_second_reply(flow, live, first))


async def stream_parts(flow: http.HTTPFlow, live: LiveExchange, stream: Stream) -> AsyncIterator[list[bytes]]:
    """Yield the deferred text of a reply step by step, then its end and its continuation."""
    while stream.defers:
        yield _record_sent(live, stream.feed(b""))
    yield _record_sent(live, live.end(flow))
    async for pieces in stream_second_reply(flow, live, stream):
        yield pieces


async def stream_second_reply(flow: http.HTTPFlow, live: LiveExchange, first: Stream) -> AsyncIterator[list[bytes]]:
    """Yield the second reply of the turn or, if there is none, the held end of the first."""
    session, turn, retry = live.session, first.turn, live.session.plan.stack.retry
    if turn is None or retry is None:
        return
    # Step 1: Send the follow-up request, and forward its reply as the continuation of the first.
    second: Stream | None = None
    why = ""
    try:
        question = await run_work(
            partial(session.whole.reminder.encode_question, turn), in_thread=is_long(flow.request)
        )
        requests = FollowUpRequests(flow, retry.seconds)
        pieces = requests.stream(question, partial(_can_forward, live), ctx.options.vtc_keep_alive)
        async for piece in pieces:
            if not piece:
                keep_alive = (second or first).keep_alive()
                yield [keep_alive] if keep_alive else []
                continue
            body = piece if isinstance(piece, bytes) else _convert_whole_reply(live, piece)
            if second is None:
                live.seconds += first.seconds
                second = live.stream = session.continue_reply(first, time.perf_counter)
            live.received.add(body)
            yield _record_sent(live, second.feed(body))
            if second.has_stopped:
                break
    except NoAnswer as error:
        why = str(error)
    except Exception as error:
        logger.error("vtc: the follow-up request failed\n%s", format_exception(error, session.report.secrets))
        why = type(error).__name__
    # Step 2: End the reply.
    if second is None:
        session.whole.reminder.mark_failed(why)
        yield _record_sent(live, first.release_end())
    elif why:
        yield _record_sent(live, second.break_off(f"the second reply of the turn broke off ({why})"))
    else:
        yield _record_sent(live, second.finish())


def _can_forward(live: LiveExchange, response: http.Response) -> bool:
    """True if an answer is a stream that can be forwarded as it arrives."""
    is_encoded = response.headers.get("content-encoding", "identity") != "identity"
    ok = 200 <= response.status_code < 300
    return ok and not is_encoded and live.session.is_streamed(bodies.get_media_type(response))


def _convert_whole_reply(live: LiveExchange, response: http.Response) -> bytes:
    """Convert a whole reply to a stream; raises `NoAnswer`."""
    as_stream = live.session.whole.convert_to_stream_or_none(read_answer(response))
    if as_stream is None:
        raise NoAnswer("the answer is not a reply")
    return as_stream


def _record_sent(live: LiveExchange, pieces: list[bytes]) -> list[bytes]:
    for piece in pieces:
        live.sent.add(piece)
    return pieces
