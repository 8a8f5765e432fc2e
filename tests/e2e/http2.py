"""The scripted model server over HTTP/2 with TLS: each piece of a reply is one DATA frame."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from tests.e2e.upstream import Reply, Script, Seen, Upstream, close_server


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext) -> AsyncIterator[Upstream]:
    """Serve the replies of `script` on a free port; an empty piece becomes an empty frame."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        requests: dict[int, tuple[dict[str, str], bytearray]] = {}
        try:
            writer.write(connection.data_to_send())
            while data := await reader.read(65535):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived):
                        requests[event.stream_id] = (
                            {str(name): str(value) for name, value in event.headers},
                            bytearray(),
                        )
                    elif isinstance(event, DataReceived):
                        requests[event.stream_id][1].extend(event.data)
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, StreamEnded):
                        headers, body = requests.pop(event.stream_id)
                        seen = Seen(headers[":method"], headers[":path"], headers, bytes(body))
                        upstream.seen.append(seen)
                        await _answer(script(seen), event.stream_id, connection, writer)
                writer.write(connection.data_to_send())
        except Exception as error:
            upstream.errors.append(error)
        finally:
            tasks.discard(task)
            writer.close()

    tls.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0, ssl=tls)
    upstream = Upstream(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield upstream
    finally:
        await close_server(server, tasks)
        if upstream.errors:
            raise ExceptionGroup("the HTTP/2 server failed", upstream.errors)


async def _answer(reply: Reply, stream: int, connection: H2Connection, writer: asyncio.StreamWriter) -> None:
    assert isinstance(reply.pieces, list)
    length = [("content-length", str(sum(map(len, reply.pieces))))] if reply.framing == "length" else []
    connection.send_headers(stream, [(":status", str(reply.status)), *reply.headers.items(), *length])
    for piece in reply.pieces:
        connection.send_data(stream, piece)
        writer.write(connection.data_to_send())
        await writer.drain()
    if reply.cut:
        connection.reset_stream(stream)
    else:
        connection.end_stream(stream)
    writer.write(connection.data_to_send())
    await writer.drain()
