"""A streamed reply that comes in a content coding, undone before the rest of its way.

A few bytes of it stand for many, and all other streams wait while one read of them is dealt with. So what one read
stands for goes on in slices, as if it had come so, and there is an end to it: a reply that takes too long is given up.
"""

from __future__ import annotations

from collections.abc import Callable

from vtc.apis.relay import Relay
from vtc.exchange.heard import Heard
from vtc.exchange.reply import ReplyPipeline
from vtc.exchange.stream import Stream
from vtc.reporting.report import Report
from vtc.wire import compression

SLICE = 1 << 13
"""Bytes that are dealt with between two looks at the clock."""
MOST_SECONDS = 0.1
"""Of work on one read; without a coding a read is 8 KB, which takes some milliseconds."""


class TooMuchWork(Exception):
    """A few bytes stood for more than can be dealt with while others wait."""


class CodedStream(Stream):
    """A stream whose bytes come in a content coding."""

    def __init__(
        self,
        decoder: compression.Decoder,
        relay: Relay[ReplyPipeline],
        report: Report,
        clock: Callable[[], float] = float,
        *,
        whole: Callable[[bytes], bytes] | None = None,
        heard: Heard | None = None,
    ) -> None:
        super().__init__(relay, report, clock, whole=whole, heard=heard)
        self._decoder = decoder

    def feed(self, chunk: bytes) -> list[bytes]:
        if self.broken:
            return []
        data, fault = _tried(lambda: self._decoder.feed(chunk))
        out: list[bytes] = []
        until = self._clock() + MOST_SECONDS
        for at in range(0, len(data), SLICE):
            if self._clock() > until and not self.failed:
                out += self.give_up(data[at:], TooMuchWork("one read of the compressed reply took too much work"))
                break
            out += super().feed(data[at : at + SLICE])
        if fault:
            out += self._lost(fault)
        return [b"".join(out)] if out else []

    def finish(self) -> list[bytes]:
        data, fault = _tried(self._decoder.finish)
        out = super().feed(data) if data and not self.broken else []
        return [*out, *(self._lost(fault) if fault else super().finish())]

    def _lost(self, fault: Exception) -> list[bytes]:
        """End the body at a fault after which none of it can be decoded."""
        if isinstance(fault, compression.CorruptBody):
            return self.break_off(f"the server broke off: {fault}")
        return self.lose(fault)


def _tried(decode: Callable[[], bytes]) -> tuple[bytes, Exception | None]:
    """What could be decoded, and why not all of it."""
    try:
        return decode(), None
    except Exception as error:
        return getattr(error, "decoded", b""), error
