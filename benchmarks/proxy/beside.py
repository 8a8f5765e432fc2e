"""The longest gap that a client sees in its stream while another exchange is made to be slow, through a real mitmdump.

Model server and both clients are in this process, which has next to nothing to do: a frame each 5 ms for the one, and
bytes that were made before for the other.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.proxy.processes import ADDON, cpus, mitmdump, running

INTERVAL = 0.005
"""Seconds between two frames of the steady stream."""
PATIENCE = 120
"""Seconds after which an exchange is given up."""
CALM = 20
"""Frames of the steady stream before anything else happens, and after it has ended."""
WORD = b'data: {"id":"s","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
SSE: Mapping[str, str] = {"content-type": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Hostile:
    """An exchange that is made to hold up others: what is asked, and the writes that the reply comes in."""

    asked: bytes
    reply: Sequence[bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)
    status: str = "200 OK"


class Beside:
    """A mitmdump with two clients."""

    def __init__(self) -> None:
        self.port = 0
        """Of mitmdump."""
        self.pid = 0
        """Of mitmdump."""
        self._now: Hostile | None = None  # what the model server answers whoever is not the steady client

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Be the model server."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        steady = head.split(b" ")[1].startswith(b"/steady")
        try:
            if steady:
                writer.write(_head(SSE))
                while not writer.is_closing():
                    writer.write(b"%x\r\n%s\r\n" % (len(WORD), WORD))
                    await asyncio.sleep(INTERVAL)
            else:
                assert self._now is not None
                writer.write(_head(self._now.headers, self._now.status))
                for piece in self._now.reply:
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def gap(self, hostile: Hostile) -> float:
        """Measure the longest gap in the steady stream, in seconds, less what the machine's other work took of it."""
        self._now = hostile
        reader, writer = await self._ask("/steady", STEADY)
        longest = 0.0
        arrived = ended = 0
        other = asyncio.create_task(asyncio.sleep(0))
        before = time.perf_counter() - self._waited()
        async with asyncio.timeout(PATIENCE):
            while ended < CALM:
                assert await reader.read(1 << 16), "the steady stream broke off"
                now = time.perf_counter() - self._waited()
                arrived += 1
                if arrived == CALM:
                    other = asyncio.create_task(self._whole("/hostile", hostile.asked))
                if arrived > CALM:
                    longest = max(longest, now - before)
                    ended += other.done()
                before = now
        writer.close()
        other.result()
        return longest

    def _waited(self) -> float:
        """Seconds in which mitmdump had something to do and no CPU to do it on; 0 where nobody counts them."""
        if sys.platform != "linux":
            return 0.0
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9

    async def _whole(self, path: str, body: bytes) -> None:
        reader, writer = await self._ask(path, body)
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _ask(self, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        return reader, writer


STEADY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()


def _head(headers: Mapping[str, str], status: str = "200 OK") -> bytes:
    lines = [f"{name}: {value}" for name, value in {**headers, "transfer-encoding": "chunked"}.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


@contextmanager
def beside(policy: Mapping[str, Any]) -> Iterator[Callable[[Hostile], float]]:
    """Start a mitmdump with VTC, and a policy for models named `…Guarded…`; gives what measures a gap in seconds."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        lab = Beside()
        server = runner.run(asyncio.start_server(lab.serve, "127.0.0.1", 0))
        made = {"kind": "policy", "name": "mine", "match": {"model": ["*Guarded*"]}, "guards": dict(policy)}
        (Path(folder) / "mine.yaml").write_text(json.dumps(made))
        upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        command = [*mitmdump(ADDON, upstream, Path(folder)), "--set", f"vtc_profiles={folder}/mine.yaml"]
        with running(command, cpus()[0]) as proxy:
            lab.port, lab.pid = proxy.read()["port"], proxy.process.pid
            yield lambda hostile: runner.run(lab.gap(hostile))
