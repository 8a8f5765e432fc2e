"""A streamed reply that ended without a word goes on: the model is asked once more, and its answer follows."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from functools import partial

from mitmproxy import ctx, http

from vtc.exchange import NoAnswer
from vtc.exchange.replying.stream import Stream
from vtc.proxy import bodies
from vtc.proxy.bodies import DecodedBody
from vtc.proxy.follow_up import FollowUpRequests, continue_reply
from vtc.proxy.stream_callable import LiveExchange
from vtc.proxy.whole_reply import is_long, run_work
from vtc.scrub import format_exception

logger = logging.getLogger(__name__)


def begin_continuation(flow: http.HTTPFlow, live: LiveExchange, first: Stream) -> None:
    """Have a reply go on whose end waits; for the end of its stream."""
    if first.defers:
        continue_reply(flow, stream_parts(flow, live, first))
    elif first.turn:
        continue_reply(flow, stream_second_reply(flow, live, first))


async def stream_parts(flow: http.HTTPFlow, live: LiveExchange, stream: Stream) -> AsyncIterator[list[bytes]]:
    """Yield the text of a reply that is sent in parts, its end, and what follows that."""
    while stream.defers:
        yield _record_sent(live, stream.feed(b""))
    yield _record_sent(live, live.end(flow))
    async for pieces in stream_second_reply(flow, live, stream):
        yield pieces


async def stream_second_reply(flow: http.HTTPFlow, live: LiveExchange, first: Stream) -> AsyncIterator[list[bytes]]:
    """Yield what leaves after the first reply of a turn, whose end waits: the second one, or that end."""
    exchange, turn, retry = live.session, first.turn, live.session.plan.stack.retry
    if turn is None or retry is None:
        return
    second: Stream | None = None
    why = ""
    try:
        question = await run_work(partial(exchange.whole.reminder.encode_question, turn), much=is_long(flow.request))
        ask = FollowUpRequests(flow, retry.seconds)
        answer = ask.stream(question, partial(_is_stream, live), ctx.options.vtc_keep_alive)
        async for piece in answer:
            if not piece:
                keep_alive = (second or first).keep_alive()
                yield [keep_alive] if keep_alive else []
                continue
            body = piece if isinstance(piece, bytes) else _convert_whole_reply(live, piece)
            if second is None:
                live.seconds += first.seconds
                second = live.stream = exchange.continue_reply(first, time.perf_counter)
            live.received.add(body)
            yield _record_sent(live, second.feed(body))
    except NoAnswer as error:
        why = str(error)
    except Exception as error:
        logger.error("vtc: the model is not asked once more\n%s", format_exception(error, exchange.report.secrets))
        why = type(error).__name__
    if second is None:
        exchange.whole.reminder.mark_failed(why)
        yield _record_sent(live, first.let_end())
    else:
        yield _record_sent(
            live, second.break_off(f"the second reply of the turn broke off ({why})") if why else second.finish()
        )


def _is_stream(live: LiveExchange, response: http.Response) -> bool:
    """True if an answer is a stream that may go on as it comes."""
    coded = response.headers.get("content-encoding", "identity") != "identity"
    ok = 200 <= response.status_code < 300
    return ok and not coded and live.session.is_streamed(bodies.get_media_type(response))


def _convert_whole_reply(live: LiveExchange, response: http.Response) -> bytes:
    """Return an answer that is no stream as one; raises `NoAnswer`."""
    if not 200 <= (status := response.status_code) < 300:
        raise NoAnswer(f"upstream answered {status}")
    body = DecodedBody(response)
    as_stream = live.session.whole.as_stream(body.content)
    if body.fault or as_stream is None:
        raise NoAnswer(body.fault or "the answer is no reply")
    return as_stream


def _record_sent(live: LiveExchange, pieces: list[bytes]) -> list[bytes]:
    for piece in pieces:
        live.sent.add(piece)
    return pieces
