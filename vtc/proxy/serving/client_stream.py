"""The stream of an exchange to its client: detect that the client disconnects, continue a reply after its end, and end
it before the server does.

mitmproxy's `HttpStream` has no hooks for these, so its method that sends a reply is wrapped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from weakref import WeakKeyDictionary, WeakSet, ref

from mitmproxy import http
from mitmproxy.hooks import all_hooks
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.events import Event
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, RequestProtocolError, ResponseData, ResponseEndOfMessage

# mitmproxy queues all events of an exchange, even the disconnect of its client, until its hooks have returned. In the
# meantime a server would work on a follow-up request for a client that is gone, so VTC observes the disconnect itself.

_streams: WeakKeyDictionary[http.HTTPFlow, ref[HttpStream]] = WeakKeyDictionary()
"""The stream of each flow with a reply; mitmproxy notifies it when the client disconnects."""

_original_send = getattr(HttpStream.send_response, "__wrapped__", HttpStream.send_response)
"""mitmproxy's own method; a script that is loaded again must not wrap its own wrapper."""


_continuations: WeakKeyDictionary[http.HTTPFlow, AsyncIterator[list[bytes]]] = WeakKeyDictionary()
"""The continuation of each streamed reply that has one; it is sent after the server has ended its reply."""
_next_pieces: WeakKeyDictionary[http.HTTPFlow, list[bytes] | None] = WeakKeyDictionary()
"""The next pieces of a continuation; None at its end."""


def continue_reply(flow: http.HTTPFlow, continuation: AsyncIterator[list[bytes]]) -> None:
    """Register the continuation of a streamed reply; it is sent before mitmproxy's hook `response`."""
    _continuations.setdefault(flow, continuation)


_ended_early: WeakSet[http.HTTPFlow] = WeakSet()
"""The flows whose reply VTC has ended while the server still sends."""

_original_stream_body = getattr(
    HttpStream.state_stream_response_body, "__wrapped__", HttpStream.state_stream_response_body
)


def end_early(flow: http.HTTPFlow) -> None:
    """End a streamed reply after the current chunk, and cancel the server's request."""
    _ended_early.add(flow)


def _stream_response_body(stream: HttpStream, event: Event) -> CommandGenerator[None]:
    """Stream a chunk; then end the reply if VTC ends it early."""
    yield from _original_stream_body(stream, event)
    if stream.flow in _ended_early:
        _ended_early.discard(stream.flow)
        cancel = RequestProtocolError(stream.stream_id, "VTC has ended the reply", ErrorCode.CANCEL)
        yield SendHttp(cancel, stream.context.server)
        yield from _original_stream_body(stream, ResponseEndOfMessage(stream.stream_id))


_stream_response_body.__wrapped__ = _original_stream_body  # type: ignore[attr-defined]
HttpStream.state_stream_response_body = _stream_response_body  # type: ignore[method-assign]


all_hooks.pop("vtc_continuation", None)  # registered by an earlier load of the script


@dataclass
class ContinuationHook(StartHook):
    """Hook that waits for the next pieces of a continuation."""

    name = "vtc_continuation"
    flow: http.HTTPFlow


class Continuations:
    """Addon that awaits the pieces of continuations, because mitmproxy's layers cannot await."""

    name = "vtc-continuation"

    async def vtc_continuation(self, flow: http.HTTPFlow) -> None:
        """Wait for the next pieces, and store them for the layer; None at the end."""
        rest = _continuations.get(flow)
        pieces = await anext(rest, None) if rest else None
        _next_pieces[flow] = pieces


@wraps(_original_send)
def _send_response(stream: HttpStream, already_streamed: bool = False) -> CommandGenerator[None]:
    """Send the continuation of a streamed reply before mitmproxy ends it."""
    _streams[stream.flow] = ref(stream)
    while already_streamed and stream.flow in _continuations:
        yield ContinuationHook(stream.flow)
        pieces = _next_pieces.pop(stream.flow, None)
        if pieces is None or any(isinstance(event, RequestProtocolError) for event in stream._paused_event_queue):
            del _continuations[stream.flow]  # the continuation has ended, or the client has disconnected
            break
        for piece in pieces:
            yield SendHttp(ResponseData(stream.stream_id, piece), stream.context.client)
    yield from _original_send(stream, already_streamed)


HttpStream.send_response = _send_response  # type: ignore[method-assign, assignment]


@contextmanager
def watch_client(flow: http.HTTPFlow, when_gone: Callable[[], object]) -> Iterator[None]:
    """Call `when_gone` if the client of a flow has disconnected, or does so inside this context."""
    reference = _streams.get(flow)
    stream = reference() if reference else None
    if stream is None:  # the flow has no live connection
        yield
        return
    handle = stream.handle_event

    def handle_event(event: Event) -> CommandGenerator[None]:
        if isinstance(event, RequestProtocolError):
            when_gone()
        return handle(event)

    if any(isinstance(event, RequestProtocolError) for event in stream._paused_event_queue):
        when_gone()
    stream.handle_event = handle_event  # type: ignore[method-assign]
    try:
        yield
    finally:
        del stream.handle_event
