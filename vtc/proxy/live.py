"""An exchange on its way through the proxy."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from mitmproxy import http

from vtc.exchange import Exchange
from vtc.exchange.stream import Stream
from vtc.proxy.bodies import Passing


def broken_off(flow: http.HTTPFlow, why: str, size: int = 0) -> str:
    """Say that the server broke off, `why` in mitmproxy's words, after it sent so many bytes that were looked at."""
    place = "before it answered" if flow.response is None else "in the middle of its reply"
    return f"the server broke off {f'after {size} bytes of its reply' if size else place} ({why})"


@dataclass(slots=True)
class Live:
    """An exchange on its way through, the seconds spent on it, and its reply as it came and as it went."""

    exchange: Exchange
    keep: bool
    seconds: float = 0.0
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
    came: Passing = field(init=False)
    went: Passing = field(init=False)

    def __post_init__(self) -> None:
        self.came, self.went = Passing(keep=self.keep), Passing(keep=self.keep)

    def end(self, flow: http.HTTPFlow) -> list[bytes]:
        """End a streamed reply where mitmproxy says that it ends; return what leaves for the client."""
        if why := flow.server_conn.error:  # only the end of the connection ends the reply, and it was reset
            return self._broken_off(flow, why)
        return self.stream.finish() if self.stream else []

    def broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Report that the server broke off, `why` in mitmproxy's words; return what still leaves for the client."""
        if not flow.server_conn.timestamp_tcp_setup:
            return []  # it was never reached
        out = self._broken_off(flow, why)
        for piece in out:
            self.went.add(piece)
        return [] if self.observed else out

    def _broken_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        told = broken_off(flow, why, self.came.size)
        if self.stream is None:
            self.exchange.report.errors.append(told)
            return []
        return self.stream.break_off(told)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the reply that came, and that went."""
        return self.came.size, self.went.size
