"""Work that may take long, done beside the event loop, where all other exchanges go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mitmproxy import http

LONG = 1 << 17
"""Bytes of a request or a whole reply beyond which there may be much to do."""


def is_long(*messages: http.Message) -> bool:
    """Tell whether there may be much to do about one of these; a few bytes of a coded body may stand for many."""
    return any(len(one.raw_content or b"") > LONG or "content-encoding" in one.headers for one in messages)


async def done[T](work: Callable[[], T], *, much: bool) -> T:
    """Do work: in another thread if it is `much`, as handing it over takes a tenth of a short exchange."""
    return await asyncio.to_thread(work) if much else work()
