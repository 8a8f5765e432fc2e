"""Servers that break off in the middle of a reply, or are not reached, told before mitmproxy ends it in its own way.

mitmproxy calls a stream callable for each chunk and at a clean end, but not where a connection is reset, a body lacks
its end or HTTP/2 gives up a stream. Nothing can be sent any more by the time of its `error` hook. The one method of its
that deals with all of these asks first for what is held, and sends it as it sends any chunk. Where nothing of a reply
left, mitmproxy answers with a page of HTML, which clients of an API show as it is: an error of theirs takes its place.
"""

from __future__ import annotations

from functools import wraps
from typing import Protocol
from weakref import WeakSet

from mitmproxy import http
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, RequestProtocolError, ResponseData, ResponseProtocolError


class Holder(Protocol):
    """Holds back parts of replies."""

    def server_broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Take mitmproxy's words for what happened to a flow, streamed or not; return what still leaves."""
        ...

    def server_gave_none(self, flow: http.HTTPFlow, why: str) -> http.Response | None:
        """Take mitmproxy's words for why there is no whole reply; return what to answer, None for its own page."""
        ...


UNANSWERED = (ErrorCode.CONNECT_FAILED, ErrorCode.GENERIC_SERVER_ERROR, ErrorCode.RESPONSE_VALIDATION_FAILED)
HOLDERS: WeakSet[Holder] = WeakSet()
"""All that are asked."""

_handle = getattr(HttpStream.handle_protocol_error, "__wrapped__", HttpStream.handle_protocol_error)
"""mitmproxy's own; a script that is loaded again does not wrap what it wrapped before."""


@wraps(_handle)
def _ask_first(stream: HttpStream, event: RequestProtocolError | ResponseProtocolError) -> CommandGenerator[None]:
    if isinstance(event, ResponseProtocolError):
        for holder in [*HOLDERS]:
            for piece in holder.server_broke_off(stream.flow, event.message):
                yield SendHttp(ResponseData(stream.stream_id, piece), stream.context.client)
        response = stream.flow.response
        unanswered = event.code in UNANSWERED and (response is None or not response.stream)  # nothing has left
        answers = (holder.server_gave_none(stream.flow, event.message) for holder in [*HOLDERS])
        if unanswered and stream.client_state == stream.state_done and (answer := next(filter(None, answers), None)):
            stream.flow.response = answer
            yield from stream.send_response()
            return
    yield from _handle(stream, event)


HttpStream.handle_protocol_error = _ask_first  # type: ignore[method-assign, assignment]
