"""Clients that go while their whole reply is dealt with, told at once.

mitmproxy waits with all that happens to an exchange, its client's end too, until its hooks have returned. Meanwhile a
server that is asked once more would work for a client that is no longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from weakref import WeakKeyDictionary, ref

from mitmproxy import http
from mitmproxy.proxy.events import Event
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import RequestProtocolError

_streams: WeakKeyDictionary[http.HTTPFlow, ref[HttpStream]] = WeakKeyDictionary()
"""What mitmproxy tells of the client, for each flow whose reply is there."""

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
