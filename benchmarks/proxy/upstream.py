"""A model server that streams prepared replies: `python -m benchmarks.proxy.upstream [CERTIFICATE]`.

    POST /v1/chat/completions?reply=plain&chunks=2000&wait=0.1&gap=0.005

`reply` is a shape of `samples`, with so many frames, or a dialect, with a call of so many characters. One chunk of HTTP
and one `write()` for each frame, as servers do, unless the shape is cut otherwise; `wait` seconds before the first, as
a model reads the prompt first, and `gap` seconds between them, or as fast as the other side reads. Says its port on
standard output, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from functools import cache
from urllib.parse import parse_qs, urlsplit

from benchmarks import samples
from vtc.profiles import builtin_directory, load

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n"
BURST = 64
"""Chunks that are written before other streams have their turn."""


@cache
def reply(name: str, count: int) -> list[bytes]:
    """Make the head and the chunks of a reply."""
    if shape := samples.SHAPES.get(name):
        media_type, chunks = shape.media_type, shape.chunks(count)
    else:
        dialects = load([builtin_directory()]).dialects
        deltas = samples.pieces(samples.call_of(count, dialects[name]))
        media_type, chunks = "text/event-stream", samples.reply(deltas)
    return [HEAD.format(media_type).encode(), *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)]


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, _: Exception | None) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = next(
            int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        )
        if len(body) < length:
            return
        query = parse_qs(urlsplit(head.split(b" ")[1].decode()).query)
        del self._received[:]
        asked = {key: values[0] for key, values in query.items()}
        pieces = reply(asked["reply"], int(asked["chunks"]))
        task = asyncio.create_task(self._serve(pieces, float(asked["wait"]), float(asked["gap"])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, pieces: list[bytes], wait: float, gap: float) -> None:
        if wait:
            await asyncio.sleep(wait)
        head, *chunks = pieces
        self._transport.write(head)
        for number, chunk in enumerate(chunks):
            self._transport.write(chunk)
            if gap:
                await asyncio.sleep(gap)
            elif number % BURST == 0:
                await asyncio.sleep(0)
            await self._writable.wait()
            if self._transport.is_closing():
                return
        self._transport.write(b"0\r\n\r\n")


async def main() -> None:
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, ssl=context)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
