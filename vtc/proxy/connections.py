"""Extend mitmproxy's connections.

Servers that break off are reported in time, the client's Host header is recorded, streams are scheduled fairly, and
client connections are closed before the exit. mitmproxy has no hook for the first three, so its methods and streams are
replaced. Only `follow_up.py` does the same: to detect disconnects of clients, and to continue a reply after its end.
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

    def server_gave_none(self, flow: http.HTTPFlow, why: str) -> http.Response | None:
        """Return the answer for a flow without a whole reply, None for mitmproxy's page; `why` is its message."""
        ...


NO_ANSWER_CODES = (ErrorCode.CONNECT_FAILED, ErrorCode.GENERIC_SERVER_ERROR, ErrorCode.RESPONSE_VALIDATION_FAILED)
HOLDERS: WeakSet[Holder] = WeakSet()
"""The registered holders."""

_handle = getattr(HttpStream.handle_protocol_error, "__wrapped__", HttpStream.handle_protocol_error)
"""mitmproxy's own method; a script that is loaded again must not wrap its own wrapper."""


@wraps(_handle)
def _ask_holders_first(
    stream: HttpStream, event: RequestProtocolError | ResponseProtocolError
) -> CommandGenerator[None]:
    if isinstance(event, ResponseProtocolError):
        for holder in [*HOLDERS]:
            for piece in holder.server_broke_off(stream.flow, event.message):
                yield SendHttp(ResponseData(stream.stream_id, piece), stream.context.client)
        response = stream.flow.response
        unanswered = event.code in NO_ANSWER_CODES and (response is None or not response.stream)  # nothing was sent
        answers = (holder.server_gave_none(stream.flow, event.message) for holder in [*HOLDERS])
        if unanswered and stream.client_state == stream.state_done and (answer := next(filter(None, answers), None)):
            stream.flow.response = answer
            yield from stream.send_response()
            return
    yield from _handle(stream, event)


HttpStream.handle_protocol_error = _ask_holders_first  # type: ignore[method-assign, assignment]


# The Host header distinguishes requests of web pages. A reverse proxy overwrites it before any hook, so it is recorded.

_HOSTS: WeakKeyDictionary[http.Request, str] = WeakKeyDictionary()
_begin = getattr(HttpStream.state_wait_for_request_headers, "__wrapped__", HttpStream.state_wait_for_request_headers)


@wraps(_begin)
def _record_host(stream: HttpStream, event: RequestHeaders) -> CommandGenerator[None]:
    _HOSTS[event.request] = event.request.host_header or ""
    yield from _begin(stream, event)


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
_AWAITED: WeakKeyDictionary[Connection, set[asyncio.Future[Any]]] = WeakKeyDictionary()
"""Work of hooks during which a connection is not read."""


async def wait_without_reading(server: Connection, work: asyncio.Future[None]) -> None:
    """Await work in a hook of a reply, without reading more of the reply meanwhile.

    mitmproxy would buffer received data until the hook ends, and then process all of it in one turn.
    """
    awaited = _AWAITED.setdefault(server, set())
    awaited.add(work)
    try:
        await work
    finally:
        awaited.discard(work)


class SmallReads:
    """Reads from a server in small pieces, and yields to all other streams between them."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        server: Connection,
        begin: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`begin` is called when a turn begins. An error of the connection is recorded in `server`."""
        self._reader = reader
        self._server = server
        self._begin = begin
        self._clock = clock
        self._rest = b""
        self._size = FIRST_READ_BYTES
        self._began = math.inf  # start of the last turn

    async def read(self, most: int) -> bytes:
        # Step 1: Adapt the size of reads to the duration of the last turn.
        took = self._clock() - self._began
        if took > LONG_TURN_SECONDS:
            self._size = max(self._size // 2, MIN_READ_BYTES)
        elif self._rest and took < LONG_TURN_SECONDS / 4:
            self._size = min(self._size * 2, MAX_READ_BYTES)
        # Step 2: Read everything available, because after a reset nothing more can be read; or yield to other streams.
        if not self._rest:
            try:
                self._rest = await self._reader.read(most)
            except OSError as error:  # mitmproxy treats it like a clean end
                self._server.error = error.strerror or type(error).__name__
                raise
        elif self._reader.exception() is None:
            await asyncio.sleep(0)
        # Step 3: Deliver a piece, but after a reset all of it.
        while awaited := _AWAITED.get(self._server):
            await asyncio.wait(awaited)
        size = self._size if self._reader.exception() is None else most
        data, self._rest = self._rest[:size], self._rest[size:]
        if self._begin:
            self._begin()
        self._began = self._clock()
        return data


class JoinedWrites:
    """Writes to a client: the first piece of a turn at once, since it is mostly the only one, the rest at its end."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._is_first = True
        self._waiting: list[bytes] = []

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
        if not self._waiting:
            # Flush without waiting for `drain`: it waits for the server's, which may wait for the client to read.
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(data)

    def _flush(self) -> None:
        if self._waiting:
            data, self._waiting = b"".join(self._waiting), []
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
            writes: Any = client.writer if client else None
            if client and isinstance(writes, asyncio.StreamWriter):
                client.writer = writes = JoinedWrites(writes)  # type: ignore[assignment]
            if server and isinstance(server.reader, asyncio.StreamReader):
                begin = writes.begin if isinstance(writes, JoinedWrites) else None
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
    until = loop.time() + CLOSE_SECONDS
    while proxy.connections and loop.time() < until:
        for connection in proxy.connections.values():
            client = connection.transports.get(connection.client)
            if client and client.handler and not client.handler.cancelling():
                client.handler.cancel("the proxy ends")
        await asyncio.sleep(0.01)
