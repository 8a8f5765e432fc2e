"""The content view "VTC": a readable form of an exchange, in mitmweb, mitmproxy and mitmdump.

mitmproxy asks every view for its priority and shows the highest; the others, including the raw body, remain one click
away. A flow loaded from a file may lack a report; then only its body is shown.
"""

from __future__ import annotations

from mitmproxy import contentviews, http

from vtc.proxy.flows import METADATA, find_client_api, get_bodies, get_report
from vtc.reporting import view

PRIORITY = 2
"""Higher than the priority of mitmproxy's views for JSON and text, which is 1."""

_READABLE = ("application/json", "application/x-ndjson", "text/event-stream")


class ExchangeView(contentviews.Contentview):
    """Shows the report of an exchange, and its conversation as received next to as sent."""

    @property
    def name(self) -> str:
        return "VTC"

    def render_priority(self, data: bytes, metadata: contentviews.Metadata) -> float:
        flow = metadata.flow
        if not isinstance(flow, http.HTTPFlow) or find_client_api(flow) is None or not data:
            return -1
        if METADATA in flow.metadata and metadata.http_message is flow.request:
            return PRIORITY
        kind = (metadata.content_type or "").partition(";")[0].strip().lower()
        failed = metadata.http_message is flow.response and flow.response and flow.response.status_code >= 400
        return PRIORITY if kind in _READABLE and not failed else 0

    def prettify(self, data: bytes, metadata: contentviews.Metadata) -> str:
        flow = metadata.flow
        api = find_client_api(flow) if isinstance(flow, http.HTTPFlow) else None
        if api is None or not isinstance(flow, http.HTTPFlow):
            raise ValueError("this is not an exchange with a model")
        side: view.Side = "request" if metadata.http_message is flow.request else "reply"
        bodies = get_bodies(flow, side, data) or view.Bodies(None, data)
        text = view.render_pane(api, side, bodies, get_report(flow), flow.comment)
        # mitmweb renders empty lines without height.
        return "\n".join(line or " " for line in text.split("\n"))


def register() -> None:
    """Register the view with mitmproxy, once."""
    if ExchangeView().name not in contentviews.registry:
        contentviews.add(ExchangeView)
