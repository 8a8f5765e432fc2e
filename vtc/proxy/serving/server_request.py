"""Prepare the request to the server: redirect it to the server's API, or answer it with an error."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import APIS, Api
from vtc.events import Failure
from vtc.exchange import Session
from vtc.exchange.target import address_request
from vtc.json_text import encode_json
from vtc.proxy import flows
from vtc.proxy.serving import bodies
from vtc.proxy.serving.originals import OriginalRequest


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
    target = address_request(session, client.place, flow.request.path, flow.request.headers)
    if target != flow.request.path:
        flows.change_path(flow, target)
    if body != (received := flow.request.content or b""):
        bodies.replace_request_body(flow, body, received, keep=keep)
    if session.may_change_reply:
        # Ask for no coding, because VTC could not read a reply that it cannot decode; every client accepts identity.
        flow.request.headers["accept-encoding"] = "identity"
    if keep:
        original.record_changes(flow)
