"""A request on its way to its server: refused, or sent to where the server has its API."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import APIS, Api
from vtc.apis.place import BEARER, Place
from vtc.events import Failure
from vtc.exchange import Session
from vtc.json_text import encode
from vtc.proxy import bodies, flows
from vtc.proxy.originals import KEY_HEADERS, OriginalRequest


def refuse(flow: http.HTTPFlow, reason: str) -> None:
    """Answer a request whose reply no policy would see."""
    answer_with_error(flow, f"a policy that refuses calls holds here, and this request cannot be read: {reason}", 400)


def answer_with_error(flow: http.HTTPFlow, message: str, status: int) -> None:
    """Answer a request with an error of the client's API; that of chat completions, if it has none."""
    if flow.request.stream:  # it was forwarded already
        flow.kill()
        return
    api = flows.find_client_api(flow) or APIS[0]
    body = encode(api.error(Failure(f"VTC: {message}"), status))
    flow.response = http.Response.make(status, body, {"content-type": "application/json"})


OWN_HEADER_PREFIXES = tuple({api.place.own_headers for api in APIS} - {""})
"""How headers begin that mean something to servers of one API alone."""


NO_WEBSOCKET = "an API over a WebSocket is not read, so no policy would hold"


def decline_websocket(flow: http.HTTPFlow, api: Api) -> None:
    """Answer the request for a WebSocket with 426, after which clients use HTTP."""
    body = encode(api.error(Failure(f"VTC: {NO_WEBSOCKET}: use HTTP"), 426))
    headers = {"content-type": "application/json", "upgrade": "HTTP/1.1", "connection": "upgrade"}
    flow.response = http.Response.make(426, body, headers)


def build_request(
    flow: http.HTTPFlow, original: OriginalRequest, client: Api, exchange: Session, body: bytes, *, keep: bool
) -> None:
    """Build the request to the server of an exchange in a flow, from the request as it was received.

    If `keep`, the flow's metadata store the body that the client sent, and which headers differ from its own.
    """
    original.restore(flow)
    flow.request.headers.pop("upgrade", None)  # a reply in another protocol is not read
    redirect(flow, client.place, exchange)
    if body != (received := flow.request.content or b""):
        bodies.send_instead(flow, body, received, keep=keep)
    if exchange.reads:
        # A reply that cannot be decoded could not be read; clients take identity as they take any other.
        flow.request.headers["accept-encoding"] = "identity"
    if keep:
        original.record_changes(flow)


def redirect(flow: http.HTTPFlow, client: Place, exchange: Session) -> None:
    """Send a flow to where its server has its API: at the profile's path, or beside where the client's would be.

    With the headers that this server takes.
    """
    request, server, (model, streams, changed) = flow.request, exchange.server.place, exchange.sent_request
    for name, value in changed.items():
        if value is None:
            request.headers.pop(name, None)
        else:
            request.headers[name] = value
    path, _, query = request.path.partition("?")
    asked = client.match_path(path)
    if not exchange.is_bridged:
        if asked and asked.model and asked[1:] != (model, streams):
            flows.move(flow, server.build_path(asked.base, model, query, streams=streams))
        return
    rest, key = client.split_own_query(query)
    base = f"{client.strip_version(asked.base) if asked else ''}{server.version}"
    if asked and exchange.plan.stack.learned_api and server.version == client.version:
        base = asked.base  # where the server has the client's API, too
    configured = exchange.plan.stack.server.api_path
    place = server.match_path(configured) if configured else None
    if configured and not place:
        target = f"{configured}?{rest}".removesuffix("?")
    else:
        target = server.build_path(place.base if place else base, model, rest, streams=streams)
    flows.move(flow, target)
    translate_headers(request.headers, key, server)


def translate_headers(headers: http.Headers, key: str, server: Place) -> None:
    """Put the client's key where servers of the API look for it, and leave out what only its own API knows."""
    keys = [*(headers.pop(name, "") for name in sorted(KEY_HEADERS)), key]
    own = tuple(start for start in OWN_HEADER_PREFIXES if start != server.own_headers)
    for name in [name for name in headers if name.lower().startswith(own)]:
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
