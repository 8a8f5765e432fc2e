"""Follow-up requests: the model server is asked once more, for as long as the client is there.

So the question goes where the first one went, by mitmproxy's own client replay: the flow's request with another body,
its headers and the proxy's settings (upstream proxies, certificates), and nothing but the one flow waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from weakref import WeakKeyDictionary, ref

from mitmproxy import ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.proxy.events import Event
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import RequestProtocolError

from vtc.exchange import NoAnswer

# mitmproxy waits with all that happens to an exchange, its client's end too, until its hooks have returned. Meanwhile a
# server that is asked once more would work for a client that is no longer there: so the client's end is told at once.

_streams: WeakKeyDictionary[http.HTTPFlow, ref[HttpStream]] = WeakKeyDictionary()
"""The stream of each flow whose reply is there: mitmproxy tells it when the client goes."""

_send = getattr(HttpStream.send_response, "__wrapped__", HttpStream.send_response)
"""mitmproxy's own; a script that is loaded again does not wrap what it wrapped before."""


@wraps(_send)
def _note_first(stream: HttpStream, already_streamed: bool = False) -> CommandGenerator[None]:
    _streams[stream.flow] = ref(stream)
    yield from _send(stream, already_streamed)


HttpStream.send_response = _note_first  # type: ignore[method-assign, assignment]


@contextmanager
def heeding(flow: http.HTTPFlow, when_gone: Callable[[], object]) -> Iterator[None]:
    """Call `when_gone` if the client of a flow has gone, or goes meanwhile."""
    noted = _streams.get(flow)
    stream = noted() if noted else None
    if stream is None:  # it is not on its way
        yield
        return
    handle = stream.handle_event

    def heed(event: Event) -> CommandGenerator[None]:
        if isinstance(event, RequestProtocolError):
            when_gone()
        return handle(event)

    if any(isinstance(event, RequestProtocolError) for event in stream._paused_event_queue):
        when_gone()
    stream.handle_event = heed  # type: ignore[method-assign]
    try:
        yield
    finally:
        del stream.handle_event


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
        """Return the answer, whatever it is; raises `NoAnswer` if there is none, or its client has gone."""
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
