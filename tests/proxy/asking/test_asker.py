"""Requests to a server over HTTP: with a timeout, without a proxy, and with a key for this server only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http.client import HTTPException

import pytest

from tests.e2e.upstream import JSON, Reply, serving
from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.question import ServerQuestion


async def test_answer_contains_the_received_bytes() -> None:
    headers = {**JSON, "Server": "llama.cpp"}
    async with serving(lambda _: Reply([b'{"a": 1}'], headers, status=404, framing="length")) as upstream:
        answer = await asyncio.to_thread(Asker(f"{upstream.url}/api/").ask, ServerQuestion("/v1/models"))
        posted = await asyncio.to_thread(
            Asker(upstream.url).ask, ServerQuestion("/x", b"{}", {"anthropic-version": "1"})
        )
    get, post = upstream.seen
    assert (get.method, get.path, post.method, post.path, post.body) == ("GET", "/api/v1/models", "POST", "/x", b"{}")
    assert post.headers["anthropic-version"] == "1"
    assert (answer.status, answer.ok, answer.json, answer.body) == (404, False, None, b'{"a": 1}')
    assert answer.headers["server"] == "llama.cpp"
    assert posted.error is None


async def test_a_key_goes_to_its_server_and_redirects_are_not_followed() -> None:
    async with serving(lambda _: Reply([b"?"], JSON, framing="length")) as other:
        there = {"location": other.url}
        async with serving(lambda _: Reply([], there, status=307, framing="length")) as upstream:
            answer = await asyncio.to_thread(Asker(upstream.url, key="open-sesame").ask, ServerQuestion("/"))
    assert upstream.seen[0].headers["authorization"] == "Bearer open-sesame"
    assert (answer.status, other.seen) == (307, [])


async def forever() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.01)


async def test_an_answer_that_trickles_ends_with_its_time() -> None:
    async with serving(lambda _: Reply(forever(), JSON)) as upstream:
        answer = await asyncio.to_thread(Asker(upstream.url, seconds=0.2).ask, ServerQuestion("/"))
    assert isinstance(answer.error, TimeoutError)
    assert answer.why == "no answer within 0.2 seconds"


async def test_a_server_that_hangs_up_broke_the_connection() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        answer = await asyncio.to_thread(Asker(url).ask, ServerQuestion("/"))
    assert isinstance(answer.error, ConnectionError)


@pytest.mark.parametrize(
    ("error", "message"), [(HTTPException("?"), "HTTP"), (OSError(1, "not permitted"), "not perm")]
)
def test_why_there_is_no_answer_is_for_people(error: OSError | HTTPException, message: str) -> None:
    assert message in ServerAnswer(error=error).why
