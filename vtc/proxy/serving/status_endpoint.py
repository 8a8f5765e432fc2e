"""Serve the status of a reverse proxy at `GET /.vtc`: that it is VTC, its version, and its model server.

`vtc doctor` and `vtc launch` use it, and monitoring may. No other reply reveals VTC. Programs on this machine also get
the path of the log, for `vtc tail`; the permissions of the file decide who can read it. A program that sends a nonce
gets a proof that this VTC belongs to the same user (`ownership`). The status never contains exchanges, or the ids by
which unread replies are requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mitmproxy import ctx, http

from vtc import __version__
from vtc.json_text import encode_json
from vtc.proxy.asking.address import get_server_url
from vtc.proxy.asking.ownership import NONCE_HEADER, prove_ownership
from vtc.proxy.asking.status import CLAIMS, SERVICE_NAME, STATUS_PATH
from vtc.proxy.serving.local_clients import is_local_program, may_be_web_page


class StatusEndpoint:
    """Answers requests for the status; runs before the addon that probes the model server."""

    name = "vtc-status"

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Answer a request for the status; web pages are denied because they must not discover servers."""
        upstream, headers = get_server_url(flow.client_conn.proxy_mode), {"content-type": "application/json"}
        if not (upstream and is_status_request(flow.request)):
            return
        status: int = 403 if may_be_web_page(flow) else 200
        value: Mapping[str, Any] = {"error": {"message": "VTC: web pages may not read the status"}}
        if status == 200:
            value = {"name": SERVICE_NAME, "version": __version__, "mode": ctx.options.vtc_mode, "upstream": upstream}
            if is_local_program(flow):
                value = {**value, **dict(_facts_for_this_machine(flow, value))}
        flow.response = http.Response.make(status, encode_json(value), {**headers, "cache-control": "no-store"})


def _facts_for_this_machine(flow: http.HTTPFlow, value: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path of the log, and the proof of ownership for a nonce."""
    log = str(Path(ctx.options.vtc_log).expanduser().absolute()) if ctx.options.vtc_log else ""
    claims = [{**value, "log": log}[key] for key in CLAIMS]
    nonce = flow.request.headers.get(NONCE_HEADER, "")
    proof = prove_ownership(ctx.options.confdir, nonce, flow.client_conn.sockname, claims)
    if log:
        yield "log", log
    if proof:
        yield "proof", proof


def is_status_request(request: http.Request) -> bool:
    """True if a request asks for the status of VTC."""
    return request.method in ("GET", "HEAD") and request.path.partition("?")[0] == STATUS_PATH
