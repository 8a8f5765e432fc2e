"""A client stops reading in the middle of its stream: its server is slowed down, and all others continue."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy.addons.proxyserver import Proxyserver

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE, Lab, Start
from tests.e2e.policies import BASH, write_guards
from tests.e2e.upstream import SSE, Reply, Seen

pytestmark = pytest.mark.rest

ASK = chat.request(stream=True, tools=[BASH, chat.READ])
TEXT = chat.make_text_chunks("This is a line of an answer that is long. " * 20 + "\n")[0]
CALL = chat.make_text_chunks("Go.\n", chat.DIALECTS["hermes"]("read", {"filePath": "/a" * 500}), "\n")
FRAMES = {"text": [TEXT], "calls": CALL, "text under a policy": [TEXT]}
MOST = 24 << 20
"""Bytes that the server can write: the kernel's buffers of four sockets, and one read of mitmproxy and VTC."""


class Offered:
    """A reply that continues until `enough` is set, and the number of bytes that were written."""

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = b"".join(frames) * 8
        self.size = 0
        self.enough = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        yield chat.ROLE
        while not self.enough.is_set():
            yield self._frames
            self.size += len(self._frames)
            assert self.size < MOST
        yield chat.STOP
        yield chat.DONE


async def not_reading(lab: Lab, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Request a stream and read none of it; the client's socket buffers 4 KB."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", int(lab.proxy.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    content = chat.encode_json(body)
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + content)
    return reader, writer


async def stuck(lab: Lab, offered: Offered) -> None:
    """Wait until the server can write no more; other clients complete exchanges meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await lab.upstream.blocked.wait()
            before = offered.size
            for _ in range(5):
                assert (await lab.post(ASK)).message.calls == [("read", {"filePath": "/b"})]
            if lab.upstream.blocked.is_set() and offered.size == before:
                return


def waiting(lab: Lab) -> int:
    """Return the number of bytes that mitmproxy buffers for clients."""
    server = lab.proxy.master.addons.get("proxyserver")
    assert isinstance(server, Proxyserver)
    writers = [
        io.writer
        for handler in server.connections.values()
        for connection, io in handler.transports.items()
        if connection is handler.client
    ]
    return sum(
        writer.transport.get_write_buffer_size() for writer in writers if isinstance(writer, asyncio.StreamWriter)
    )


async def slow_and_others(start: Start, reply: Any, **settings: Any) -> Lab:
    """Start a lab that sends `reply` to the first client, and a short reply with a call to all others."""
    replies = [reply]
    short = chat.make_stream("Go.", chat.DIALECTS["hermes"]("read", {"filePath": "/b"}))

    def script(_: Seen) -> Reply:
        return replies.pop() if replies else Reply(short)

    return await start(script, **settings)


@pytest.mark.parametrize("what", ["text", "text under a policy", pytest.param("calls", marks=pytest.mark.rest)])
async def test_client_that_does_not_read_holds_up_its_own_upstream(what: str, start: Start, tmp_path: Path) -> None:
    """The client gets the whole rest in the end."""
    settings = {"vtc_profiles": write_guards(tmp_path, denied_tools=["bash"])} if "policy" in what else {}
    offered = Offered(FRAMES[what])
    lab = await slow_and_others(start, Reply(offered.pieces()), **settings)
    reader, writer = await not_reading(lab, ASK)
    await stuck(lab, offered)
    assert waiting(lab) < 1 << 20
    offered.enough.set()
    async with asyncio.timeout(PATIENCE):
        body = await reader.read()
    writer.close()
    size = sum(map(len, FRAMES[what]))
    reply = chat.read(decode_chunks(body))
    repeats = offered.size // size
    assert len(reply.calls) == (repeats if what == "calls" else 0)
    assert reply.content.count("Go." if what == "calls" else "This is a line") == repeats * (
        1 if what == "calls" else 20
    )


def decode_chunks(reply: bytes) -> bytes:
    """Return the body of a chunked reply."""
    rest, body = reply.partition(b"\r\n\r\n")[2], []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(body)


async def test_small_bytes_that_decode_to_many_are_held_back(start: Start) -> None:
    """A compressed reply is decoded only as far as the client reads, in steps of one read, which is limited."""
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(TEXT * 4_000) + packer.flush(zlib.Z_SYNC_FLUSH)
    again = packer.compress(TEXT * 4_000) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert len(again) * 50 < len(TEXT) * 4_000

    async def pieces() -> AsyncIterator[bytes]:
        yield packed
        while True:
            yield again

    lab = await slow_and_others(start, Reply(pieces(), {**SSE, "content-encoding": "gzip"}))
    _, writer = await not_reading(lab, ASK)
    offered = Offered([])
    await stuck(lab, offered)
    assert waiting(lab) < 36 << 20
    writer.close()


async def test_client_that_does_not_read_may_disconnect(start: Start) -> None:
    """No state of it is kept."""
    offered = Offered([TEXT])
    lab = await slow_and_others(start, Reply(offered.pieces()))
    _, writer = await not_reading(lab, ASK)
    await stuck(lab, offered)
    writer.transport.abort()
    async with asyncio.timeout(PATIENCE):
        await lab.upstream.gone.wait()
        while lab.proxy.addon._live:
            await lab.flow()
