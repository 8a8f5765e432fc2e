"""A request on its way to its server: the path that it is sent to, and for another API its headers and its key."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import APIS
from vtc.apis.place import BEARER, Place
from vtc.exchange import Exchange
from vtc.proxy import flows

KEYS = {api.place.key for api in APIS} - {BEARER}
"""The headers that hold a key and nothing else."""
OWN = tuple({api.place.own_headers for api in APIS} - {""})
"""How headers begin that mean something to servers of one API alone."""


def redirect(flow: http.HTTPFlow, client: Place, exchange: Exchange) -> None:
    """Send a flow to where its server has its API: at the profile's path, or beside where the client's would be."""
    request, server, (model, streams) = flow.request, exchange.server.place, exchange.asked
    path, _, query = request.path.partition("?")
    found = client.found(path)
    if not exchange.crosses:
        if found and found.model and found[1:] != (model, streams):
            flows.move(flow, server.written(found.base, model, query, streams=streams))
        return
    rest, key = client.without_own(query)
    base = f"{client.root(found.base) if found else ''}{server.version}"
    given = exchange.plan.server_path
    at = server.found(given) if given else None
    went = server.written(at.base if at else base, model, rest, streams=streams)
    flows.move(flow, f"{given}?{rest}".removesuffix("?") if given and not at else went)
    _tell(request.headers, key, server)


def _tell(headers: http.Headers, key: str, server: Place) -> None:
    """Put the client's key where servers of the API look for it, and leave out what only its own API knows."""
    keys = [*(headers.pop(name, "") for name in sorted(KEYS)), key]
    for name in [name for name in headers if name.lower().startswith(OWN)]:
        del headers[name]
    key = next(filter(None, keys), "")
    if server.key == BEARER:
        if key and BEARER not in headers:
            headers[BEARER] = f"Bearer {key}"
    else:
        scheme, _, token = headers.get(BEARER, "").partition(" ")
        if not key and scheme.lower() == "bearer" and token:
            key = token
            del headers[BEARER]
        if key:
            headers[server.key] = key
    headers.update(server.headers)
