"""Tool calls for the clients of a server that is a FastAPI app (or any ASGI app) and whose model writes them as text.

    app = FastAPI()
    app.add_middleware(VtcMiddleware)

With `server_api="openai-chat"` an app that has `/v1/chat/completions` alone serves clients of the other APIs, too.
Needs `virtual-tool-calling`. Options are those of `vtc.Session` (docs/library.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import vtc

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type App = Callable[[Message, Receive, Send], Awaitable[None]]

APIS = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/messages": "anthropic-messages"}
"""The API of a request by the end of its path."""


class VtcMiddleware:
    """Lets VTC rewrite requests to an app, and its replies."""

    def __init__(self, app: App, **options: Any) -> None:
        self._app, self._options = app, options

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        api = next((api for end, api in APIS.items() if scope.get("path", "").endswith(end)), None)
        if api is None or scope.get("method") != "POST":
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        try:
            session = vtc.Session(body, api, path=scope["path"], **self._options)
        except vtc.RequestError:
            if {"policy", "profiles"} & self._options.keys():
                raise  # a policy would not see the reply
            await self._app(scope, make_receive(body, receive), send)
            return
        reply = Reply(session, send)
        if answer := session.answer():
            session.reply_status, session.reply_headers = answer.status, {"content-type": answer.media_type}
            await reply.end(answer.body)
            return
        to_send: bytes | None = session.request
        while to_send is not None:
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
            path = session.address(headers)
            headers["content-length"] = str(len(to_send))
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            changed = {"path": path.partition("?")[0], "raw_path": path.encode(), "headers": encoded}
            await self._app({**scope, **changed}, make_receive(to_send, receive), reply.receive)
            to_send = session.retry
        await reply.end()


class Reply:
    """Receives the messages of an app, and sends those of the session."""

    def __init__(self, session: vtc.Session, send: Send) -> None:
        self._session, self._send, self._has_begun = session, send, False

    async def receive(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
            self._session.status(message["status"], headers)
        elif message["type"] == "http.response.body":
            piece = self._session.feed(message.get("body", b""))
            if not message.get("more_body"):
                piece += self._session.finish()
            if piece:
                await self._send_piece(piece, more=True)

    async def end(self, piece: bytes = b"") -> None:
        await self._send_piece(piece, more=False)

    async def _send_piece(self, piece: bytes, *, more: bool) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = [(name.encode(), value.encode("latin-1")) for name, value in self._session.reply_headers.items()]
            await self._send({"type": "http.response.start", "status": self._session.reply_status, "headers": headers})
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})


async def read_body(receive: Receive) -> bytes:
    """Receive the whole body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def make_receive(body: bytes, receive: Receive) -> Receive:
    """Make a function that gives the app a body, and then the client's further messages."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_next
