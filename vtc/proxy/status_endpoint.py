"""Tell who asks a reverse proxy that it is VTC, which version, and before which model server: `GET /.vtc`.

`vtc doctor` and `vtc launch` ask it, and so may whoever watches over the process. No other reply says that VTC was
there. Programs of this machine are also told where the log is, for `vtc tail`: who may read it is for its file to say;
and those of the same user get a proof that this VTC is theirs, too (`ownership`).
Exchanges themselves are told to no one who may only connect, as ids are, by which an unread reply is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mitmproxy import ctx, http

from vtc import __version__
from vtc.json_text import encode
from vtc.proxy.address import get_server_url
from vtc.proxy.local_clients import is_local_program, may_be_web_page
from vtc.proxy.ownership import NONCE_HEADER, prove_ownership
from vtc.proxy.status import CLAIMS, SERVICE_NAME, STATUS_PATH


class StatusEndpoint:
    """Answers for VTC itself; comes before what asks the model server first."""

    name = "vtc-status"

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Answer a question about VTC: no page of the web is told which servers there are."""
        upstream, headers = get_server_url(flow.client_conn.proxy_mode), {"content-type": "application/json"}
        if not (upstream and is_status_request(flow.request)):
            return
        status: int = 403 if may_be_web_page(flow) else 200
        value: Mapping[str, Any] = {"error": {"message": "VTC: pages of the web are not told this"}}
        if status == 200:
            value = {"name": SERVICE_NAME, "version": __version__, "mode": ctx.options.vtc_mode, "upstream": upstream}
            if is_local_program(flow):
                value = {**value, **dict(_facts_for_this_machine(flow, value))}
        flow.response = http.Response.make(status, encode(value), {**headers, "cache-control": "no-store"})


def _facts_for_this_machine(flow: http.HTTPFlow, value: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield where the log is, and the proof for whoever sent a nonce."""
    log = str(Path(ctx.options.vtc_log).expanduser().absolute()) if ctx.options.vtc_log else ""
    claims = [{**value, "log": log}[key] for key in CLAIMS]
    nonce = flow.request.headers.get(NONCE_HEADER, "")
    proof = prove_ownership(ctx.options.confdir, nonce, flow.client_conn.sockname, claims)
    yield from ((key, text) for key, text in (("log", log), ("proof", proof)) if text)


def is_status_request(request: http.Request) -> bool:
    """True if a request asks about VTC itself."""
    return request.method in ("GET", "HEAD") and request.path.partition("?")[0] == STATUS_PATH
