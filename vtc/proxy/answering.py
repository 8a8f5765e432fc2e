"""The reply in a server's error, given to the client in its place."""

from __future__ import annotations

from mitmproxy import ctx, http

from vtc.proxy import bodies
from vtc.proxy.live import Live


def answer_error(flow: http.HTTPFlow, live: Live, response: http.Response) -> bool:
    """Answer with the reply that an error holds; False if it holds none."""
    try:
        body = bodies.decoded(response, ctx.options.vtc_max_body_bytes) or b""
    except ValueError:
        return False
    found = live.exchange.from_error(body, int(flow.request.timestamp_start), response.status_code)
    if found and ctx.options.vtc_mode == "rewrite":
        live.came.add(body)
        live.went.add(found[1])
        response.status_code, response.reason = 200, "OK"
        response.headers.pop("content-encoding", None)
        response.headers["content-type"], response.content = found
    return found is not None
