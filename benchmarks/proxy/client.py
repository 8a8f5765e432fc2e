"""A client that requests streamed replies: `python -m benchmarks.proxy.client`, with one JSON command per line.

    {"port": 41237, "tls": false, "path": "/v1/chat/completions?reply=plain&chunks=100", "body": {…},
     "streams": 64, "exchanges": 1}

It opens `streams` connections at once and runs `exchanges` one after the other on each. The answer to each command is:

    {"wall_s": 0.31, "first_s": [[0.004, …], …], "texts": ["5f2b…"], "called": false}

`first_s` are the seconds from sending each request (for the first: from connecting) to the first text or call of its
reply, connection by connection. `texts` are digests of the distinct texts received. `called` is true if a reply
contains native tool calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
import sys
import time
from dataclasses import dataclass, field
from typing import Any

LAST_CHUNK = b"0\r\n\r\n"
CONTENT_PATTERN = re.compile(rb'"(?:reasoning_)?content":\s*"[^"]|"tool_calls"')


@dataclass(slots=True)
class Exchange:
    started: float
    first: float = 0.0
    body: bytes = b""


@dataclass(slots=True)
class Connection(asyncio.Protocol):
    request: bytes
    exchanges: list[Exchange]
    remaining: int
    done: asyncio.Future[None]
    transport: asyncio.Transport | None = None
    received: list[bytes] = field(default_factory=list)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchanges[-1]
        self.received.append(data)
        if not exchange.first and CONTENT_PATTERN.search(b"".join(self.received)):
            exchange.first = time.perf_counter()
        if not (
            data.endswith(LAST_CHUNK) or (len(data) < len(LAST_CHUNK) and b"".join(self.received).endswith(LAST_CHUNK))
        ):
            return
        exchange.body = b"".join(self.received)
        self.received.clear()
        self.remaining -= 1
        assert self.transport is not None
        if self.remaining:
            self.exchanges.append(Exchange(time.perf_counter()))
            self.transport.write(self.request)
        else:
            self.done.set_result(None)
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the connection was lost: {error}"))


def decode_chunked(data: bytes) -> bytes:
    """Decode the body of a response with chunked transfer encoding."""
    at = data.index(b"\r\n\r\n") + 4
    parts = []
    while size := int(data[at : (line := data.index(b"\r\n", at))], 16):
        parts.append(data[line + 2 : line + 2 + size])
        at = line + 2 + size + 2
    return b"".join(parts)


def read_text(body: bytes) -> str:
    """Return the text and reasoning of a streamed reply of server-sent events or lines of JSON."""
    lines = (line.removeprefix(b"data: ") for line in body.splitlines())
    return "".join(_read_frame_text(json.loads(line)) for line in lines if line.startswith(b"{"))


def _read_frame_text(frame: dict[str, Any]) -> str:
    match frame:
        case {"choices": choices}:
            deltas = [choice["delta"] for choice in choices]
            return "".join(delta.get("content") or delta.get("reasoning_content") or "" for delta in deltas)
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
        case {"message": {"content": str(text)}}:
            return text
    return ""


async def run_command(command: dict[str, Any]) -> dict[str, Any]:
    context = None
    if command["tls"]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    body = json.dumps(command["body"], separators=(",", ":")).encode()
    head = (
        f"POST {command['path']} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    started = time.perf_counter()

    async def run_connection() -> list[Exchange]:
        exchanges = [Exchange(time.perf_counter())]
        _, connection = await loop.create_connection(
            lambda: Connection(head.encode() + body, exchanges, command["exchanges"], loop.create_future()),
            "127.0.0.1",
            command["port"],
            ssl=context,
        )
        await connection.done
        return exchanges

    async with asyncio.timeout(120):
        connections = await asyncio.gather(*(run_connection() for _ in range(command["streams"])))
    wall = time.perf_counter() - started
    bodies = {decode_chunked(exchange.body) for exchanges in connections for exchange in exchanges}
    return {
        "wall_s": wall,
        "first_s": [[exchange.first - exchange.started for exchange in exchanges] for exchanges in connections],
        "texts": sorted({hashlib.sha256(read_text(body).encode()).hexdigest() for body in bodies}),
        "called": any(b'"tool_calls"' in body for body in bodies),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(run_command(json.loads(line)))), flush=True)
