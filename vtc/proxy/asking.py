"""Asking the model server once more: the flow's request with another body, by mitmproxy's own client replay.

So it goes where the first one went, with its headers and the proxy's settings (upstream proxies, certificates), and
nothing but the one flow waits for it.
"""

from __future__ import annotations

import asyncio
import time

from mitmproxy import ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler

from vtc.exchange import NoAnswer
from vtc.exchange.sending import MOST_ASKED
from vtc.proxy import bodies
from vtc.proxy.live import Live

AGAIN = "vtc.again"
"""Key of the metadata of a flow that asks again for another; its value is that one's id."""


PATIENCE = 600.0
"""Seconds for a reply to a request that was refused first."""


class Asker:
    """Asks again for `flow`; all its questions together may take `seconds`."""

    def __init__(self, flow: http.HTTPFlow, seconds: float) -> None:
        self._flow = flow
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self.waited = 0.0
        """Seconds that the questions took."""

    async def __call__(self, body: bytes) -> bytes:
        started = time.perf_counter()
        try:
            return await self._asked(body)
        finally:
            self.waited += time.perf_counter() - started

    async def _asked(self, body: bytes) -> bytes:
        again = self._flow.copy()
        again.response = again.error = None
        again.comment, again.marked = "", ""
        again.metadata = {AGAIN: self._flow.id}
        again.is_replay = "request"
        again.request.content = body
        try:
            async with asyncio.timeout_at(self._deadline):
                await ReplayHandler(again, ctx.options).replay()
        except TimeoutError:
            raise NoAnswer(f"no reply within {self._seconds:g} s") from None
        if again.error or again.response is None:
            raise NoAnswer(again.error.msg if again.error else "no reply")
        if not 200 <= (status := again.response.status_code) < 300:
            raise NoAnswer(f"upstream answered {status}", status, bodies.beginning(again.response))
        try:
            content = bodies.decoded(again.response, ctx.options.vtc_max_body_bytes)
        except ValueError as error:
            raise NoAnswer(f"the reply cannot be decoded: {error}") from None
        return content or b""


async def asked_again(flow: http.HTTPFlow, live: Live, response: http.Response, error: bytes) -> bool:
    """Ask again with what a refusal teaches, and with what the next one does; False if the last error stands."""
    exchange, asker, status = live.exchange, Asker(flow, PATIENCE), response.status_code
    for _ in range(MOST_ASKED - 1):
        again = exchange.again(error, status) if ctx.options.vtc_mode == "rewrite" else None
        if again is None:
            return False
        try:
            body = await asker(again)
            break
        except NoAnswer as failed:
            exchange.report.errors.append(f"asked again without what it refused: {failed}")
            if not failed.status:
                return False
            status, error = failed.status, failed.error
            response.status_code, response.reason = status, ""
            bodies.replace(response, error, "application/json")
    else:
        return False
    exchange.learned()
    exchange.report.errors.clear()
    flow.request.content = again
    live.came.add(body)
    went = exchange.body(body)
    live.went.add(went)
    response.status_code, response.reason = 200, "OK"
    is_stream = exchange.framing.matches(went)
    bodies.replace(response, went, exchange.framing.media_type if is_stream else "application/json")
    return True
