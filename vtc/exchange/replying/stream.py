"""A reply on its way to the client, from bytes to bytes: the one place where a fault of ours in it is caught.

    chunk -> cut into frames -> relay -> bytes that may leave

`CodedStream` undoes a content coding before that. A whole body goes this way as the stream that says the same. A chunk
in which nothing can begin takes the fast path.

`Fate` decides about a frame that cannot be read, and about the rest after a fault.

Where the server breaks off, what waits leaves like the rest of a reply that was cut off, policies and all. Nothing says
to the client that this is the end: its connection breaks, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from vtc.apis.relay import Relay, UnreadableFrame
from vtc.apis.relay.turn import TurnEncoder
from vtc.events import Failure
from vtc.exchange.remembering.reasoning import ReasoningRecorder
from vtc.exchange.replying.fast_path import FastPath
from vtc.exchange.replying.fate import Fate
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.exchange.replying.stages import ReplyFault
from vtc.reporting.report import Report
from vtc.scrub import format_exception
from vtc.wire import compression
from vtc.wire.framing import Frame

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 2**20
"""Bytes of a body that is no stream beyond which it is not kept."""
MAX_JSON_BYTES = 1 << 16
"""The same of one that was declared to be one: it is read at once at its end, while all other streams wait."""


class Stream:
    """A reply as bytes in any cut: `feed` and `finish` return what may leave now, joined (at most one item).

    Neither ever raises, and neither ever returns empty bytes, which would end the body at the client.
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
        """`whole` rewrites a body that turns out not to be a stream but one JSON value."""
        self._relay = relay
        self._recorder = heard
        relay.writer.heed = heard.record_sent if heard else None
        self._fate = fate
        self._whole = whole
        self._body: bytearray | None = None  # once it is known to be no stream
        self._most = MAX_BODY_BYTES
        self._report = report
        self._frames = relay.decoder.framing.make_reader()
        self._fast_path: FastPath | None = FastPath(relay, heard)
        self.has_dropped = False
        """True if something of it could not be read, and did not leave."""
        self._finished = False
        self._clock = clock
        self.seconds = 0.0
        """Time spent on what had to be read, by the clock that was given."""
        self.failed = False
        """True after a fault of ours: from then on the reply is passed on as it comes."""
        self.broken = False
        """True if the rest of the body is lost: it is not what its content coding says, or it may not leave."""

    def collect(self, most: int = MAX_BODY_BYTES) -> None:
        """Take the body for one that is no stream, from its beginning, if it has not more bytes than that."""
        self._body, self._fast_path, self._most = bytearray(), None, most

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes of the body."""
        if (fast := self._fast_path) is None:
            return [data] if (data := self._read(chunk, final=False)) else []
        started = self._clock() if fast.held else 0.0
        try:
            if (out := fast.feed(chunk)) is not None:
                self.seconds += self._clock() - started if started else 0.0
                return out
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
        return [data] if data else []

    def finish(self) -> list[bytes]:
        """End the body (idempotent)."""
        return self._end(breaks=False)

    def break_off(self, why: str) -> list[bytes]:
        """End the body where the server broke off, and report why (idempotent)."""
        if not (self._finished or self.broken):
            self._report.errors.append(why)
        return self._end(breaks=True)

    def _end(self, *, breaks: bool) -> list[bytes]:
        if self._finished:
            return []
        self._finished = True
        started = self._clock()
        data = self._read_rest(final=True, breaks=breaks)
        failure = self._relay.writer.failure
        if (fault := self._relay.fault) and not (self.failed or self.broken):
            self._report.errors.append(fault)
        elif failure and not self._report.errors:
            self._report.errors.append(failure.message)
        if (breaks or self.failed) and self.turn:
            data += b"".join(self.let_end())
        if self._recorder:
            self._recorder.stop() if breaks or self.failed or self.broken or failure else self._recorder.end()
        if unknown := self._relay.writer.left_out:
            self._fate.report_unknown_parts(", ".join(unknown), self._report)
        self.seconds += self._clock() - started
        return [data] if data else []

    @property
    def defers(self) -> bool:
        """True while text waits that is sent in parts, one with each call of `feed`."""
        return bool(self._relay.unsettled)

    @property
    def turn(self) -> TurnEncoder | None:
        """Return what the reply said if its end waits, as the model is to be asked once more; None if it does not."""
        encoder = self._relay.writer.encoder
        return encoder if isinstance(encoder, TurnEncoder) and encoder.state == "held" else None

    def let_end(self) -> list[bytes]:
        """Let the end leave that waits."""
        pieces = self._release_safely(self._relay.writer.let_end)
        return [b"".join(pieces)] if pieces else []

    def go_on(self, first: Stream) -> None:
        """Write on in the reply of another stream, whose end waits."""
        self._relay.go_on(first._relay)
        self._relay.writer.heed = self._recorder.record_sent if self._recorder else None

    def keep_alive(self) -> bytes | None:
        """Write a frame that tells nothing to a client that waits; None if there is no place for one."""
        frame = None if self.failed else self._relay.writer.encoder.keep_alive()
        if self._fast_path and self._relay.writer.encoder.counts:
            self._fast_path.rest()
        return frame

    def lose(self, fault: Exception) -> list[bytes]:
        """End the body at a fault of ours after which there is a gap in it."""
        data = self._read_rest(final=False) if self._fast_path else b""
        data += b"" if self.broken else self._fail(fault)
        self.broken = True
        return [data] if data else []

    def give_up(self, data: bytes, fault: Exception) -> list[bytes]:
        """Rewrite no more of the body, from these bytes on."""
        if self._body is not None:  # which is no work
            return Stream.feed(self, data)
        chunk = self._fast_path.give_back(data) if self._fast_path else data
        out = self._fail(fault)
        if self.failed and self._in_step:
            out += b"".join(frame.raw for frame in self._release_safely(self._frames.finish))
        out += self._read(chunk, final=False)
        return [out] if out else []

    def _read_rest(self, *, final: bool, breaks: bool = False) -> bytes:
        """Take what waits on the fast path the long way."""
        rest = failed = b""
        if fast := self._fast_path:
            try:
                rest = fast.take(b"")
            except Exception as error:
                failed = self._fail(error)
                rest = fast.give_back(b"")
        return failed + self._read(rest, final=final, breaks=breaks)

    def _read(self, rest: bytes, *, final: bool, breaks: bool = False) -> bytes:
        """Take a chunk the long way."""
        if self.broken:
            return b""  # there is a gap before whatever comes
        self.broken = breaks
        out: list[bytes] = []
        unread: list[Frame] = []
        try:
            if self.failed and self._in_step:
                return rest
            if self._whole and self._is_collected(rest):
                return self._collect(rest, final=final, breaks=breaks)
            unread, rest, self._relay.queued = [*self._relay.queued, *self._frames.feed(rest)], b"", []
            if final:
                rest = self._end_frames(unread)
            if self.failed:
                end = self._release_safely(self._relay.writer.close) if final else []
                return b"".join([*(piece for frame in unread for piece in self._pass_through(frame)), *end, rest])
            while unread or self._relay.unsettled:
                if self._relay.unsettled:
                    out += self._relay.send_deferred()
                    if self._relay.unsettled and not final:
                        break
                    continue
                try:
                    out += self._relay.feed(unread[0])
                except UnreadableFrame as error:
                    self._drop_frame(str(error))
                del unread[0]
            self._relay.queued, unread = unread, []
            if rest and not self._fate.is_open:
                rest = b""
                if not breaks:
                    self._drop_frame("it was cut off")
            if final and (last := self._relay.finish(breaks=breaks)):
                # The body may have ended without a terminator; what is added must not continue the last frame.
                terminator = self._relay.writer.encoder.framing.end
                out += [terminator] * bool(out and not _is_ended(out[-1], terminator))
                out += last
        except Exception as error:
            out.append(self._fail(error))
            if not self.failed:
                return b"".join(out)
            out += [piece for frame in unread for piece in self._pass_through(frame)]
            if final or self._in_step:  # a frame that has only begun gets its number when it is whole
                out += [frame.raw for frame in self._release_safely(self._frames.finish)]
        return b"".join([*out, rest])

    def _fail(self, error: Exception) -> bytes:
        """Rewrite no more of this reply; return what waited, if it may leave."""
        self._fast_path = None
        if self._fate.decide_after_fault(error, self._report):
            self.failed = True
            waited, queued = self._release_safely(self._relay.release), self._relay.queued
            self._relay.queued = []
            return b"".join([*waited, *(piece for frame in queued for piece in self._pass_through(frame))])
        self.broken = self.has_dropped = True
        return b""

    @property
    def faults(self) -> list[ReplyFault]:
        """Return what may be worth asking again for, of all choices."""
        return [fault for pipeline in self._relay.pipelines.values() for fault in pipeline.faults]

    @property
    def failure(self) -> Failure | None:
        """The error by which the reply of a server of another API ended, if by one."""
        return self._relay.writer.failure

    def _drop_frame(self, reason: str) -> None:
        """Leave out a frame that cannot be read."""
        self.has_dropped = True
        self._fate.report_dropped_frame(reason, self._report)
        if self._recorder:
            self._recorder.stop()

    def _is_collected(self, data: bytes) -> bool:
        """True if the body is no stream, by its beginning: some servers send one JSON value as one."""
        beginning = data.lstrip(b"\xef\xbb\xbf \t\r\n")
        if self._body is None and self._whole and beginning:
            if beginning.startswith(b"{"):
                self.collect(MAX_JSON_BYTES)
                self._body = bytearray().join(frame.raw for frame in self._frames.finish())
            else:
                self._whole = None
        return self._body is not None

    def _collect(self, data: bytes, *, final: bool, breaks: bool) -> bytes:
        """Keep a body up to its end. Raises `FrameTooLong` if it has no end in sight and may not pass."""
        assert self._body is not None
        assert self._whole is not None
        self._body += data
        body, whole = self._body, self._whole
        if len(body) > self._most:
            self._body = self._whole = None
            self._fate.decide_long_body(f"the reply is no stream, and longer than {self._most >> 10} KiB", self._report)
            self.failed = True
            return bytes(body)
        if breaks:
            return bytes(body) if self._fate.is_open else b""
        return whole(bytes(body)) if final else b""

    @property
    def _in_step(self) -> bool:
        return self._relay.writer.in_step

    def _pass_through(self, frame: Frame) -> list[bytes]:
        """Pass a frame after a failure."""
        return self._release_safely(lambda: self._relay.pass_through(frame), [frame.raw])

    def _end_frames(self, frames: list[Frame]) -> bytes:
        """Append the last frame; return it instead if the body ended in its middle: nothing may complete it."""
        for frame in self._frames.finish():
            if self._relay.decoder.framing.is_cut_off(frame):
                return frame.raw
            frames.append(frame)
        return b""

    def _release_safely[T](self, give: Callable[[], list[T]], else_: Sequence[T] = ()) -> list[T]:
        """Return what waited, or something else if that fails."""
        try:
            return give()
        except Exception as error:
            logger.error("vtc: what was held of the reply is lost\n%s", format_exception(error, self._report.secrets))
            return [*else_]


def _is_ended(data: bytes, end: bytes) -> bool:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").endswith(end)


# A streamed reply that comes in a content coding, undone before the rest of its way.
#
# A few bytes of it stand for many, and all other streams wait while one read of them is dealt with. So what one read
# stands for goes on in slices, as if it had come so, and there is an end to it: a reply that takes too long is given
# up.


SLICE_BYTES = 1 << 13
"""Bytes that are dealt with between two looks at the clock."""
MAX_READ_SECONDS = 0.1
"""Of work on one read; without a coding a read is 4 KB, which takes some milliseconds."""


class TooMuchWork(Exception):
    """A few bytes stood for more than can be dealt with while others wait."""


class CodedStream(Stream):
    """A stream whose bytes come in a content coding."""

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
                out += self.give_up(data[at:], TooMuchWork("one read of the compressed reply took too much work"))
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
        return self.lose(fault)


def _try_decode(decode: Callable[[], bytes]) -> tuple[bytes, Exception | None]:
    """Return what could be decoded, and the fault if that is not all of it."""
    try:
        return decode(), None
    except Exception as error:
        return getattr(error, "decoded", b""), error
