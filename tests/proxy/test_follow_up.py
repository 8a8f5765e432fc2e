"""A request sent again by mitmproxy's own client replay, to a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from mitmproxy import ctx, http
from mitmproxy.test import tflow

from tests.e2e.conftest import running_proxy
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.exchange import NoAnswer
from vtc.proxy import whole_reply
from vtc.proxy.follow_up import FollowUpRequests


def flow_to(url: str) -> http.HTTPFlow:
    """A flow whose reply is there."""
    request = http.Request.make("POST", f"{url}/v1/chat/completions", b"{}", {"authorization": "Bearer sk-1"})
    return tflow.tflow(req=request, resp=True)


async def test_the_same_request_with_another_body(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        return Reply([b"again"], JSON, framing="length")

    async with serving(script) as upstream, running_proxy(tmp_path, mode=[f"reverse:{upstream.url}"]) as proxy:
        flow = flow_to(upstream.url)
        flow.metadata["vtc"], flow.comment = {"x": 1}, "mine"
        asker = FollowUpRequests(flow, 20)
        response = await asker(json.dumps({"é": 1}).encode())
        assert response.raw_content == b"again"
        (seen,) = upstream.seen
        assert (seen.json, seen.headers["authorization"]) == ({"é": 1}, "Bearer sk-1")
        assert (flow.metadata, flow.comment, flow.request.content) == ({"vtc": {"x": 1}}, "mine", b"{}")
        shown = await proxy.flows.ended.get()
        assert (shown.is_replay, shown.metadata, shown.comment) == ("request", {"vtc.again": flow.id}, "")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply([b"no"], JSON, status=429, framing="length"), "upstream answered 429"),
        (Reply([b"no"], JSON, framing="length", cut=True), "."),
        (Reply([b"no"], {**JSON, "content-encoding": "gzip"}, framing="length"), "cannot be decoded"),
        (Reply([b"x" * 1001], JSON, framing="length"), "longer than vtc_max_body_bytes"),
    ],
)
async def test_no_answer(reply: Reply, told: str, tmp_path: Path) -> None:
    async with serving(lambda _: reply) as upstream, running_proxy(tmp_path, mode=["regular"]):
        ctx.options.vtc_max_body_bytes = 1000
        steps = whole_reply.ask_server(FollowUpRequests(flow_to(upstream.url), 20), b"{}")
        with pytest.raises(NoAnswer, match=told):
            steps.send(await next(steps)())


async def test_nobody_there_and_nobody_who_answers(tmp_path: Path) -> None:
    async with serving(lambda _: Reply()) as upstream:
        gone = upstream.url
    async with running_proxy(tmp_path, mode=["regular"]):
        with pytest.raises(NoAnswer, match=r"."):
            await FollowUpRequests(flow_to(gone), 20)(b"{}")
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NoAnswer, match="no reply within 0 s"):
            await FollowUpRequests(flow_to(f"http://127.0.0.1:{port}"), 0)(b"{}")
        server.close()
