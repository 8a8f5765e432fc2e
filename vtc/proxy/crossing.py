"""A request on its way to a server of another API: its path and its headers."""

from __future__ import annotations

from mitmproxy import http

from vtc.apis import Api
from vtc.proxy.flows import CAME_TO

ANTHROPIC = "anthropic-messages"
VERSION = "2023-06-01"
"""The version of Anthropic's API that is spoken, which its servers want to be told."""


def redirect(flow: http.HTTPFlow, client: Api, server: Api, path: str = "") -> None:
    """Send a flow to where the server has its API: at `path`, or beside where the client's would be."""
    request = flow.request
    flow.metadata[CAME_TO] = request.path
    asked, _, query = request.path.partition("?")
    asked = asked.rstrip("/")
    kept = "&".join(one for one in query.split("&") if one and not one.startswith("beta="))  # Anthropic's own
    base = asked[: -len(client.path)] if asked.casefold().endswith(client.path) else ""
    went = path or f"{base.removesuffix(client.version)}{server.version}{server.path}"
    request.path = f"{went}?{kept}" if kept else went
    headers = request.headers
    for name in [name for name in headers if name.lower().startswith(("anthropic-", "openai-"))]:
        del headers[name]
    key = headers.pop("x-api-key", None)
    if server.name == ANTHROPIC:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if key is None and scheme.lower() == "bearer" and token:
            key = token
            del headers["authorization"]
        headers["anthropic-version"] = VERSION
        if key:
            headers["x-api-key"] = key
    elif key and "authorization" not in headers:
        headers["authorization"] = f"Bearer {key}"
