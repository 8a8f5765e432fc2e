"""The addon: mitmproxy's hooks, and nothing that is not about them.

A request is rewritten in `request`, when its body is there. A reply of server-sent events is rewritten by the stream
callable that `responseheaders` sets, any other in `response`. What mitmproxy does with that callable rules its shape:
it must not raise (the chunk would be lost, or the client hang) and must not return b"" (that ends the body), and
its final call may come twice or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from vtc import apis
from vtc.apis import BadRequest
from vtc.exchange import Exchange, Stream
from vtc.profiles.matching import Facts
from vtc.profiles.plan import Planner
from vtc.proxy import options
from vtc.wire.compression import UnsupportedEncoding

logger = logging.getLogger(__name__)

MARK = ":hammer:"
METADATA = "vtc"
"""Key of a flow's metadata under which its report is kept, as plain data."""


class VirtualToolCalling:
    """Rewrites tool calls between LLM clients and model servers."""

    def __init__(self) -> None:
        self._planner: Planner | None = None
        self._exchanges: WeakKeyDictionary[http.HTTPFlow, Exchange] = WeakKeyDictionary()

    def load(self, loader: Loader) -> None:
        options.add(loader)

    def configure(self, updated: set[str]) -> None:
        if any(name.startswith("vtc_") for name in updated):
            self._planner = options.planner()

    # The request

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if ctx.options.vtc_mode == "rewrite" and self._api(flow):
            # A reply that cannot be decoded could not be read; clients take identity as they take any other.
            flow.request.headers["accept-encoding"] = "identity"

    def request(self, flow: http.HTTPFlow) -> None:
        api = self._api(flow)
        if api is None or self._planner is None or ctx.options.vtc_mode == "off":
            return
        headers = {name.lower(): value for name, value in flow.request.headers.items()}
        facts = Facts(
            user_agent=headers.get("user-agent", ""),
            host=flow.request.pretty_host,
            path=flow.request.path,
            headers=headers,
        )
        try:
            body = flow.request.content  # decoded; raises ValueError if its content-encoding is wrong
            if body is None:
                raise BadRequest("the body is streamed")
            if len(body) > ctx.options.vtc_max_body_bytes:
                raise BadRequest(f"the body is longer than vtc_max_body_bytes ({len(body)} bytes)")
            exchange = Exchange.open(api, body, facts, self._planner, flow.id)
            rewritten = exchange.request()
        except ValueError as error:
            self._say(flow, {"request": [f"left alone: {error}"]}, f"vtc: left alone: {error}")
            return
        for line in exchange.plan.why:
            logger.debug("vtc: %s", line)
        if rewritten != body and ctx.options.vtc_mode == "rewrite":
            flow.request.content = rewritten
        self._exchanges[flow] = exchange

    def _api(self, flow: http.HTTPFlow) -> apis.Api | None:
        return apis.find(flow.request.method, flow.request.path)

    # The reply

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        exchange, response = self._exchanges.get(flow), flow.response
        if exchange is None or response is None or not (200 <= response.status_code < 300):
            return
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
            return
        if not exchange.reads:
            response.stream = True
            return
        try:
            stream = exchange.stream(response.headers.get("content-encoding", ""))
        except UnsupportedEncoding as error:
            exchange.report.failures.append(str(error))
            response.stream = True
            return
        if ctx.options.vtc_mode == "observe":
            response.stream = _observing(stream)
            return
        response.headers.pop("content-encoding", None)
        if response.headers.pop("content-length", None) is not None and response.http_version == "HTTP/1.1":
            response.headers["transfer-encoding"] = "chunked"
        response.stream = _rewriting(stream)

    def response(self, flow: http.HTTPFlow) -> None:
        exchange, response = self._exchanges.get(flow), flow.response
        if exchange is None or response is None:
            return
        if exchange.reads and not response.stream and 200 <= response.status_code < 300:
            self._whole(exchange, response)
        self._close(flow)

    def _whole(self, exchange: Exchange, response: http.Response) -> None:
        try:
            body = response.content
        except ValueError as error:
            exchange.report.failures.append(f"the body cannot be decoded: {error}")
            return
        if not body:
            return
        if len(body) > ctx.options.vtc_max_body_bytes:
            exchange.report.failures.append(f"the reply is longer than vtc_max_body_bytes ({len(body)} bytes)")
            return
        rewritten = exchange.body(body)
        if rewritten != body and ctx.options.vtc_mode == "rewrite":
            response.content = rewritten

    def error(self, flow: http.HTTPFlow) -> None:
        self._close(flow)

    def _close(self, flow: http.HTTPFlow) -> None:
        exchange = self._exchanges.pop(flow, None)
        if exchange is not None:
            summary = exchange.report.summary()
            if summary and ctx.options.vtc_mode == "observe":
                summary = summary.replace("vtc: ", "vtc (observing): ", 1)
            self._say(flow, exchange.report.as_dict(), summary)

    def _say(self, flow: http.HTTPFlow, report: dict[str, object], summary: str) -> None:
        flow.metadata[METADATA] = report
        if summary:
            flow.comment = summary
            flow.marked = MARK
            logger.info("%s %s%s", summary, flow.request.pretty_host, flow.request.path.partition("?")[0])


def _rewriting(stream: Stream) -> Callable[[bytes], list[bytes]]:
    def rewrite(chunk: bytes) -> list[bytes]:
        return stream.feed(chunk) if chunk else stream.finish()

    return rewrite


def _observing(stream: Stream) -> Callable[[bytes], list[bytes]]:
    def observe(chunk: bytes) -> list[bytes]:
        if not chunk:
            stream.finish()
            return []
        stream.feed(chunk)
        return [chunk]

    return observe
