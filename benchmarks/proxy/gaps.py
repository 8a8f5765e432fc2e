"""Measure the longest gap in a client's stream during a hostile exchange, through a real mitmdump.

The model server and both clients run in this process, which has little to do: it sends a frame every 5 ms to the steady
client, and prepared bytes to the hostile one.
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

from benchmarks.proxy.processes import ADDON, choose_cpus, make_mitmdump_command, run_process

FRAME_INTERVAL_SECONDS = 0.005
"""Seconds between two frames of the steady stream."""
EXCHANGE_TIMEOUT_SECONDS = 120
"""Time limit of a measurement."""
QUIET_FRAMES = 20
"""Frames of the steady stream before the hostile exchange begins, and after it has ended."""
STEADY_FRAME = b'data: {"id":"s","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
SSE: Mapping[str, str] = {"content-type": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Hostile:
    """An exchange that is designed to delay others: the request, and the writes of its reply."""

    request: bytes
    reply: Sequence[bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)
    status: str = "200 OK"


class GapLab:
    """A mitmdump between a model server and two clients, a steady and a hostile one."""

    def __init__(self) -> None:
        self.port = 0
        """Port of mitmdump."""
        self.pid = 0
        """Process ID of mitmdump."""
        self._current: Hostile | None = None  # the exchange of the hostile client

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request as the model server."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        steady = head.split(b" ")[1].startswith(b"/steady")
        try:
            if steady:
                writer.write(_format_head(SSE))
                while not writer.is_closing():
                    writer.write(b"%x\r\n%s\r\n" % (len(STEADY_FRAME), STEADY_FRAME))
                    await asyncio.sleep(FRAME_INTERVAL_SECONDS)
            else:
                assert self._current is not None
                writer.write(_format_head(self._current.headers, self._current.status))
                for piece in self._current.reply:
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def measure_gap(self, hostile: Hostile) -> float:
        """Measure the longest gap in the steady stream in seconds, without the time that mitmdump waited for a CPU."""
        self._current = hostile
        reader, writer = await self._send_request("/steady", STEADY_REQUEST)
        longest = 0.0
        arrived = ended = 0
        exchange = asyncio.create_task(asyncio.sleep(0))
        before = time.perf_counter() - self._read_cpu_wait()
        async with asyncio.timeout(EXCHANGE_TIMEOUT_SECONDS):
            while ended < QUIET_FRAMES:
                assert await reader.read(1 << 16), "the steady stream ended early"
                now = time.perf_counter() - self._read_cpu_wait()
                arrived += 1
                if arrived == QUIET_FRAMES:
                    exchange = asyncio.create_task(self._run_exchange("/hostile", hostile.request))
                if arrived > QUIET_FRAMES:
                    longest = max(longest, now - before)
                    ended += exchange.done()
                before = now
        writer.close()
        exchange.result()
        return longest

    def _read_cpu_wait(self) -> float:
        """Return the seconds that mitmdump was runnable but waited for a CPU; 0 if the system does not count them."""
        if sys.platform != "linux":
            return 0.0
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9

    async def _run_exchange(self, path: str, body: bytes) -> None:
        reader, writer = await self._send_request(path, body)
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _send_request(self, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        return reader, writer


STEADY_REQUEST = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()


def _format_head(headers: Mapping[str, str], status: str = "200 OK") -> bytes:
    lines = [f"{name}: {value}" for name, value in {**headers, "transfer-encoding": "chunked"}.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


@contextmanager
def start_gap_lab(policy: Mapping[str, Any]) -> Iterator[Callable[[Hostile], float]]:
    """Start a mitmdump with VTC and a policy for models named `…Guarded…`; yield a function that measures a gap."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        lab = GapLab()
        server = runner.run(asyncio.start_server(lab.serve, "127.0.0.1", 0))
        made = {"kind": "policy", "name": "mine", "match": {"model": ["*Guarded*"]}, "guards": dict(policy)}
        (Path(folder) / "mine.yaml").write_text(json.dumps(made))
        upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        command = [*make_mitmdump_command(ADDON, upstream, Path(folder)), "--set", f"vtc_profiles={folder}/mine.yaml"]
        with run_process(command, choose_cpus()[0]) as proxy:
            lab.port, lab.pid = proxy.read()["port"], proxy.process.pid
            yield lambda hostile: runner.run(lab.measure_gap(hostile))
