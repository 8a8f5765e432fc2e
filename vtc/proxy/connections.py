"""Changes to mitmproxy's connections: servers that break off are told in time, the host that a client names is noted,
streams take turns, and those of clients are closed before the end.

mitmproxy has no hook for the first three, so methods and streams of its own are replaced. Only `follow_up.py` does so,
too: to hear of the end of a client, and to have a reply go on after its server's end.
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

# Servers that break off in the middle of a reply, or are not reached, told before mitmproxy ends it in its own way.
#
# mitmproxy calls a stream callable for each chunk and at a clean end, but not where a connection is reset, a body lacks
# its end or HTTP/2 gives up a stream. Nothing can be sent any more by the time of its `error` hook. The one method of
# its that deals with all of these asks first for what is held, and sends it as it sends any chunk. Where nothing of a
# reply left, mitmproxy answers with a page of HTML, which clients of an API show as it is: an error of theirs takes its
# place.


class Holder(Protocol):
    """Holds back parts of replies."""

    def server_broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Take mitmproxy's words for what happened to a flow, streamed or not; return what still leaves."""
        ...

    def server_gave_none(self, flow: http.HTTPFlow, why: str) -> http.Response | None:
        """Take mitmproxy's words for why there is no whole reply; return what to answer, None for its own page."""
        ...


NO_ANSWER_CODES = (ErrorCode.CONNECT_FAILED, ErrorCode.GENERIC_SERVER_ERROR, ErrorCode.RESPONSE_VALIDATION_FAILED)
HOLDERS: WeakSet[Holder] = WeakSet()
"""The holders that are asked."""

_handle = getattr(HttpStream.handle_protocol_error, "__wrapped__", HttpStream.handle_protocol_error)
"""mitmproxy's own; a script that is loaded again does not wrap what it wrapped before."""


@wraps(_handle)
def _ask_holders_first(
    stream: HttpStream, event: RequestProtocolError | ResponseProtocolError
) -> CommandGenerator[None]:
    if isinstance(event, ResponseProtocolError):
        for holder in [*HOLDERS]:
            for piece in holder.server_broke_off(stream.flow, event.message):
                yield SendHttp(ResponseData(stream.stream_id, piece), stream.context.client)
        response = stream.flow.response
        unanswered = event.code in NO_ANSWER_CODES and (response is None or not response.stream)  # nothing has left
        answers = (holder.server_gave_none(stream.flow, event.message) for holder in [*HOLDERS])
        if unanswered and stream.client_state == stream.state_done and (answer := next(filter(None, answers), None)):
            stream.flow.response = answer
            yield from stream.send_response()
            return
    yield from _handle(stream, event)


HttpStream.handle_protocol_error = _ask_holders_first  # type: ignore[method-assign, assignment]


# The host that a client names, by which pages of the web are known. A reverse proxy writes that of its server over it
# before any hook.


_HOSTS: WeakKeyDictionary[http.Request, str] = WeakKeyDictionary()
_begin = getattr(HttpStream.state_wait_for_request_headers, "__wrapped__", HttpStream.state_wait_for_request_headers)


@wraps(_begin)
def _record_host(stream: HttpStream, event: RequestHeaders) -> CommandGenerator[None]:
    _HOSTS[event.request] = event.request.host_header or ""
    yield from _begin(stream, event)


HttpStream.state_wait_for_request_headers = _record_host  # type: ignore[method-assign]


def get_named_host(request: http.Request) -> str:
    """Return the host, with its port, that a client named in a request; empty if it named none."""
    return _HOSTS.get(request, "")


# Turns of streams: each is one small read from a model server, and at most two writes of what it led to.
#
# mitmproxy takes all that has come before anything else happens: of text that is made to be slow that is more than a
# second's work. And it writes every chunk on its own, though one read may hold dozens: such a write takes longer than
# all that else is done with a chunk.


FIRST_READ_BYTES, MIN_READ_BYTES, MAX_READ_BYTES = 1 << 10, 1 << 8, 1 << 12
"""Bytes that are read at once: at first, and by how long the last turn took."""
LONG_TURN_SECONDS = 0.02
"""Work on what was read at once after which half as many bytes are read the next time."""
_AWAITED: WeakKeyDictionary[Connection, set[asyncio.Future[Any]]] = WeakKeyDictionary()


async def wait_without_reading(server: Connection, work: asyncio.Future[None]) -> None:
    """Wait for work in a hook on a reply, of which nothing more is read meanwhile.

    mitmproxy would keep what comes until the hook ends, and then take all of it in one turn.
    """
    awaited = _AWAITED.setdefault(server, set())
    awaited.add(work)
    try:
        await work
    finally:
        awaited.discard(work)


class SmallReads:
    """Read from a server in small pieces; before the next one, all other streams have their turn."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        server: Connection,
        begin: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`begin` is called as a turn begins. A connection that breaks is told to `server`."""
        self._reader = reader
        self._server = server
        self._begin = begin
        self._clock = clock
        self._rest = b""
        self._size = FIRST_READ_BYTES
        self._began = math.inf  # the last turn

    async def read(self, most: int) -> bytes:
        # All is read at once: of a connection that is reset nothing more can be, and what waits here leaves whole.
        took = self._clock() - self._began
        if took > LONG_TURN_SECONDS:
            self._size = max(self._size // 2, MIN_READ_BYTES)
        elif self._rest and took < LONG_TURN_SECONDS / 4:
            self._size = min(self._size * 2, MAX_READ_BYTES)
        if not self._rest:
            try:
                self._rest = await self._reader.read(most)
            except OSError as error:  # mitmproxy takes it for an end like any other
                self._server.error = error.strerror or type(error).__name__
                raise
        elif self._reader.exception() is None:
            await asyncio.sleep(0)
        while awaited := _AWAITED.get(self._server):
            await asyncio.wait(awaited)
        size = self._size if self._reader.exception() is None else most
        data, self._rest = self._rest[:size], self._rest[size:]
        if self._begin:
            self._begin()
        self._began = self._clock()
        return data


class JoinedWrites:
    """Write to a client: the first piece of a turn at once, as mostly it is all, and the rest together at its end."""

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
            # Not only at `drain`: that of a client waits for that of its server, which may wait for the client to read.
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
    """Has streams take turns."""

    name = "vtc-turns"

    def server_connected(self, data: ServerConnectionHookData) -> None:
        proxy = ctx.master.addons.get("proxyserver")
        if not isinstance(proxy, Proxyserver):
            return
        for handler in proxy.connections.values():
            if handler.client is not data.client:
                continue
            server, client = (handler.transports.get(end) for end in (data.server, data.client))
            # Neither has such streams where datagrams are sent, or where mitmproxy's own Rust code does it.
            writes: Any = client.writer if client else None
            if client and isinstance(writes, asyncio.StreamWriter):
                client.writer = writes = JoinedWrites(writes)  # type: ignore[assignment]
            if server and isinstance(server.reader, asyncio.StreamReader):
                begin = writes.begin if isinstance(writes, JoinedWrites) else None
                server.reader = SmallReads(server.reader, data.server, begin)  # type: ignore[assignment]


# The end: connections of clients that are still open are closed as mitmproxy closes those that are idle for too long.
#
# mitmproxy leaves them to asyncio, which cancels their tasks once all addons have ended. Flows under way are then told
# to no one, and Python 3.12.0 and 3.12.1 print a trace for each client: `StreamReaderProtocol` asks a cancelled task
# for its exception.


CLOSE_SECONDS = 1.0
"""Seconds in which connections must have closed; what hooks hold longer is left to asyncio."""


async def close_clients() -> None:
    """Close all connections of clients, and wait until their flows have ended."""
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
