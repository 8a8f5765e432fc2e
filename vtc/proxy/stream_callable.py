"""The stream callable: what mitmproxy calls with each chunk of a streamed reply.

What mitmproxy does with it rules its shape: it must not raise (the chunk would be lost, or the client hang) and must
not return b"" (that ends the body), and its final call may come twice or not at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from mitmproxy import ctx, http

from vtc.exchange import Session
from vtc.exchange.replying.stream import Stream
from vtc.proxy.bodies import LONG_CHUNK_BYTES, BodyRecorder
from vtc.proxy.originals import OriginalRequest
from vtc.scrub import format_exception

logger = logging.getLogger(__name__)

# An exchange on its way through the proxy.


def format_break(flow: http.HTTPFlow, why: str, size: int = 0) -> str:
    """Say that the server broke off, `why` in mitmproxy's words, after it sent so many bytes that were looked at."""
    place = "before it answered" if flow.response is None else "in the middle of its reply"
    return f"the server broke off {f'after {size} bytes of its reply' if size else place} ({why})"


@dataclass(slots=True)
class LiveExchange:
    """An exchange on its way through, and what passed of its reply."""

    session: Session
    keep: bool
    original: OriginalRequest | None = None
    """Until its reply is streamed: each further question to the server is made from it."""
    seconds: float = 0.0
    """The time spent on it."""
    answered: bool = False
    """The reply is our own."""
    stream: Stream | None = None
    """What a streamed reply goes through on its way to the client."""
    encoding: str = ""
    """The content-encoding in which a streamed reply comes."""
    observed: bool = False
    """A streamed reply is read, and passes as it comes."""
    warming: Future[None] | None = None
    """What reading the reply takes is compiled, beside the event loop, while the server is asked."""
    killed: bool = False
    """Nothing of the reply may leave."""
    settled: bool = False
    """What the client gets is decided: a fault after that changes nothing."""
    received: BodyRecorder = field(init=False)
    sent: BodyRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.received, self.sent = BodyRecorder(keep=self.keep), BodyRecorder(keep=self.keep)

    def end(self, flow: http.HTTPFlow) -> list[bytes]:
        """End a streamed reply where mitmproxy says that it ends; return what leaves for the client."""
        if why := flow.server_conn.error:  # only the end of the connection ends the reply, and it was reset
            return self._break_off(flow, why)
        return self.stream.finish() if self.stream else []

    def broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Report that the server broke off, `why` in mitmproxy's words; return what still leaves for the client."""
        if not flow.server_conn.timestamp_tcp_setup:
            return []  # it was never reached
        out = self._break_off(flow, why)
        for piece in out:
            self.sent.add(piece)
        return [] if self.observed else out

    def fail(self, stream: Stream, chunk: bytes, sent: list[bytes] | None, error: Exception) -> list[bytes]:
        """Return what is sent of a chunk whose handling raised an exception; `sent` if that was decided before.

        The boundary of the stream callable: mitmproxy would drop the chunk, or never end the reply.
        """
        if sent is not None:
            logger.error(
                "vtc: the record of a reply has a gap\n%s", format_exception(error, self.session.report.secrets)
            )
            return sent
        try:
            return stream.give_up(chunk, error) if chunk else stream.finish()
        except Exception as failed:
            is_open = self.session.fate.is_open
            becomes = "forwarded unchanged" if is_open else "withheld"
            logger.error(
                "vtc: the rest of a reply is %s\n%s", becomes, format_exception(failed, self.session.report.secrets)
            )
            self.killed = not is_open
            return [chunk] if chunk and is_open else []

    def _break_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        line = format_break(flow, why, self.received.size)
        if self.stream is None:
            self.session.report.errors.append(line)
            return []
        return self.stream.break_off(line)


HOLDING_COMMENT = "vtc: holding back what may be a call"
"""How the comment of a flow begins while nothing of its reply may leave."""


def make_rewriter(
    stream: Stream,
    live: LiveExchange,
    flow: http.HTTPFlow,
    keep_alive: int = 0,
    clock: Callable[[], float] = time.monotonic,
    at_end: Callable[[], object] | None = None,
) -> Callable[[bytes], list[bytes]]:
    """Make the stream callable; `at_end` is called when the server has ended the reply.

    A client that is sent nothing for `keep_alive` seconds although bytes still come from upstream gets a frame that
    tells it nothing, and the list of flows shows each second meanwhile how much came. What is rewritten leaves in whole
    frames, so that such a frame may stand between any two of them.
    """
    quiet = shown = 0.0  # since then the client is sent nothing, and people are shown nothing new
    before = 0  # bytes that came until then
    received, sent, last = live.received, live.sent, live.received.last
    live.stream = stream
    shows = not live.observed

    def rewrite(chunk: bytes) -> list[bytes]:
        nonlocal quiet, shown, before
        out: list[bytes] | None = None
        try:
            if chunk:
                out = stream.feed(chunk)
            else:
                out = [] if at_end and stream.defers else live.end(flow)
            if not chunk and at_end:
                at_end()
            if live.keep:
                received.add(chunk)
                for piece in out:
                    sent.add(piece)
            else:  # called for each chunk of a reply: without a call in nearly no time
                if len(chunk) > LONG_CHUNK_BYTES:
                    received.add(chunk)
                else:
                    last.append(chunk)
                    received.size += len(chunk)
                if out:
                    sent.size += len(out[0])
            if out or not chunk:
                quiet = 0.0
                return out
            now = clock()
            if not quiet:
                quiet, shown, before = now, now, received.size - len(chunk)
            if shows and now - shown >= 1:
                shown = now
                _show_holding(flow, received.size - before)
            if keep_alive and now - quiet >= keep_alive and (frame := stream.keep_alive()) is not None:
                quiet = now
                return [frame]
        except Exception as error:
            return live.fail(stream, chunk, out, error)
        return out

    return rewrite


def withhold(_: bytes) -> list[bytes]:
    """Let nothing of a body leave; for `http.Response.stream`."""
    return []


def make_observer(stream: Stream, live: LiveExchange, flow: http.HTTPFlow) -> Callable[[bytes], list[bytes]]:
    """Make the stream callable that reads a reply and passes it on as it came."""
    live.observed = True
    rewrite = make_rewriter(stream, live, flow)

    def observe(chunk: bytes) -> list[bytes]:
        rewrite(chunk)
        return [chunk] if chunk else []

    return observe


def _show_holding(flow: http.HTTPFlow, size: int) -> None:
    """Show in the list of flows that a call is on its way."""
    flow.comment, flow.marked = f"{HOLDING_COMMENT}, {size / 1000:.1f} kB so far", ":hourglass_flowing_sand:"
    if view := ctx.master.addons.get("view"):
        view.update([flow])
