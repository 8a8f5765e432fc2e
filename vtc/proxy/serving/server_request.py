"""Prepare the request to the server: redirect it to the server's API, or answer it with an error."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import APIS, Api
from vtc.apis.place import BEARER, Place
from vtc.events import Failure
from vtc.exchange import Session
from vtc.json_text import encode_json
from vtc.proxy import flows
from vtc.proxy.serving import bodies
from vtc.proxy.serving.originals import KEY_HEADERS, OriginalRequest


def deny_unreadable(flow: http.HTTPFlow, reason: str) -> None:
    """Answer a request with an error, because no policy could check its reply; `reason` says why."""
    answer_with_error(flow, f"a policy restricts calls here, and this request cannot be parsed: {reason}", 400)


def answer_with_error(flow: http.HTTPFlow, message: str, status: int) -> None:
    """Answer a request with an error of the client's API, or of chat completions if that is unknown."""
    if flow.request.stream:  # already forwarded
        flow.kill()
        return
    api = flows.find_client_api(flow) or APIS[0]
    body = encode_json(api.build_error(Failure(f"VTC: {message}"), status))
    flow.response = http.Response.make(status, body, {"content-type": "application/json"})


OWN_HEADER_PREFIXES = tuple({api.place.own_headers for api in APIS} - {""})
"""Prefixes of headers that are specific to one API."""


NO_WEBSOCKET = "VTC does not read APIs over a WebSocket, so no policy would apply"


def decline_websocket(flow: http.HTTPFlow, api: Api) -> None:
    """Answer the request for a WebSocket with 426, so that the client falls back to HTTP."""
    body = encode_json(api.build_error(Failure(f"VTC: {NO_WEBSOCKET}: use HTTP"), 426))
    headers = {"content-type": "application/json", "upgrade": "HTTP/1.1", "connection": "upgrade"}
    flow.response = http.Response.make(426, body, headers)


def build_request(
    flow: http.HTTPFlow, original: OriginalRequest, client: Api, session: Session, body: bytes, *, keep: bool
) -> None:
    """Turn the flow's request into the one for the server, starting from the request as it was received.

    If `keep`, the flow's metadata store the received body and the headers that were changed.
    """
    original.restore(flow)
    flow.request.headers.pop("upgrade", None)  # VTC does not read replies in other protocols
    redirect(flow, client.place, session)
    if body != (received := flow.request.content or b""):
        bodies.replace_request_body(flow, body, received, keep=keep)
    if session.may_change_reply:
        # Ask for no coding, because VTC could not read a reply that it cannot decode; every client accepts identity.
        flow.request.headers["accept-encoding"] = "identity"
    if keep:
        original.record_changes(flow)


def redirect(flow: http.HTTPFlow, client: Place, session: Session) -> None:
    """Redirect a flow to the path of the server's API, with the headers that this server expects.

    The path is the profile's, or else next to the path of the client's API.
    """
    # Step 1: Set the headers that the session changed.
    request, server = flow.request, session.server.place
    model, streams, changed_headers = session.sent_request
    for name, value in changed_headers.items():
        if value is None:
            request.headers.pop(name, None)
        else:
            request.headers[name] = value
    # Step 2: In the client's API, change the path only if it names another model or asks for another kind of reply.
    path, _, query = request.path.partition("?")
    asked = client.match_path(path)
    if not session.is_bridged:
        if asked and asked.model and (asked.model, asked.streams) != (model, streams):
            flows.change_path(flow, server.build_path(asked.base, model, query, streams=streams))
        return
    # Step 3: Else build the path from the profile's, or next to the client's.
    rest, key = client.split_own_query(query)
    base = f"{client.strip_version(asked.base) if asked else ''}{server.version}"
    if asked and session.plan.stack.learned_api and server.version == client.version:
        base = asked.base  # the server offers the client's API there, too
    configured = session.plan.stack.server.api_path
    place = server.match_path(configured) if configured else None
    if configured and not place:
        target = f"{configured}?{rest}".removesuffix("?")
    else:
        target = server.build_path(place.base if place else base, model, rest, streams=streams)
    flows.change_path(flow, target)
    # Step 4: Translate the headers.
    translate_headers(request.headers, key, server)


def translate_headers(headers: http.Headers, key: str, server: Place) -> None:
    """Move the client's key to the header that servers of the API read, and drop headers specific to other APIs."""
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
