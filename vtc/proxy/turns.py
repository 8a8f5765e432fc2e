"""Small reads from model servers, so that all other streams get their turn between two of them.

asyncio reads up to 256 KB at once, and mitmproxy takes all of it before anything else happens: of text that is made to
be slow that is more than a second's work.
"""

from __future__ import annotations

import asyncio

from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

MOST_READ = 1 << 13
"""Bytes that are read at once."""


class Turns:
    """Has what servers send read in small pieces."""

    name = "vtc-turns"

    def server_connected(self, data: ServerConnectionHookData) -> None:
        proxy = ctx.master.addons.get("proxyserver")
        if not isinstance(proxy, Proxyserver):
            return
        for handler in proxy.connections.values():
            found = handler.transports.get(data.server) if handler.client is data.client else None
            if (
                found
                and isinstance(found.reader, asyncio.StreamReader)
                and isinstance(found.writer, asyncio.StreamWriter)
            ):
                # What asyncio reads at once on Unix (on Windows 64 KB), and half of what it keeps until mitmproxy takes
                # it: there is no other way to tell it.
                found.writer.transport.max_size = MOST_READ  # type: ignore[attr-defined]
                found.reader._limit = MOST_READ // 2  # type: ignore[attr-defined]
