"""A model server that streams prepared replies: `python -m benchmarks.proxy.upstream [CERTIFICATE]`.

    POST /v1/chat/completions?reply=plain&chunks=2000&wait=0.1&gap=0.005

`reply` is a shape of `samples`, and `chunks` the number of its frames; or `reply` is a dialect, and `chunks` the number
of characters of a call. Each frame is one HTTP chunk and one `write()`, as in real servers, unless the shape is cut
otherwise. The server waits `wait` seconds before the first frame, as a model that processes its prompt, and `gap`
seconds between frames; without a gap it writes as fast as the proxy reads. It prints its port on standard output, and
ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from functools import cache
from urllib.parse import parse_qs, urlsplit

from benchmarks import samples
from vtc.profiles import builtin_directory, load_profiles

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n"
BURST_CHUNKS = 64
"""Number of chunks that are written before other streams continue."""


@cache
def make_reply(name: str, count: int) -> list[bytes]:
    """Make the head and the chunks of a reply; `count` is its number of frames or characters."""
    if shape := samples.SHAPES.get(name):
        media_type, chunks = shape.media_type, shape.make_chunks(count)
    else:
        dialects = load_profiles([builtin_directory()]).dialects
        deltas = samples.split_pieces(samples.write_call(count, dialects[name]))
        media_type, chunks = "text/event-stream", samples.make_reply(deltas)
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
        options = {key: values[0] for key, values in query.items()}
        pieces = make_reply(options["reply"], int(options["chunks"]))
        task = asyncio.create_task(self._serve(pieces, float(options["wait"]), float(options["gap"])))
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
            elif number % BURST_CHUNKS == 0:
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
