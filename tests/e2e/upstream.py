"""A scripted model server over HTTP/1.1, with or without TLS; a test determines each write and where it breaks off."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A received request, with header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: each piece is one write, and with `chunked` one HTTP chunk."""

    pieces: Iterable[bytes] | AsyncIterable[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)
    status: int = 200
    framing: Literal["chunked", "length", "close"] = "chunked"
    version: str = "HTTP/1.1"
    cut: bool | Literal["reset"] = False
    """Break the connection off before the body ends: close it, or reset it."""


type Script = Callable[[Seen], Reply]


@dataclass(slots=True)
class Upstream:
    url: str
    seen: list[Seen] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client disconnects in the middle of a reply."""
    blocked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while writes to a client block, because the client and everything in between do not read."""
    errors: list[Exception] = field(default_factory=list)
    """Exceptions that the test's script raised."""


@asynccontextmanager
async def serving(
    script: Script, tls: ssl.SSLContext | None = None, at: socket.socket | None = None
) -> AsyncIterator[Upstream]:
    """Serve the replies of `script` on a free port or a bound socket; raise at the end if the script raised."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # asyncio notifies only the protocol.
        protocol = writer.transport.get_protocol()
        protocol.pause_writing = _then(protocol.pause_writing, upstream.blocked.set)  # type: ignore[method-assign]
        protocol.resume_writing = _then(protocol.resume_writing, upstream.blocked.clear)  # type: ignore[method-assign]
        try:
            while (seen := await _request(reader)) is not None:
                upstream.seen.append(seen)
                if not await _answer(script(seen), writer):
                    break
        except (ConnectionError, ssl.SSLError):
            upstream.gone.set()
        except Exception as error:
            upstream.errors.append(error)
        finally:
            tasks.discard(task)
            writer.close()

    where: dict[str, Any] = {"sock": at} if at else {"host": "127.0.0.1", "port": 0}
    server = await asyncio.start_server(handle_connection, ssl=tls, **where)
    port = server.sockets[0].getsockname()[1]
    upstream = Upstream(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
    try:
        yield upstream
    finally:
        await close_server(server, tasks)
        if upstream.errors:
            raise ExceptionGroup("the script of the model server failed", upstream.errors)


async def close_server(server: asyncio.Server, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Close a server, and cancel the tasks of its connections."""
    # Python 3.12.1 leaks a connection whose server closes while it is accepted (gh-109564): accept no more, and wait
    # until the last one has a transport, a protocol and a task.
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(3):
        await asyncio.sleep(0)
    server.close()
    open_tasks = list(tasks)
    for task in open_tasks:
        task.cancel()
    await asyncio.gather(*open_tasks, return_exceptions=True)
    await server.wait_closed()


def _then(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    with suppress(asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = [line.split(":", 1) for line in head[1:] if line]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Seen(method, path, headers, body)
    return None


async def _answer(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """Send a reply; return True if the connection stays open."""
    pieces = reply.pieces
    headers = dict(reply.headers)
    if reply.framing == "length":
        assert not isinstance(pieces, AsyncIterable)
        pieces = list(pieces)
        # A length that is one byte too large makes the body incomplete.
        headers["content-length"] = str(sum(map(len, pieces)) + bool(reply.cut))
    elif reply.framing == "chunked":
        headers["transfer-encoding"] = "chunked"
    head = [f"{reply.version} {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
    async for piece in _each(pieces):
        assert piece, "an empty chunk would be the end"
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if reply.framing == "chunked" else piece)
        await writer.drain()
        if writer.transport.is_closing():
            raise ConnectionResetError
    if reply.cut == "reset":
        # Closing without lingering resets the connection.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if reply.cut or reply.framing == "close":
        return False
    if reply.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _each(pieces: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece
