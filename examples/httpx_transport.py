"""Tool calls for the SDKs of OpenAI and Anthropic from a server whose model writes them as text, without a proxy.

    OpenAI(base_url="http://127.0.0.1:8000/v1", http_client=httpx2.Client(transport=VtcTransport()))
    AsyncAnthropic(
        base_url="http://127.0.0.1:8000",
        http_client=httpx2.AsyncClient(transport=AsyncVtcTransport(server_api="openai-chat")),
    )

Needs `virtual-tool-calling`. Options are those of `vtc.Session` (docs/library.md).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import vtc

try:
    import httpx2 as httpx  # the SDKs since 2026
except ModuleNotFoundError:
    import httpx

APIS = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/messages": "anthropic-messages"}
"""The API of a request by the end of its path."""


class VtcTransport(httpx.BaseTransport):
    """Sends requests by another transport, and lets VTC rewrite them and their replies."""

    def __init__(self, inner: httpx.BaseTransport | None = None, **options: Any) -> None:
        self._inner, self._options = inner or httpx.HTTPTransport(), options

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        session = open_session(request, self._options)
        if session is None:
            return self._inner.handle_request(request)
        if answer := session.answer():
            return httpx.Response(answer.status, headers={"content-type": answer.media_type}, content=answer.body)
        pieces = self._exchange(request, session)
        first = next(pieces, b"")  # status and headers of the reply are final now
        return httpx.Response(session.reply_status, headers=session.reply_headers, stream=ReplyStream(first, pieces))

    def _exchange(self, request: httpx.Request, session: vtc.Session) -> Generator[bytes, None, None]:
        to_send: bytes | None = session.request
        while to_send is not None:
            response = self._inner.handle_request(build_request(request, session, to_send))
            try:
                session.status(response.status_code, response.headers)
                for chunk in response.stream:
                    if piece := session.feed(chunk):
                        yield piece
                if piece := session.finish():
                    yield piece
            finally:
                response.close()
            to_send = session.retry

    def close(self) -> None:
        self._inner.close()


class AsyncVtcTransport(httpx.AsyncBaseTransport):
    """The same for asynchronous clients."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None, **options: Any) -> None:
        self._inner, self._options = inner or httpx.AsyncHTTPTransport(), options

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        session = open_session(request, self._options)
        if session is None:
            return await self._inner.handle_async_request(request)
        if answer := session.answer():
            return httpx.Response(answer.status, headers={"content-type": answer.media_type}, content=answer.body)
        pieces = self._exchange(request, session)
        first = await anext(pieces, b"")
        stream = AsyncReplyStream(first, pieces)
        return httpx.Response(session.reply_status, headers=session.reply_headers, stream=stream)

    async def _exchange(self, request: httpx.Request, session: vtc.Session) -> AsyncGenerator[bytes, None]:
        to_send: bytes | None = session.request
        while to_send is not None:
            response = await self._inner.handle_async_request(build_request(request, session, to_send))
            try:
                session.status(response.status_code, response.headers)
                async for chunk in response.stream:
                    if piece := session.feed(chunk):
                        yield piece
                if piece := session.finish():
                    yield piece
            finally:
                await response.aclose()
            to_send = session.retry

    async def aclose(self) -> None:
        await self._inner.aclose()


class ReplyStream(httpx.SyncByteStream):
    def __init__(self, first: bytes, pieces: Generator[bytes, None, None]) -> None:
        self._first, self._pieces = first, pieces

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        yield from self._pieces

    def close(self) -> None:
        self._pieces.close()


class AsyncReplyStream(httpx.AsyncByteStream):
    def __init__(self, first: bytes, pieces: AsyncGenerator[bytes, None]) -> None:
        self._first, self._pieces = first, pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        async for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        await self._pieces.aclose()


def open_session(request: httpx.Request, options: dict[str, Any]) -> vtc.Session | None:
    """Open the session of a request; None if it is not for a model, or no valid request."""
    api = next((api for end, api in APIS.items() if request.url.path.endswith(end)), None)
    if api is None or request.method != "POST":
        return None
    try:
        return vtc.Session(request.content, api, path=request.url.raw_path.decode(), **options)
    except vtc.RequestError:
        if {"policy", "profiles"} & options.keys():
            raise  # a policy would not see the reply
        return None


def build_request(request: httpx.Request, session: vtc.Session, body: bytes) -> httpx.Request:
    """Build the request to the server from the client's."""
    headers = request.headers.copy()
    del headers["content-length"]
    url = request.url.copy_with(raw_path=session.address(headers).encode())
    return httpx.Request("POST", url, headers=headers, content=body, extensions=request.extensions)
