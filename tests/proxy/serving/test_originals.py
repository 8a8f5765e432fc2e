"""Each request to a server, in an exchange and in its replay, is made from the request as it was received."""

from __future__ import annotations

import asyncio

import pytest
from mitmproxy import http
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import pairs
from tests.apis.shapes import SHAPES, make_request_body
from vtc.proxy.addon import VirtualToolCalling

KEY = "canary/lent+5f6a"
HEADERS: dict[str, dict[str, str]] = {
    "openai-chat": {"authorization": f"Bearer {KEY}", "openai-organization": "org"},
    "anthropic-messages": {"x-api-key": KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "a,b"},
    "openai-responses": {"authorization": f"Bearer {KEY}", "openai-beta": "responses=v1"},
    "ollama-chat": {"authorization": f"Bearer {KEY}"},
    "gemini-generate": {"x-goog-api-key": KEY, "x-goog-api-client": "genai"},
}
CASES = [(client, server, "") for client, server in pairs.PAIRS]
CASES += [("gemini-generate", server, "key=canary%2Flent%2B5f6a") for server in pairs.NAMES]


def summarize_request(request: http.Request) -> tuple[object, ...]:
    return request.method, request.path, sorted(request.headers.items()), request.content


@pytest.mark.parametrize("replayed", ["itself", "copy"])
@pytest.mark.parametrize(("client", "server", "query"), CASES)
def test_a_replay_begins_with_the_request_as_it_was_received(
    client: str, server: str, query: str, replayed: str
) -> None:
    """Path, query, headers and body are those of the original request, also if the server has another API."""
    path = f"{SHAPES[client].build_path()}?a=b{'&' if query else ''}{query}"
    headers = {"user-agent": "Agent/1", "accept-encoding": "gzip", **({} if query else HEADERS[client])}
    headers["content-length"] = str(len(make_request_body(client)))
    ask = tutils.treq(
        method=b"POST",
        path=path.encode(),
        headers=http.Headers([(name.encode(), value.encode()) for name, value in headers.items()]),
        content=make_request_body(client),
    )
    flow = tflow.tflow(req=ask)
    as_received = path, {**dict(ask.headers), "accept-encoding": "identity"}
    addon = VirtualToolCalling()
    with taddons.context(addon) as context, asyncio.Runner() as runner:
        context.configure(addon, vtc_mode="rewrite", vtc_keep_bodies="on", vtc_upstream_api=server)
        runner.run(addon.request(flow))
        first = summarize_request(flow.request)
        assert KEY not in str(flow.metadata)
        again = flow if replayed == "itself" else flow.copy()
        again.is_replay = "request"
        runner.run(addon.request(again))
        assert summarize_request(again.request) == first
        context.configure(addon, vtc_upstream_api=client)
        runner.run(addon.request(again))
    assert (again.request.path, dict(again.request.headers)) == as_received
