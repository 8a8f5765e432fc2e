"""A request on its way to the server: its path, and its headers where that speaks another API."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import Api
from vtc.exchange import Exchange
from vtc.proxy.flows import CAME_TO

BEARER = "authorization"


def redirect(flow: http.HTTPFlow, exchange: Exchange) -> None:
    """Send a flow to where the server has its API."""
    request = flow.request
    if exchange.crosses or exchange.path(request.path) != request.path:
        flow.metadata[CAME_TO] = request.path
        request.path = exchange.path(request.path)
    if exchange.crosses:
        _rewrite(request.headers, exchange.client, exchange.server)


def _rewrite(headers: http.Headers, client: Api, server: Api) -> None:
    """Turn the headers of the client's API into those of the server's; the key goes where that looks for it."""
    key = headers.pop(client.key, "") if client.key != BEARER else ""
    for name in [name for name in headers if name.lower().startswith((*client.private, *server.private))]:
        del headers[name]
    headers.update(server.headers)
    scheme, _, token = headers.get(BEARER, "").partition(" ")
    if server.key == BEARER:
        if key and BEARER not in headers:
            headers[BEARER] = f"Bearer {key}"
        return
    if not key and scheme.lower() == "bearer" and token:
        key = token
        del headers[BEARER]
    if key:
        headers[server.key] = key
