"""Asking the model server once more: the flow's request with another body, by mitmproxy's own client replay.

So it goes where the first one went, with its headers and the proxy's settings (upstream proxies, certificates), and
nothing but the one flow waits for it.
"""

from __future__ import annotations

import asyncio

from mitmproxy import ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler

from vtc.exchange import NoAnswer
from vtc.proxy.departing import heeding

AGAIN = "vtc.again"
"""Key of the metadata of a flow that asks again for another; its value is that one's id."""
PATIENCE = 600.0
"""Seconds for a reply to a request that was refused first."""


class FollowUpRequests:
    """Asks again for `flow`; all its questions together may take `seconds`."""

    def __init__(self, flow: http.HTTPFlow, seconds: float) -> None:
        self._flow = flow
        self._seconds = seconds
        self._deadline: float | None = None

    async def __call__(self, body: bytes) -> http.Response:
        """Return the answer, whatever it is; raises `NoAnswer` if there is none, or nobody to give it to."""
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._seconds
        again = self._flow.copy()
        again.response = again.error = None
        again.comment, again.marked = "", ""
        again.metadata = {AGAIN: self._flow.id}
        again.is_replay = "request"
        again.request.content = body
        handler = ReplayHandler(again, ctx.options)
        replay = asyncio.create_task(handler.replay())
        try:
            with heeding(self._flow, replay.cancel):
                await asyncio.wait([replay], timeout=self._deadline - loop.time())
            if replay.cancelled():
                raise NoAnswer("the client has gone")
            if not replay.done():
                raise NoAnswer(f"no reply within {self._seconds:g} s")
            replay.result()
        finally:
            replay.cancel()
            for transport in handler.transports.values():
                if transport.handler:
                    transport.handler.cancel("its reply is of no use any more")
        response: http.Response | None = again.response
        if again.error or response is None:
            raise NoAnswer(again.error.msg if again.error else "no reply")
        return response
