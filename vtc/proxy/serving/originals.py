"""Store messages as received, to build each request to a server from them and to restore them after a fault."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from mitmproxy import http

from vtc.apis.place import BEARER
from vtc.exchange.target import KEY_HEADERS, find_key
from vtc.proxy import flows
from vtc.proxy.flows import METADATA
from vtc.scrub import split_query

type HeaderFields = tuple[tuple[bytes, bytes], ...]

CHANGED_HEADERS = "vtc_headers"
"""Metadata key of the headers that VTC changed, with their received values (None: absent)."""
QUERY_FIELD = "?"
"""Entry for the keys in the query among these headers."""
KEY_PLACEHOLDER = "\0"
"""Placeholder of the key in metadata, which must hold no secrets; the request still has the key in another header."""


class OriginalRequest(NamedTuple):
    """A request as it was received."""

    method: str
    path: str
    """With its query."""
    headers: HeaderFields
    body: bytes | None

    @classmethod
    def of(cls, request: http.Request) -> OriginalRequest:
        """Record a request."""
        return cls(request.method, request.path, request.headers.fields, request.raw_content)

    def restore(self, flow: http.HTTPFlow) -> None:
        """Restore this request in a flow."""
        request = flow.request
        request.method, request.path = self.method, self.path
        request.headers.fields = self.headers
        request.raw_content = self.body
        for key in (flows.ASKED_PATH, CHANGED_HEADERS):
            flow.metadata.pop(key, None)

    def record_changes(self, flow: http.HTTPFlow) -> None:
        """Record in the metadata of a flow the received values of headers that changed."""
        received, sent = http.Headers(self.headers), flow.request.headers
        key = find_key(sent)
        changed: dict[str, str | None] = {}
        for name in {name.lower() for name in (*received, *sent)} - {"content-length"}:
            if (value := received.get(name)) == sent.get(name):
                continue
            if value and (name in KEY_HEADERS or name == BEARER):
                value = value.replace(key, KEY_PLACEHOLDER) if key and key in value else None
            changed[name] = value
        if key:
            credentials = [part.partition("=")[::2] for part in split_query(self.path.partition("?")[2])[1]]
            moved = [f"{name}={KEY_PLACEHOLDER}" for name, value in credentials if unquote_plus(value) == key]
            if moved:
                changed[QUERY_FIELD] = "&".join(moved)
        if changed:
            flow.metadata[CHANGED_HEADERS] = changed


class OriginalReply(NamedTuple):
    """A reply as it was received so far."""

    status: int
    reason: str
    headers: HeaderFields
    body: bytes | None

    @classmethod
    def of(cls, response: http.Response) -> OriginalReply:
        """Record a reply."""
        return cls(response.status_code, response.reason, response.headers.fields, response.raw_content)

    def restore(self, response: http.Response) -> None:
        """Restore status, headers and body in a response."""
        response.status_code, response.reason = self.status, self.reason
        response.headers.fields = self.headers
        response.raw_content = self.body


def restore_received(flow: http.HTTPFlow) -> None:
    """Restore a replayed flow to the state in which it was received, so that it is processed again."""
    request = flow.request
    received = flow.metadata.pop(flows.RECEIVED_BODY["request"], None)
    if isinstance(received, bytes):
        request.content = received
    flows.restore_path(flow)
    key = find_key(request.headers)
    for name, value in (flow.metadata.pop(CHANGED_HEADERS, None) or {}).items():
        if name == QUERY_FIELD:
            request.path += f"{'&' if '?' in request.path else '?'}{value.replace(KEY_PLACEHOLDER, quote_plus(key))}"
        elif value is None or (KEY_PLACEHOLDER in value and not key):  # the key was lent and has been removed
            request.headers.pop(name, None)
        else:
            request.headers[name] = value.replace(KEY_PLACEHOLDER, key)
    for metadata in (METADATA, flows.RECEIVED_BODY["reply"]):
        flow.metadata.pop(metadata, None)
    flows.annotate(flow, "", "")
