"""A reply on its way to the client, from bytes to bytes; the only place that catches VTC's own faults in it.

    chunk -> frames -> relay -> bytes for the client

`CodedStream` first undoes a content coding. A whole body is processed as an equivalent stream. A chunk in which nothing
can begin takes the fast path.

`Fate` decides about a frame that cannot be read, and about the rest after a fault.

If the server breaks off, buffered text is sent like the end of any truncated reply, subject to policies. The client
gets no end marker, because its connection breaks, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from vtc.apis.relay import Relay
from vtc.apis.relay.turn import TurnEncoder
from vtc.apis.relay.writer import UnreadableFrame
from vtc.events import Failure
from vtc.exchange.remembering.recorder import ReasoningRecorder
from vtc.exchange.replying.fast_path import FastPath
from vtc.exchange.replying.fate import Fate
from vtc.exchange.replying.faults import ReplyFault
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.reporting.report import Report
from vtc.scrub import format_exception
from vtc.wire import compression
from vtc.wire.framing import Frame

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 2**20
"""Bytes beyond which a body that is no stream is not buffered."""
MAX_JSON_BYTES = 1 << 16
"""The same for a body that was declared as a stream, because parsing it at its end blocks all other streams."""


class Stream:
    """A reply as bytes in arbitrary chunks: `feed` and `finish` return the joined bytes to send (at most one item).

    Neither raises. Neither returns empty bytes, which would end the body at the client.
    """

    def __init__(
        self,
        relay: Relay[ReplyPipeline],
        report: Report,
        fate: Fate,
        clock: Callable[[], float] = float,
        *,
        whole: Callable[[bytes], bytes] | None = None,
        heard: ReasoningRecorder | None = None,
    ) -> None:
        """Set up the stream; `whole` rewrites a body that turns out to be one JSON value."""
        self._relay = relay
        self._recorder = heard
        relay.writer.on_sent = heard.record_sent if heard else None
        self._fate = fate
        self._whole = whole
        self._body: bytearray | None = None  # set once the body proves to be no stream
        self._max_body_bytes = MAX_BODY_BYTES
        self._report = report
        self._frames = relay.decoder.framing.make_reader()
        self._fast_path: FastPath | None = FastPath(relay, heard)
        self.has_dropped = False
        """True if a part of the reply could not be read and was dropped."""
        self._finished = False
        self._clock = clock
        self.seconds = 0.0
        """Time spent on parsing, by the given clock."""
        self.failed = False
        """True after a fault of VTC: the rest of the reply is forwarded unchanged."""
        self.broken = False
        """True if the rest of the body is lost, by invalid content coding or because it must not be sent."""

    def collect(self, most: int = MAX_BODY_BYTES) -> None:
        """Buffer the body because it is no stream, up to this many bytes; call it before the first chunk."""
        self._body, self._fast_path, self._max_body_bytes = bytearray(), None, most

    def feed(self, chunk: bytes) -> list[bytes]:
        """Process the next bytes of the body."""
        if (fast := self._fast_path) is None:
            if self.has_stopped:
                return []
            return [data] if (data := self._read(chunk, final=False)) else []
        started = self._clock() if fast.held else 0.0
        try:
            if (out := fast.feed(chunk)) is not None:
                self.seconds += self._clock() - started if started else 0.0
                return [b"".join([*out, *self._stop()])] if self._relay.stop_message and out else out
            rest = fast.take(chunk)
        except Exception as error:
            data = self._fail(error) + (fast.give_back(chunk) if self.failed else b"")
            return [data] if data else []
        started = self._clock()
        data = self._read(rest, final=False)
        try:
            if self._fast_path is fast:
                fast.learn(whole=not self._frames.buffered)
        except Exception as error:
            data += self._fail(error)
        self.seconds += self._clock() - started
        if self._relay.stop_message:
            data += b"".join(self._stop())
        return [data] if data else []

    @property
    def has_stopped(self) -> bool:
        """True if VTC has ended the reply before the server did."""
        return self._finished and bool(self._relay.stop_message)

    def _stop(self) -> list[bytes]:
        """End a reply that repeats itself, with a message to the client; nothing if it has ended by itself."""
        if self._finished or self.failed or self.broken or not self._relay.choices.has_open:
            self._relay.stop_message = ""
            return []
        if self._fast_path:
            self._fast_path.take(b"")
            self._fast_path = None
        self._frames.finish()  # the incomplete frame is dropped
        self._relay.queued = []
        self._report.notes.append("VTC ended the reply there (vtc_stop_repeats)")
        return self._end(breaks=False)

    def finish(self) -> list[bytes]:
        """End the body (idempotent)."""
        return self._end(breaks=False)

    def break_off(self, why: str) -> list[bytes]:
        """End the body after the server broke off, and report the reason (idempotent)."""
        if not (self._finished or self.broken):
            self._report.errors.append(why)
        return self._end(breaks=True)

    def _end(self, *, breaks: bool) -> list[bytes]:
        if self._finished:
            return []
        self._finished = True
        started = self._clock()
        data = self._read_rest(final=True, breaks=breaks)
        failure = self._relay.writer.translator.failure
        if (fault := self._relay.fault) and not (self.failed or self.broken):
            self._report.errors.append(fault)
        elif failure and not self._report.errors:
            self._report.errors.append(failure.message)
        if (breaks or self.failed) and self.turn:
            data += b"".join(self.release_end())
        if self._recorder:
            is_incomplete = breaks or self.failed or self.broken or failure or self._relay.stop_message
            self._recorder.stop() if is_incomplete else self._recorder.end()
        if unknown := self._relay.writer.translator.left_out:
            self._fate.report_unknown_parts(", ".join(unknown), self._report)
        if dropped := self._relay.dropped:
            self._report.notes.append(
                f"dropped, because no client of the server's API can parse it: {', '.join(dropped)}"
            )
        self.seconds += self._clock() - started
        return [data] if data else []

    @property
    def defers(self) -> bool:
        """True while buffered text is sent in parts, one with each call of `feed`."""
        return bool(self._relay.choices.unsettled)

    @property
    def turn(self) -> TurnEncoder | None:
        """The reply so far if its end is buffered for a reminder; None if it is not."""
        encoder = self._relay.writer.encoder
        return encoder if isinstance(encoder, TurnEncoder) and encoder.state == "held" else None

    def release_end(self) -> list[bytes]:
        """Send the buffered end."""
        pieces = self._release_safely(self._relay.writer.release_end)
        return [b"".join(pieces)] if pieces else []

    def continue_from(self, first: Stream) -> None:
        """Continue the reply of another stream, whose end is buffered."""
        self._relay.continue_reply(first._relay)
        self._relay.writer.on_sent = self._recorder.record_sent if self._recorder else None

    def keep_alive(self) -> bytes | None:
        """Return a frame without content for an idle client; None if none is possible here."""
        frame = None if self.failed else self._relay.writer.encoder.keep_alive()
        if self._fast_path and self._relay.writer.encoder.counts:
            self._fast_path.pause()
        return frame

    def end_after_gap(self, fault: Exception) -> list[bytes]:
        """End the body after a fault of VTC that left a gap in it."""
        data = self._read_rest(final=False) if self._fast_path else b""
        data += b"" if self.broken else self._fail(fault)
        self.broken = True
        return [data] if data else []

    def stop_rewriting(self, data: bytes, fault: Exception) -> list[bytes]:
        """Stop rewriting; pass `data` and the rest of the body through unchanged."""
        if self._body is not None:  # buffering costs nothing
            return Stream.feed(self, data)
        chunk = self._fast_path.give_back(data) if self._fast_path else data
        out = self._fail(fault)
        if self.failed and self._in_step:
            out += b"".join(frame.raw for frame in self._release_safely(self._frames.finish))
        out += self._read(chunk, final=False)
        return [out] if out else []

    def _read_rest(self, *, final: bool, breaks: bool = False) -> bytes:
        """Move the bytes buffered by the fast path to the slow path."""
        rest = failed = b""
        if fast := self._fast_path:
            try:
                rest = fast.take(b"")
            except Exception as error:
                failed = self._fail(error)
                rest = fast.give_back(b"")
        return failed + self._read(rest, final=final, breaks=breaks)

    def _read(self, rest: bytes, *, final: bool, breaks: bool = False) -> bytes:
        """Process a chunk on the slow path."""
        if self.broken:
            return b""  # nothing may follow the gap
        self.broken = breaks
        out: list[bytes] = []
        unread: list[Frame] = []
        try:
            if self.failed and self._in_step:  # a partial frame was buffered if numbers were out of step before
                return b"".join([*(frame.raw for frame in self._frames.finish()), rest])
            # Step 1: a body that is no stream is buffered to its end.
            if self._whole and self._is_collected(rest):
                return self._collect(rest, final=final, breaks=breaks)
            # Step 2: split the bytes into frames; after a fault they are only renumbered.
            unread, rest, self._relay.queued = [*self._relay.queued, *self._frames.feed(rest)], b"", []
            if final:
                rest = self._end_frames(unread)
            if self.failed:
                end = self._release_safely(self._relay.writer.close) if final else []
                return b"".join([*(piece for frame in unread for piece in self._pass_through(frame)), *end, rest])
            # Step 3: run each frame through the relay, unless it sends the last text in parts.
            unsettled = self._relay.choices.unsettled
            while unread or unsettled:
                if unsettled:
                    out += self._relay.send_deferred()
                    if unsettled and not final:
                        break
                    continue
                try:
                    out += self._relay.feed(unread[0])
                except UnreadableFrame as error:
                    self._drop_frame(str(error))
                del unread[0]
                if self._relay.stop_message and self._relay.choices.has_open:
                    unread.clear()
            # Step 4: end the body. A partial frame is dropped unless everything unread may be sent.
            self._relay.queued, unread = unread, []
            if rest and not self._fate.is_open:
                rest = b""
                if not breaks:
                    self._drop_frame("it was cut off")
            if final and (last := self._relay.finish(breaks=breaks)):
                # The body may have ended without a terminator; added frames must not continue the last one.
                terminator = self._relay.writer.encoder.framing.end
                out += [terminator] * bool(out and not _is_ended(out[-1], terminator))
                out += last
        except Exception as error:
            out.append(self._fail(error))
            if not self.failed:
                return b"".join(out)
            out += [piece for frame in unread for piece in self._pass_through(frame)]
            if final or self._in_step:  # a partial frame is numbered once it is complete
                out += [frame.raw for frame in self._release_safely(self._frames.finish)]
        return b"".join([*out, rest])

    def _fail(self, error: Exception) -> bytes:
        """Stop rewriting this reply; return the buffered bytes if they may be sent."""
        self._fast_path = None
        if self._fate.decide_after_fault(error, self._report):
            self.failed = True
            waited, queued = self._release_safely(self._relay.release), self._relay.queued
            self._relay.queued = []
            return b"".join([*waited, *(piece for frame in queued for piece in self._pass_through(frame))])
        self.broken = self.has_dropped = True
        error_event: list[bytes] = self._release_safely(self._relay.break_bridge) if self._fate.bridged else []
        return b"".join(error_event)

    @property
    def faults(self) -> list[ReplyFault]:
        """Faults of all choices that may justify a retry."""
        return [fault for pipeline in self._relay.choices.pipelines.values() for fault in pipeline.faults]

    @property
    def failure(self) -> Failure | None:
        """The error that ended the reply of a server over a bridge, if any."""
        return self._relay.writer.translator.failure

    def _drop_frame(self, reason: str) -> None:
        """Drop a frame that cannot be read."""
        self.has_dropped = True
        self._fate.report_dropped_frame(reason, self._report)
        if self._recorder:
            self._recorder.stop()

    def _is_collected(self, data: bytes) -> bool:
        """Return True if the body begins as no stream, because some servers send one JSON value instead."""
        beginning = data.lstrip(b"\xef\xbb\xbf \t\r\n")
        if self._body is None and self._whole and beginning:
            if beginning.startswith(b"{"):
                self.collect(MAX_JSON_BYTES)
                self._body = bytearray().join(frame.raw for frame in self._frames.finish())
            else:
                self._whole = None
        return self._body is not None

    def _collect(self, data: bytes, *, final: bool, breaks: bool) -> bytes:
        """Buffer a body up to its end. Raises `FrameTooLong` if it is too long and must not be forwarded."""
        assert self._body is not None
        assert self._whole is not None
        self._body += data
        body, whole = self._body, self._whole
        if len(body) > self._max_body_bytes:
            self._body = self._whole = None
            self._fate.decide_long_body(
                f"the reply is no stream, and longer than {self._max_body_bytes >> 10} KiB", self._report
            )
            self.failed = True
            return bytes(body)
        if breaks:
            return bytes(body) if self._fate.is_open else b""
        return whole(bytes(body)) if final else b""

    @property
    def _in_step(self) -> bool:
        return self._relay.writer.in_step

    def _pass_through(self, frame: Frame) -> list[bytes]:
        """Forward a frame after a fault."""
        return self._release_safely(lambda: self._relay.pass_through(frame), [frame.raw])

    def _end_frames(self, frames: list[Frame]) -> bytes:
        """Append the last frame; if the body ended inside it return it instead, because nothing may complete it."""
        for frame in self._frames.finish():
            if self._relay.decoder.framing.is_cut_off(frame):
                return frame.raw
            frames.append(frame)
        return b""

    def _release_safely[T](self, give: Callable[[], list[T]], else_: Sequence[T] = ()) -> list[T]:
        """Return buffered items, or a fallback if that fails."""
        try:
            return give()
        except Exception as error:
            logger.error(
                "vtc: the buffered part of the reply is lost\n%s", format_exception(error, self._report.secrets)
            )
            return [*else_]


def _is_ended(data: bytes, end: bytes) -> bool:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").endswith(end)


SLICE_BYTES = 1 << 13
"""Bytes that are processed between two checks of the clock."""
MAX_READ_SECONDS = 0.1
"""Work on one read, in seconds; an uncoded read of 4 KB takes some milliseconds."""


class TooMuchWork(Exception):
    """A few bytes expanded to more than can be processed while other streams wait."""


class CodedStream(Stream):
    """A stream whose bytes have a content coding, which is decoded first.

    A few coded bytes may expand to many, and all other streams wait while one read is processed. So the expanded bytes
    are processed in slices, and the rest of a reply that takes too long is passed through unread.
    """

    def __init__(
        self,
        decoder: compression.ContentDecoder,
        relay: Relay[ReplyPipeline],
        report: Report,
        fate: Fate,
        clock: Callable[[], float] = float,
        *,
        whole: Callable[[bytes], bytes] | None = None,
        heard: ReasoningRecorder | None = None,
    ) -> None:
        super().__init__(relay, report, fate, clock, whole=whole, heard=heard)
        self._decoder = decoder

    def feed(self, chunk: bytes) -> list[bytes]:
        if self.broken:
            return []
        data, fault = _try_decode(lambda: self._decoder.feed(chunk))
        out: list[bytes] = []
        until = self._clock() + MAX_READ_SECONDS
        for at in range(0, len(data), SLICE_BYTES):
            if self._clock() > until and not self.failed:
                out += self.stop_rewriting(
                    data[at:], TooMuchWork("one read of the compressed reply took too much work")
                )
                break
            out += super().feed(data[at : at + SLICE_BYTES])
        if fault:
            out += self._end_undecodable(fault)
        return [b"".join(out)] if out else []

    def finish(self) -> list[bytes]:
        data, fault = _try_decode(self._decoder.finish)
        out = super().feed(data) if data and not self.broken else []
        return [*out, *(self._end_undecodable(fault) if fault else super().finish())]

    def _end_undecodable(self, fault: Exception) -> list[bytes]:
        """End the body at a fault after which none of it can be decoded."""
        if isinstance(fault, compression.CorruptBody):
            return self.break_off(f"the server broke off: {fault}")
        return self.end_after_gap(fault)


def _try_decode(decode: Callable[[], bytes]) -> tuple[bytes, Exception | None]:
    """Return the decoded bytes, and the fault if they are incomplete."""
    try:
        return decode(), None
    except Exception as error:
        return getattr(error, "decoded", b""), error
