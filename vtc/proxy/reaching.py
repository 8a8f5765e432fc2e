"""A model server that cannot be reached: what is told, and the answer that the client gets in its API's own form."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import Api, beside, named
from vtc.events import Failure
from vtc.json_text import encode
from vtc.proxy import flows

UNTRUSTED = (
    "`--set ssl_verify_upstream_trusted_ca=FILE` names the authority that signed it, "
    "`--set ssl_insecure=true` takes any"
)
"""What to do about a certificate; with `vtc run` it stands after `--`."""


def explained(flow: http.HTTPFlow, why: str) -> str:
    """Say what to do where there is no connection; `why` in mitmproxy's words."""
    at = f"the model server at {flow.request.host}:{flow.request.port}"
    if "destination unknown" in why.casefold():
        return "no model server was named: start VTC with its URL, `vtc run http://127.0.0.1:8000`"
    if "certificate" in why.casefold():
        return f"the certificate of {at} is not trusted ({why}): {UNTRUSTED}"
    return f"{at} cannot be reached ({why}): is it running?"


def api(flow: http.HTTPFlow) -> Api | None:
    """Find the API in whose form the client of a flow reads errors; None if it asks for something else."""
    request = flow.request
    aside = beside.asked(request.method, request.path, flows.facts(flow).headers)
    return flows.api(flow) or (named(aside.client) if aside else None)


def answer(api: Api, told: str) -> http.Response:
    """Make the answer: an error of the API."""
    body = encode(api.error(Failure(f"VTC: {told}"), 502))
    return http.Response.make(502, body, {"content-type": "application/json"})
