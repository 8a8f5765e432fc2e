"""The data that a stream processes in one turn of the event loop: small reads, and one write for all results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from mitmproxy.connection import Server

from vtc.proxy.serving.connections import (
    FIRST_READ_BYTES,
    LONG_TURN_SECONDS,
    MAX_READ_BYTES,
    MIN_READ_BYTES,
    JoinedWrites,
    SmallReads,
    wait_without_reading,
)


class Recorded(asyncio.Transport):
    """A transport that records the operations on it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def write_eof(self) -> None:
        self.done.append("eof")

    def close(self) -> None:
        self.done.append("close")

    def is_closing(self) -> bool:
        return "close" in self.done


@asynccontextmanager
async def writer() -> AsyncIterator[tuple[Recorded, JoinedWrites, asyncio.StreamReaderProtocol]]:
    transport, reader = Recorded(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    yield transport, JoinedWrites(writer), protocol
    writer.close()


async def a_turn() -> None:
    await asyncio.sleep(0)


# Writes


def test_first_write_of_a_turn_is_sent_at_once_and_the_rest_together() -> None:
    async def session() -> None:
        async with writer() as (transport, joined, _):
            joined.begin()
            joined.write(b"a")
            assert transport.done == [b"a"]
            joined.write(b"b")
            joined.write(b"c")
            assert transport.done == [b"a"]
            await a_turn()
            assert transport.done == [b"a", b"bc"]
            joined.begin()
            joined.write(b"d")
            assert transport.done == [b"a", b"bc", b"d"]

    asyncio.run(session())


def test_writes_are_sent_without_a_drain() -> None:
    """A server that sends before it has read the whole request blocks `drain`, and waits for the client."""

    async def session() -> None:
        async with writer() as (transport, joined, _):
            joined.write(b"a")
            joined.write(b"b")
            await a_turn()
            assert transport.done == [b"a", b"b"]

    asyncio.run(session())


def test_buffered_writes_are_sent_before_the_next_turn() -> None:
    async def session() -> None:
        async with writer() as (transport, joined, _):
            for data in (b"a", b"b"):
                joined.write(data)
            joined.begin()
            joined.write(b"c")
            assert transport.done == [b"a", b"b", b"c"]

    asyncio.run(session())


@pytest.mark.parametrize(
    ("end", "ended"), [(JoinedWrites.close, ["close"]), (JoinedWrites.write_eof, ["eof"])], ids=["close", "eof"]
)
def test_writes_are_sent_before_the_end(end: Callable[[JoinedWrites], None], ended: list[str]) -> None:
    async def session() -> None:
        async with writer() as (transport, joined, _):
            joined.write(b"a")
            joined.write(b"b")
            end(joined)
            await a_turn()
            assert transport.done == [b"a", b"b", *ended]

    asyncio.run(session())


def test_drain_sends_first_and_then_waits_for_the_client() -> None:
    async def session() -> None:
        async with writer() as (transport, joined, protocol):
            joined.write(b"a")
            joined.write(b"b")
            protocol.pause_writing()
            drained = asyncio.ensure_future(joined.drain())
            await a_turn()
            assert transport.done == [b"a", b"b"]
            assert not drained.done()
            protocol.resume_writing()
            await drained

    asyncio.run(session())


# Reads


async def reader(data: bytes) -> SmallReads:
    source = asyncio.StreamReader(limit=1 << 20)
    source.feed_data(data)
    source.feed_eof()
    return SmallReads(source, Server(address=None))


async def all_of(reads: SmallReads, most: int = 65535) -> list[bytes]:
    pieces = []
    while piece := await reads.read(most):
        pieces.append(piece)
    return pieces


@pytest.mark.parametrize("size", [1, MAX_READ_BYTES - 1, MAX_READ_BYTES, MAX_READ_BYTES + 1, 5 * MAX_READ_BYTES])
def test_all_is_read_in_small_pieces(size: int) -> None:
    async def session() -> list[bytes]:
        return await all_of(await reader(b"a" * size))

    pieces = asyncio.run(session())
    assert sum(map(len, pieces)) == size
    assert max(map(len, pieces)) <= MAX_READ_BYTES


def test_received_bytes_are_read_even_if_the_server_resets_the_connection() -> None:
    async def session() -> None:
        source = asyncio.StreamReader(limit=1 << 20)
        source.feed_data(b"a" * 5 * MAX_READ_BYTES)
        server = Server(address=None)
        reads = SmallReads(source, server)
        begun = len(await reads.read(65535))
        assert begun == FIRST_READ_BYTES
        source.set_exception(ConnectionResetError())
        assert begun + len(await reads.read(65535)) == 5 * MAX_READ_BYTES
        assert not server.error
        with pytest.raises(ConnectionResetError):
            await reads.read(65535)
        assert server.error == "ConnectionResetError"

    asyncio.run(session())


def test_read_cancelled_at_a_reset_has_no_side_effects() -> None:
    """mitmproxy cancels the reading task if it can no longer write to the server."""

    async def session() -> int:
        source = asyncio.StreamReader(limit=1 << 20)
        source.feed_data(b"a" * 5 * MAX_READ_BYTES)
        reads, read = SmallReads(source, Server(address=None)), 0

        async def take() -> None:
            nonlocal read
            read += len(await reads.read(65535))
            source.set_exception(ConnectionResetError())
            task.cancel()
            read += len(await reads.read(65535))

        task = asyncio.ensure_future(take())
        await asyncio.wait([task])
        return read

    assert asyncio.run(session()) == 5 * MAX_READ_BYTES


def test_streams_take_turns_even_if_all_bytes_were_received() -> None:
    read: list[str] = []

    async def take(name: str, reads: SmallReads) -> None:
        while await reads.read(65535):
            read.append(name)

    async def session() -> None:
        takers: list[Awaitable[None]] = [take(name, await reader(b"a" * 4 * FIRST_READ_BYTES)) for name in "ab"]
        await asyncio.gather(*takers)

    asyncio.run(session())
    assert read[:4] == [*"abab"]


def test_less_is_read_at_once_while_turns_take_long_and_more_while_they_do_not() -> None:
    now = 0.0

    async def session() -> dict[float, list[int]]:
        nonlocal now
        source = asyncio.StreamReader(limit=1 << 20)
        source.feed_data(b"a" * 65535)
        reads, sizes = SmallReads(source, Server(address=None), clock=lambda: now), dict[float, list[int]]()
        for seconds in (0.0, 2 * LONG_TURN_SECONDS, LONG_TURN_SECONDS / 2, 0.0):
            for _ in range(6):
                sizes.setdefault(seconds, []).append(len(await reads.read(65535)))
                now += seconds
        return sizes

    sizes = asyncio.run(session())
    assert sizes[0.0][0] == FIRST_READ_BYTES
    assert max(sizes[0.0]) == MAX_READ_BYTES
    assert sizes[2 * LONG_TURN_SECONDS][-1] == MIN_READ_BYTES
    assert {*sizes[LONG_TURN_SECONDS / 2]} == {MIN_READ_BYTES}


def test_nothing_more_of_a_reply_is_read_while_a_hook_on_it_waits() -> None:
    async def session() -> None:
        server, source, work = Server(address=None), asyncio.StreamReader(), asyncio.Future[None]()
        reads = SmallReads(source, server)
        source.feed_data(b"abc")
        hook = asyncio.ensure_future(wait_without_reading(server, work))
        await asyncio.sleep(0)
        read = asyncio.ensure_future(reads.read(65535))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(waiting.done() for waiting in (hook, read))
        work.set_result(None)
        assert await read == b"abc"
        assert hook.done()

    asyncio.run(session())
