"""A reply of server-sent events on its way to the client, from bytes to bytes.

    chunk -> undo the content coding -> cut into frames -> rewriter of the API -> bytes that may leave

A chunk that is a frame which nothing has to look at takes none of these steps, nor do two that are the pieces of one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable

from vtc.apis.base import Rewriter
from vtc.reporting.report import Report
from vtc.wire import compression, sse
from vtc.wire.template import Telling, Unread

logger = logging.getLogger(__name__)


class Stream:
    """A reply of server-sent events, as bytes in any cut: `feed` and `finish` return what may leave now.

    Neither ever raises, and neither ever returns empty bytes.
    """

    def __init__(self, rewriter: Rewriter, decoder: compression.Decoder, report: Report) -> None:
        self._rewriter = rewriter
        self._decoder = decoder
        self._frames = sse.FrameReader()
        self._unread: Unread | None = None  # frames that nobody reads
        self._waiting: list[bytes] = []  # of these
        self._begun = b""  # the first piece of one
        self.passes: Telling = _never
        """Whether a chunk leaves as it came, with nothing else to do. Most do, and `feed` finds the same."""
        self._report = report
        self._failed = False
        self._finished = False
        self.broken = False
        """Whether the body turned out not to be what its content coding says, so that the rest of it is lost."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Read on; the bytes that may leave, joined (at most one item)."""
        if self.passes(chunk):
            return [chunk]
        if unread := self._unread:
            frame = self._begun + chunk
            if self.passes is _never and unread.passes(frame):
                self.passes = unread.passes
                return [b"".join([*self._held(), chunk])]
            self.passes = _never  # while something is held
            if unread.waits(frame):
                self._begun = b""
                self._waiting.append(frame)
                return []
            if not self._begun and unread.begins(chunk):
                self._begun = chunk
                return []
        return _joined(out for one in (*self._held(), chunk) for out in self._failing_open(one, final=False))

    def _held(self) -> list[bytes]:
        """The chunks that nobody has read yet, which are held no longer."""
        held = [*self._waiting, self._begun] if self._begun else self._waiting
        self._waiting, self._begun = [], b""
        return held

    def finish(self) -> list[bytes]:
        """The end of the body (idempotent)."""
        if self._finished:
            return []
        self._finished = True
        held = [out for one in self._held() for out in self._failing_open(one, final=False)]
        return _joined([*held, *self._failing_open(b"", final=True)])

    def _failing_open(self, chunk: bytes, *, final: bool) -> list[bytes]:
        if self.broken:
            return []  # there is a gap before whatever comes
        self._unread, self.passes = None, _never
        out: list[bytes] = []
        data = b""  # that stands in no frame
        frames: list[sse.Frame] = []
        done = 0
        fault: Exception | None = None
        try:
            try:
                data = self._decoder.finish() if final else self._decoder.feed(chunk)
            except Exception as error:
                data, fault, self.broken = getattr(error, "decoded", b""), error, not final
            if self._failed:
                return [data] if data else []
            frames = self._frames.feed(data)
            data = b""
            for frame in self._frames.finish() if final else ():
                if _is_cut_off(frame):
                    data = frame.raw  # whatever else leaves must not complete it
                else:
                    frames.append(frame)
            for frame in frames:
                out += [frame.raw] if frame.data is None else self._rewriter.feed(frame.raw, frame.data)
                done += 1
            if fault:
                raise fault
            if final and (last := self._rewriter.finish()):
                # The body may have ended without a blank line; what is added must not continue the last frame.
                out += [b"\n\n"] * bool(out and not out[-1].endswith((b"\n\n", b"\r\n\r\n", b"\r\r")))
                out += last
            if not self._frames.held and isinstance(self._decoder, compression.Identity):
                self._unread = self._rewriter.unread
                self.passes = self._unread.passes if self._unread else _never
        except Exception as error:
            self._failed = True
            logger.exception("vtc: the rest of the reply is passed on as it came")
            self._report.failures.append(f"{type(error).__name__}: {error}")
            out += self._given_back(self._rewriter.release)
            out += [frame.raw for frame in (*frames[done:], *self._given_back(self._frames.finish))]
        return _joined([*out, data] if data else out)

    def _given_back[T](self, give: Callable[[], list[T]]) -> list[T]:
        try:
            return give()
        except Exception:
            logger.exception("vtc: what was held of the reply is lost")
            return []


def _never(_: bytes) -> bool:
    return False


def _joined(pieces: Iterable[bytes]) -> list[bytes]:
    joined = b"".join(pieces)
    return [joined] if joined else []


def _is_cut_off(frame: sse.Frame) -> bool:
    """Whether the body ended in the middle of a frame: no blank line, and data neither JSON nor `[DONE]`.

    Some servers leave out the last blank line.
    """
    if not frame.raw.splitlines()[-1]:
        return False
    try:
        json.loads((frame.data or b"").replace(b"[DONE]", b"0"))
    except ValueError:
        return True
    return False
