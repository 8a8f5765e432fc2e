"""The HTTP shapes that VTC speaks. Another API is another module here and another row of `APIS`."""

from __future__ import annotations

from vtc.apis import ollama_chat, openai_chat, openai_responses
from vtc.apis.base import Api, BadRequest, Reply, Request

APIS = (openai_chat.API, openai_responses.API, ollama_chat.API)


def find(method: str, path: str) -> Api | None:
    """The API that a request belongs to, or None."""
    path = path.partition("?")[0].rstrip("/")
    return next((api for api in APIS if method == "POST" and path.endswith(api.path)), None)


UNREAD = {
    "/v1/messages/count_tokens": "tokens are counted without what VTC would write into the request",
    "/responses/input_tokens": "tokens are counted without what VTC would write into the request",
    "/v1/messages/batches": "the requests and replies of a batch are not read",
    "/responses/compact": "a conversation that the server makes shorter is not read",
    "/v1/responses": "a response that the server kept, or one over a WebSocket, is not read",
    "/chat/completions": "a completion that the server kept is not read",
    "/completions": "text completions have no tools, and are not read",
    "/api/generate": "text completions have no tools, and are not read",
}
"""Paths close to those of the APIs, and why requests to them, or below, are left alone; the first that fits counts."""


def unread(method: str, path: str) -> str:
    """Tell why a request that looks like one of an API is left alone; empty for one that looks like none."""
    path = f"{path.partition('?')[0].rstrip('/')}/"
    if method in ("OPTIONS", "HEAD") or find(method, path):
        return ""
    return next((why for close, why in UNREAD.items() if f"{close}/" in path), "")


__all__ = ["APIS", "Api", "BadRequest", "Reply", "Request", "find", "unread"]
