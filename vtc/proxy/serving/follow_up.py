"""Send follow-up requests to the model server, as long as the client is connected.

They use mitmproxy's client replay, so they take the same route as the original request: its path, headers and key with
another body, and the proxy's settings (upstream proxies, certificates). Only the one flow waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.addons.clientplayback import ReplayHandler

from vtc.exchange import NoAnswer
from vtc.proxy import flows
from vtc.proxy.serving.client_stream import watch_client
from vtc.proxy.serving.key_loans import share_loan, take_back

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
