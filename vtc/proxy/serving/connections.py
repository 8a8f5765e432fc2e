"""Extend mitmproxy's connections.

Servers that break off are reported in time, the client's Host header is recorded, streams are scheduled fairly, and
client connections are closed before the exit. mitmproxy has no hook for the first three, so its methods and streams are
replaced. Only `client_stream.py` does the same, to detect disconnects of clients and to continue replies.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from mitmproxy import ctx, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Connection
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseProtocolError,
)
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

# mitmproxy calls a stream callable for each chunk and at a clean end, but not if a connection is reset, a body is
# incomplete or HTTP/2 aborts a stream; by the time of its `error` hook nothing can be sent. So its method that handles
# all of these first asks the holders for buffered text, and sends it like any chunk. If nothing was sent before,
# mitmproxy would answer with an HTML page, which clients of an API cannot parse: an error of their API replaces it.


class Holder(Protocol):
    """An addon that buffers parts of replies."""

    def server_broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Return the pieces still to be sent after a flow broke off; `why` is mitmproxy's message."""
        ...

    def server_gave_no_reply(self, flow: http.HTTPFlow, why: str) -> http.Response | None:
        """Return the answer for a flow without a whole reply, or None for mitmproxy's error page.

        `why` is mitmproxy's message.
        """
        ...


NO_ANSWER_CODES = (ErrorCode.CONNECT_FAILED, ErrorCode.GENERIC_SERVER_ERROR, ErrorCode.RESPONSE_VALIDATION_FAILED)
HOLDERS: WeakSet[Holder] = WeakSet()
"""The registered holders."""

_original_handle = getattr(HttpStream.handle_protocol_error, "__wrapped__", HttpStream.handle_protocol_error)
"""mitmproxy's own method; a script that is loaded again must not wrap its own wrapper."""


@wraps(_original_handle)
def _ask_holders_first(
    stream: HttpStream, event: RequestProtocolError | ResponseProtocolError
) -> CommandGenerator[None]:
    """Send the buffered pieces of a reply that broke off, or answer a request without a reply; else call mitmproxy."""
    if isinstance(event, ResponseProtocolError):
        for holder in [*HOLDERS]:
            for piece in holder.server_broke_off(stream.flow, event.message):
                yield SendHttp(ResponseData(stream.stream_id, piece), stream.context.client)
        response = stream.flow.response
        was_sent = response is not None and bool(response.stream)
        if event.code in NO_ANSWER_CODES and not was_sent and stream.client_state == stream.state_done:
            answers = (holder.server_gave_no_reply(stream.flow, event.message) for holder in [*HOLDERS])
            answer = next(filter(None, answers), None)
            if answer:
                stream.flow.response = answer
                yield from stream.send_response()
                return
    yield from _original_handle(stream, event)


HttpStream.handle_protocol_error = _ask_holders_first  # type: ignore[method-assign, assignment]


# The Host header distinguishes requests of web pages. A reverse proxy overwrites it before any hook, so it is recorded.

_HOSTS: WeakKeyDictionary[http.Request, str] = WeakKeyDictionary()
_original_begin = getattr(
    HttpStream.state_wait_for_request_headers, "__wrapped__", HttpStream.state_wait_for_request_headers
)


@wraps(_original_begin)
def _record_host(stream: HttpStream, event: RequestHeaders) -> CommandGenerator[None]:
    _HOSTS[event.request] = event.request.host_header or ""
    yield from _original_begin(stream, event)


HttpStream.state_wait_for_request_headers = _record_host  # type: ignore[method-assign]


def get_named_host(request: http.Request) -> str:
    """Return the host and port that a client sent in its Host header; empty if there was none."""
    return _HOSTS.get(request, "")


# A turn of a stream is one small read from a model server, and at most two writes of the result. Without turns
# mitmproxy processes all received data at once, which for adversarial text is more than a second of work. It also
# writes every chunk separately, although one read may contain dozens and a write takes longer than the other work.

FIRST_READ_BYTES, MIN_READ_BYTES, MAX_READ_BYTES = 1 << 10, 1 << 8, 1 << 12
"""Sizes of a read in bytes: the first, and the limits between which it adapts to the duration of turns."""
LONG_TURN_SECONDS = 0.02
"""Duration of a turn after which the size of the next read is halved."""
_PENDING_WORK: WeakKeyDictionary[Connection, set[asyncio.Future[Any]]] = WeakKeyDictionary()
"""Work of hooks during which a connection is not read."""


async def wait_without_reading(server: Connection, work: asyncio.Future[None]) -> None:
    """Await work in a hook of a reply, without reading more of the reply meanwhile.

    mitmproxy would buffer received data until the hook ends, and then process all of it in one turn.
    """
    awaited = _PENDING_WORK.setdefault(server, set())
    awaited.add(work)
    try:
        await work
    finally:
        awaited.discard(work)


class SmallReads:
    """Reader of a server's connection that returns small pieces, and yields to all other streams between them.

    It replaces mitmproxy's `asyncio.StreamReader`, of which mitmproxy calls only `read`.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        server: Connection,
        begin: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Set up the reader; `begin` is called when a turn begins, and `server` gets an error of the connection."""
        self._reader = reader
        self._server = server
        self._begin = begin
        self._clock = clock
        self._received = b""
        self._size = FIRST_READ_BYTES
        self._turn_start = math.inf  # start of the last turn

    async def read(self, max_bytes: int) -> bytes:
        # Step 1: Adapt the size of reads to the duration of the last turn.
        duration = self._clock() - self._turn_start
        if duration > LONG_TURN_SECONDS:
            self._size = max(self._size // 2, MIN_READ_BYTES)
        elif self._received and duration < LONG_TURN_SECONDS / 4:
            self._size = min(self._size * 2, MAX_READ_BYTES)
        # Step 2: Read everything available, because after a reset nothing more can be read; or yield to other streams.
        if not self._received:
            try:
                self._received = await self._reader.read(max_bytes)
            except OSError as error:  # mitmproxy treats it like a clean end
                self._server.error = error.strerror or type(error).__name__
                raise
        elif self._reader.exception() is None:
            await asyncio.sleep(0)
        # Step 3: Deliver a piece, but after a reset all of it.
        while awaited := _PENDING_WORK.get(self._server):
            await asyncio.wait(awaited)
        size = self._size if self._reader.exception() is None else max_bytes
        data, self._received = self._received[:size], self._received[size:]
        if self._begin:
            self._begin()
        self._turn_start = self._clock()
        return data


class JoinedWrites:
    """Writer of a client's connection that joins the pieces of a turn.

    The first piece is written at once, because it is mostly the only one; the others are written together at the end
    of the turn. It replaces mitmproxy's `asyncio.StreamWriter`.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._is_first = True
        self._buffered: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def begin(self) -> None:
        """Begin a turn."""
        self._flush()
        self._is_first = True

    def write(self, data: bytes) -> None:
        if self._is_first:
            self._is_first = False
            self._writer.write(data)
            return
        if not self._buffered:
            # Do not rely on mitmproxy's call of `drain`: it drains all connections of a client one after the other, and
            # a server may read nothing until its client has received this data.
            asyncio.get_running_loop().call_soon(self._flush)
        self._buffered.append(data)

    def _flush(self) -> None:
        if self._buffered:
            data, self._buffered = b"".join(self._buffered), []
            if not self._writer.is_closing():
                self._writer.write(data)

    async def drain(self) -> None:
        self._flush()
        await self._writer.drain()

    def write_eof(self) -> None:
        self._flush()
        self._writer.write_eof()

    def close(self) -> None:
        self._flush()
        self._writer.close()


class Turns:
    """Addon that schedules streams in turns."""

    name = "vtc-turns"

    def server_connected(self, data: ServerConnectionHookData) -> None:
        proxy = ctx.master.addons.get("proxyserver")
        if not isinstance(proxy, Proxyserver):
            return
        for handler in proxy.connections.values():
            if handler.client is not data.client:
                continue
            server, client = (handler.transports.get(end) for end in (data.server, data.client))
            # Connections of datagrams, and of mitmproxy's Rust code, have no such streams.
            writer: Any = client.writer if client else None
            if client and isinstance(writer, asyncio.StreamWriter):
                client.writer = writer = JoinedWrites(writer)  # type: ignore[assignment]
            if server and isinstance(server.reader, asyncio.StreamReader):
                begin = writer.begin if isinstance(writer, JoinedWrites) else None
                server.reader = SmallReads(server.reader, data.server, begin)  # type: ignore[assignment]


# At the exit mitmproxy would let asyncio cancel the tasks of open client connections, after all addons have ended. Then
# running flows would not be reported, and Python 3.12.0 and 3.12.1 would print a traceback for each client, because
# `StreamReaderProtocol` asks a cancelled task for its exception. So VTC closes them as mitmproxy closes idle ones.

CLOSE_SECONDS = 1.0
"""Seconds to wait until connections have closed; asyncio cancels the rest."""


async def close_clients() -> None:
    """Close all client connections, and wait until their flows have ended."""
    proxy = ctx.master.addons.get("proxyserver")
    if not isinstance(proxy, Proxyserver):
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CLOSE_SECONDS
    while proxy.connections and loop.time() < deadline:
        for connection in proxy.connections.values():
            client = connection.transports.get(connection.client)
            if client and client.handler and not client.handler.cancelling():
                client.handler.cancel("the proxy ends")
        await asyncio.sleep(0.01)
