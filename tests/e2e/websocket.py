"""A WebSocket server that answers messages by a script, and a client of one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Request, TextMessage

type Script = Callable[[str | bytes], list[str | bytes]]
"""A function that returns the answers to one message."""


class Peer:
    """One end of a WebSocket."""

    def __init__(self, kind: ConnectionType, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection = WSConnection(kind)
        self._reader, self._writer = reader, writer

    async def send(self, event: Event) -> None:
        self._writer.write(self._connection.send(event))
        await self._writer.drain()

    async def say(self, message: str | bytes) -> None:
        await self.send(TextMessage(message) if isinstance(message, str) else BytesMessage(message))

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the other end, with complete messages, until the connection ends."""
        received: list[str | bytes] = []
        while data := await self._reader.read(65535):
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, TextMessage | BytesMessage):
                    received.append(event.data)
                    if event.message_finished:
                        whole = "" if isinstance(event, TextMessage) else b""
                        yield type(event)(whole.join(received))  # type: ignore[arg-type]
                        received.clear()
                else:
                    yield event
                if isinstance(event, CloseConnection):
                    return


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[str]:
    """Serve on a free port; yield the URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer = Peer(ConnectionType.SERVER, reader, writer)
        try:
            async for event in peer.events():
                if isinstance(event, Request):
                    await peer.send(AcceptConnection())
                elif isinstance(event, TextMessage | BytesMessage):
                    for answer in script(event.data):
                        await peer.say(answer)
                elif isinstance(event, CloseConnection):
                    await peer.send(event.response())
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def connect(url: str, path: str) -> AsyncIterator[tuple[Peer, AsyncIterator[Event]]]:
    """Connect a client; yield it with the events that it gets, and close the connection in order."""
    host = url.partition("//")[2]
    reader, writer = await asyncio.open_connection(*host.split(":"))
    peer = Peer(ConnectionType.CLIENT, reader, writer)
    try:
        await peer.send(Request(host=host, target=path))
        events = peer.events()
        assert isinstance(await anext(events), AcceptConnection)
        yield peer, events
        await peer.send(CloseConnection(1000))
        async for _ in events:
            pass
    finally:
        writer.close()
