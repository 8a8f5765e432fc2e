"""Requests that mitmproxy's client replay sends again, to a real server."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mitmproxy import ctx, http
from mitmproxy.test import tflow

from tests.e2e.conftest import running_proxy
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.exchange import NoAnswer
from vtc.proxy.serving import whole_reply
from vtc.proxy.serving.follow_up import FollowUpRequests


def flow_to(url: str) -> http.HTTPFlow:
    """Return a flow that has a reply."""
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
    ("reply", "message"),
    [
        (Reply([b"no"], JSON, status=429, framing="length"), "the server answered 429"),
        (Reply([b"no"], JSON, framing="length", cut=True), "."),
        (Reply([b"no"], {**JSON, "content-encoding": "gzip"}, framing="length"), "cannot be decoded"),
        (Reply([b"x" * 1001], JSON, framing="length"), "longer than vtc_max_body_bytes"),
    ],
)
async def test_no_answer(reply: Reply, message: str, tmp_path: Path) -> None:
    async with serving(lambda _: reply) as upstream, running_proxy(tmp_path, mode=["regular"]):
        ctx.options.vtc_max_body_bytes = 1000
        steps = whole_reply.ask_server(FollowUpRequests(flow_to(upstream.url), 20), b"{}")
        with pytest.raises(NoAnswer, match=message):
            steps.send(await next(steps)())


async def test_nobody_there_and_nobody_who_answers(tmp_path: Path) -> None:
    async def read_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(lambda _: Reply()) as upstream:
        gone = upstream.url
    async with running_proxy(tmp_path, mode=["regular"]):
        with pytest.raises(NoAnswer, match=r"."):
            await FollowUpRequests(flow_to(gone), 20)(b"{}")
        async with await asyncio.start_server(read_only, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NoAnswer, match="no reply within 0 s"):
                await FollowUpRequests(flow_to(f"http://127.0.0.1:{port}"), 0)(b"{}")


# Garbage collections during long work


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Set Python's default thresholds, whichever the tests run with."""
    before, usual = gc.get_threshold(), (700, 10, 10)
    gc.freeze()  # a full collection needs a quarter more objects than exist
    gc.set_threshold(*usual)
    yield usual
    gc.set_threshold(*before)


def collected_meanwhile(work: Callable[[], object]) -> set[int]:
    """Do the work; return the generations that were collected during it."""
    generations = set[int]()

    def note(_: str, about: dict[str, int]) -> None:
        generations.add(about["generation"])

    gc.callbacks.append(note)
    try:
        work()
    finally:
        gc.callbacks.remove(note)
    return generations


def make_objects() -> int:
    return len([[i] for i in range(200_000)])


def test_no_full_collection_stops_threads_during_long_work(thresholds: tuple[int, int, int]) -> None:
    async def session() -> set[int]:
        return await whole_reply.run_work(lambda: collected_meanwhile(make_objects), in_thread=True)

    assert collected_meanwhile(make_objects) == {0, 1, 2}
    assert asyncio.run(session()) == {0, 1}
    assert gc.get_threshold() == thresholds


def test_full_collections_are_not_put_off_for_ever(thresholds: tuple[int, int, int]) -> None:
    now = 0.0
    collections = whole_reply.FullCollections(lambda: now)
    with collections.postpone():
        with collections.postpone():
            assert gc.get_threshold() != thresholds
        assert gc.get_threshold() != thresholds
        now = 2 * whole_reply.MAX_POSTPONED_SECONDS
        with collections.postpone():
            assert gc.get_threshold() == thresholds
    assert gc.get_threshold() == thresholds
