"""Send follow-up requests to the model server, as long as the client is connected.

They use mitmproxy's client replay, so they take the same route as the original request: its headers with another body,
and the proxy's settings (upstream proxies, certificates). Only the one flow waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from weakref import WeakKeyDictionary, ref

from mitmproxy import ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler
from mitmproxy.hooks import all_hooks
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.events import Event
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import RequestProtocolError, ResponseData

from vtc.exchange import NoAnswer
from vtc.proxy import flows
from vtc.proxy.serving.server_keys import share_loan, take_back

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


REPLY_SECONDS = 600.0
"""Seconds for the reply to a retry after a rejection."""

type ChooseListener = Callable[[http.Response], Callable[[bytes], object] | None]
"""Returns a listener for the pieces of a body as they arrive; None to receive the answer as a whole."""
_listeners: WeakKeyDictionary[http.HTTPFlow, ChooseListener] = WeakKeyDictionary()


def forward_to_listener(flow: http.HTTPFlow) -> None:
    """Forward the answer of a follow-up request to its listener, if it has one; for `responseheaders`."""
    listener = _listeners[flow](flow.response) if flow in _listeners and flow.response else None
    if listener and flow.response:

        def pass_on(piece: bytes) -> list[bytes]:
            listener(piece)
            return [piece] if piece else []

        flow.response.stream = pass_on


class FollowUpRequests:
    """Sends follow-up requests for `flow`, which together may take `seconds`."""

    def __init__(self, flow: http.HTTPFlow, seconds: float) -> None:
        self._flow = flow
        self._seconds = seconds
        self._deadline: float | None = None

    async def __call__(self, body: bytes) -> http.Response:
        """Return the answer, even an error; raises `NoAnswer` if there is none or the client has disconnected."""
        follow_up = self._copy(body)
        with self._replay(follow_up) as replay:
            await asyncio.wait([replay], timeout=self._seconds_left)
            return self._get_answer(follow_up, replay)

    async def stream(
        self, body: bytes, is_stream: Callable[[http.Response], bool], tick: float = 0
    ) -> AsyncIterator[bytes | http.Response]:
        """Yield the pieces of a streamed answer as they arrive, or any other answer as a whole; raises `NoAnswer`.

        The time limit applies until the answer begins. After each `tick` seconds without data, yield an empty piece.
        """
        follow_up = self._copy(body)
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        _listeners[follow_up] = lambda response: pieces.put_nowait if is_stream(response) else None
        has_begun = False
        with self._replay(follow_up) as replay:
            replay.add_done_callback(lambda _: pieces.put_nowait(None))
            while True:
                timeout = None if has_begun else self._seconds_left
                try:
                    piece = await asyncio.wait_for(pieces.get(), min(filter(None, (tick, timeout)), default=None))
                except TimeoutError:
                    if self._seconds_left <= 0 and not has_begun:
                        break
                    yield b""
                    continue
                if piece is None:
                    break
                has_begun = has_begun or bool(piece)
                if piece:
                    yield piece
            answer = self._get_answer(follow_up, replay)
            if not has_begun:
                yield answer

    @property
    def _seconds_left(self) -> float:
        """The remaining seconds, counted from the first request."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._seconds
        return self._deadline - now

    def _copy(self, body: bytes) -> http.HTTPFlow:
        follow_up: http.HTTPFlow = self._flow.copy()
        follow_up.response = follow_up.error = None
        follow_up.comment, follow_up.marked = "", ""
        follow_up.metadata = {flows.FOLLOW_UP_OF: self._flow.id}
        follow_up.is_replay = "request"
        follow_up.request.content = body
        share_loan(self._flow, follow_up)
        return follow_up

    @contextmanager
    def _replay(self, follow_up: http.HTTPFlow) -> Iterator[asyncio.Task[None]]:
        """Send the request; cancel it at the end of this context, or when the client disconnects."""
        handler = ReplayHandler(follow_up, ctx.options)
        replay = asyncio.create_task(handler.replay())
        try:
            with watch_client(self._flow, replay.cancel):
                yield replay
        finally:
            replay.cancel()
            for transport in handler.transports.values():
                if transport.handler:
                    transport.handler.cancel("its reply is no longer needed")
            take_back(follow_up)  # no hook is called for a cancelled request

    def _get_answer(self, follow_up: http.HTTPFlow, replay: asyncio.Task[None]) -> http.Response:
        if replay.cancelled():
            raise NoAnswer("the client has gone")
        if not replay.done():
            raise NoAnswer(f"no reply within {self._seconds:g} s")
        replay.result()
        response: http.Response | None = follow_up.response
        if follow_up.error or response is None:
            raise NoAnswer(follow_up.error.msg if follow_up.error else "no reply")
        return response
