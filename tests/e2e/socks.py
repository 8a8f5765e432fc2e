"""A SOCKS5 client, because httpx needs an additional library for it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

import httpcore
from httpcore._backends.auto import AutoBackend


class ThroughSocks(httpcore.AsyncNetworkBackend):
    """A network backend that opens each connection through a proxy on the loopback interface."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        stream = await AutoBackend().connect_tcp("127.0.0.1", self._port)
        await stream.write(b"\x05\x01\x00")
        assert await stream.read(2) == b"\x05\x00"
        await stream.write(b"\x05\x01\x00\x01" + ipaddress.IPv4Address(host).packed + port.to_bytes(2))
        assert (await stream.read(10))[:2] == b"\x05\x00"
        return stream

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


async def post(url: str, port: int, body: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
    """Send a request through the SOCKS proxy on that port; return the body of the reply."""
    async with httpcore.AsyncConnectionPool(network_backend=ThroughSocks(port)) as pool:
        response = await pool.request("POST", url, content=body, headers=list(headers))
    assert response.status == 200
    return bytes(response.content)
