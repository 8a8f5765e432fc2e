"""Turns of streams: each is one small read from a model server, and at most two writes of what it led to.

mitmproxy takes all that has come before anything else happens: of text that is made to be slow that is more than a
second's work. And it writes every chunk on its own, though one read may hold dozens: such a write takes longer than all
that else is done with a chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Connection
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

MOST_READ = 1 << 13
"""Bytes that are read at once."""


class SmallReads:
    """What a server sends, in small pieces; before the next one, all other streams have their turn."""

    def __init__(
        self, reader: asyncio.StreamReader, server: Connection, begin: Callable[[], object] | None = None
    ) -> None:
        """`begin` is called as a turn begins. A connection that breaks is told to `server`."""
        self._reader = reader
        self._server = server
        self._begin = begin
        self._rest = b""

    async def read(self, most: int) -> bytes:
        # All is read at once: of a connection that is reset nothing more can be, and what waits here leaves whole.
        if not self._rest:
            try:
                self._rest = await self._reader.read(most)
            except OSError as error:  # mitmproxy takes it for an end like any other
                self._server.error = error.strerror or type(error).__name__
                raise
        elif self._reader.exception() is None:
            await asyncio.sleep(0)
        size = MOST_READ if self._reader.exception() is None else most
        data, self._rest = self._rest[:size], self._rest[size:]
        if self._begin:
            self._begin()
        return data


class JoinedWrites:
    """What a client is sent: the first of a turn at once, as mostly it is all, and the rest together at its end."""

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
