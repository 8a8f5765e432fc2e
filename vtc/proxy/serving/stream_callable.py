"""The stream callable, which mitmproxy calls with each chunk of a streamed reply.

mitmproxy determines its contract: it must not raise (the chunk would be lost, or the client would hang) and must not
return b"" (that ends the body), and its final call may happen twice or not at all.
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
from vtc.proxy import flows
from vtc.proxy.serving.bodies import LONG_CHUNK_BYTES, BodyRecorder
from vtc.proxy.serving.client_stream import end_early
from vtc.proxy.serving.originals import OriginalRequest
from vtc.scrub import format_exception

logger = logging.getLogger(__name__)


def format_break(flow: http.HTTPFlow, why: str, size: int = 0) -> str:
    """Explain that the server broke off after `size` processed bytes; `why` is mitmproxy's message."""
    place = "before it answered" if flow.response is None else "in the middle of its reply"
    return f"the server broke off {f'after {size} bytes of its reply' if size else place} ({why})"


@dataclass(slots=True)
class LiveExchange:
    """The state of one exchange in the proxy, and the recorded parts of its reply."""

    session: Session
    keep: bool
    original: OriginalRequest | None = None
    """The request from which retries are built; None once the reply is streamed."""
    seconds: float = 0.0
    """Time that VTC spent on it, without the stream's."""
    answered: bool = False
    """True if VTC made the reply itself."""
    stream: Stream | None = None
    """The stream that processes a streamed reply."""
    encoding: str = ""
    """The received content-encoding of a streamed reply."""
    observed: bool = False
    """True if a streamed reply is parsed but forwarded unchanged."""
    warming: Future[None] | None = None
    """The compilation of the reply's patterns in a thread, while the server works."""
    killed: bool = False
    """True if nothing more of the reply may be sent."""
    settled: bool = False
    """True if the client's reply is final, so that a later fault does not change it."""
    received: BodyRecorder = field(init=False)
    sent: BodyRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.received, self.sent = BodyRecorder(keep=self.keep), BodyRecorder(keep=self.keep)

    def end(self, flow: http.HTTPFlow) -> list[bytes]:
        """End a streamed reply when mitmproxy reports its end; return the pieces for the client."""
        if why := flow.server_conn.error:  # the reply ends with its connection, and that was reset
            return self._break_off(flow, why)
        return self.stream.finish() if self.stream else []

    def handle_break(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Report that the server broke off, with mitmproxy's message; return the remaining pieces for the client."""
        if not flow.server_conn.timestamp_tcp_setup:
            return []  # the server was never reached
        out = self._break_off(flow, why)
        for piece in out:
            self.sent.add(piece)
        return [] if self.observed else out

    def handle_fault(self, stream: Stream, chunk: bytes, sent: list[bytes] | None, error: Exception) -> list[bytes]:
        """Return the pieces to send for a chunk whose processing raised an exception.

        `sent` are these pieces if they were already decided. Without this boundary of the stream callable, mitmproxy
        would drop the chunk or never end the reply.
        """
        if sent is not None:
            logger.error(
                "vtc: the record of a reply has a gap\n%s", format_exception(error, self.session.report.secrets)
            )
            return sent
        try:
            return stream.stop_rewriting(chunk, error) if chunk else stream.finish()
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


BUFFERING_COMMENT = "vtc: buffering a possible call"
"""Prefix of a flow's comment while its reply is buffered."""


def make_rewriter(
    stream: Stream,
    live: LiveExchange,
    flow: http.HTTPFlow,
    keep_alive: int = 0,
    clock: Callable[[], float] = time.monotonic,
    at_end: Callable[[], object] | None = None,
) -> Callable[[bytes], list[bytes]]:
    """Make the stream callable; `at_end` is called when the server has ended the reply.

    If a client is sent nothing for `keep_alive` seconds although the server still sends bytes, it gets an empty frame,
    and meanwhile the list of flows shows the progress each second. Rewritten replies are sent in whole frames, so an
    empty frame may follow any of them.
    """
    silent_since = shown_at = 0.0  # times of the last frame to the client and of the last comment
    bytes_before = 0  # bytes received before the silence
    received, sent, last = live.received, live.sent, live.received.last_chunks
    live.stream = stream

    def rewrite(chunk: bytes) -> list[bytes]:
        nonlocal silent_since, shown_at, bytes_before
        out: list[bytes] | None = None
        try:
            if chunk:
                out = stream.feed(chunk)
                if stream.has_stopped and not live.observed:
                    end_early(flow)
            else:
                out = [] if at_end and stream.defers else live.end(flow)  # `at_end` sends deferred text
                if at_end:
                    at_end()
            if live.keep:
                received.add(chunk)
                for piece in out:
                    sent.add(piece)
            else:  # hot path: `BodyRecorder.add` inlined for short chunks
                if len(chunk) > LONG_CHUNK_BYTES:
                    received.add(chunk)
                else:
                    last.append(chunk)
                    received.size += len(chunk)
                if out:
                    sent.size += len(out[0])
            if out or not chunk:
                silent_since = 0.0
                return out
            now = clock()
            if not silent_since:
                silent_since, shown_at, bytes_before = now, now, received.size - len(chunk)
            if not live.observed and now - shown_at >= 1:
                shown_at = now
                _show_buffering(flow, received.size - bytes_before)
            if keep_alive and now - silent_since >= keep_alive and (frame := stream.keep_alive()) is not None:
                silent_since = now
                return [frame]
        except Exception as error:
            return live.handle_fault(stream, chunk, out, error)
        return out

    return rewrite


def send_nothing(_: bytes) -> list[bytes]:
    """Drop a chunk of a body; for `http.Response.stream`."""
    return []


def make_observer(stream: Stream, live: LiveExchange, flow: http.HTTPFlow) -> Callable[[bytes], list[bytes]]:
    """Make the stream callable that parses a reply and forwards it unchanged."""
    live.observed = True
    rewrite = make_rewriter(stream, live, flow)

    def observe(chunk: bytes) -> list[bytes]:
        rewrite(chunk)
        return [chunk] if chunk else []

    return observe


def _show_buffering(flow: http.HTTPFlow, size: int) -> None:
    """Show in the list of flows that a call is being buffered."""
    flows.annotate(flow, f"{BUFFERING_COMMENT}, {size / 1000:.1f} kB so far", flows.BUFFERING_MARKER)
    if view := ctx.master.addons.get("view"):
        view.update([flow])
