"""No exchange blocks the others for long, because it processes little at once."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import pytest
from mitmproxy import http

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE, Http2TlsContext, Lab, Start
from tests.e2e.policies import BROKEN, write_policy
from tests.e2e.upstream import JSON, SSE, Reply, Seen
from vtc.proxy.serving.connections import MAX_READ_BYTES
from vtc.proxy.serving.whole_reply import LONG_BODY_BYTES
from vtc.wire import ContentDecoder, make_decoder


class Sizes:
    """A mitmproxy addon that records the sizes of the chunks that VTC's addon gets."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        assert flow.response
        rewrite: Callable[[bytes], Any] = flow.response.stream  # type: ignore[assignment]

        def note_size(chunk: bytes) -> Any:
            self.seen.append(len(chunk))
            return rewrite(chunk)

        flow.response.stream = note_size


@pytest.mark.rest
@pytest.mark.parametrize("framing", ["length", "close"])
async def test_long_reply_is_read_in_small_pieces(framing: Any, start: Start) -> None:
    """Between two chunks the event loop serves all other connections."""
    frames = chat.make_stream(
        "Go.\n", *["It is a long way. "] * 20_000, chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
    )
    lab = await start(Reply([b"".join(frames)], SSE, framing=framing))
    sizes = Sizes()
    lab.proxy.master.addons.add(sizes)
    answer = await lab.post(chat.request(stream=True))
    assert answer.message.calls == [("read", {"filePath": "/a"})]
    assert sum(sizes.seen) == len(b"".join(frames))
    assert max(sizes.seen) <= 2 * MAX_READ_BYTES


class Gate(ThreadPoolExecutor):
    """A thread pool in which one piece of work waits until the gate is opened."""

    def __init__(self) -> None:
        super().__init__(2)
        self.holds_next = False
        self.holds = asyncio.Event()
        self.open = threading.Event()

    def submit[T](self, work: Callable[..., T], /, *args: Any, **more: Any) -> Future[T]:
        def later() -> T:
            self.open.wait(PATIENCE)
            return work(*args, **more)

        if not self.holds_next:
            return super().submit(work, *args, **more)
        self.holds_next = False
        self.holds.set()
        return super().submit(later)


CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
LONG_TEXT = "It is a long way.\n" * (LONG_BODY_BYTES // 18 + 1)
AS_EVENTS = Reply([b"".join(chat.make_stream(LONG_TEXT, CALL))], SSE)
AS_JSON = Reply([chat.encode_json(chat.completion(LONG_TEXT + CALL))], JSON, framing="length")
OF_BROKEN = Reply([chat.encode_json(chat.completion(LONG_TEXT + BROKEN))], JSON, framing="length")
SHORT = Reply([chat.encode_json(chat.completion(BROKEN))], JSON, framing="length")
REFUSAL = Reply([b'{"error": {"message": "image input is not supported by this model"}}'], JSON, 400, framing="length")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def asking(*parts: Any, **fields: Any) -> Any:
    return chat.request(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}, *parts]}], **fields)


REPLIES = {
    "after a refusal, events": [REFUSAL, AS_EVENTS],
    "after a refusal, JSON": [REFUSAL, AS_JSON],
    "of which nothing is asked": [AS_JSON],
    "that is asked about": [OF_BROKEN, AS_JSON],
    "to what was asked": [SHORT, AS_JSON],
}


@pytest.mark.parametrize("replies", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_another_exchange_ends_while_a_long_reply_is_dealt_with(
    stream: bool, replies: list[Reply], start: Start, tmp_path: Path
) -> None:
    """This holds however often the server was asked before that reply."""
    pending = [*replies]

    gate = Gate()

    def script(seen: Seen) -> Reply:
        if b"another" in seen.body:
            return Reply(chat.make_stream("Well.\n", CALL))
        reply = pending.pop(0)
        gate.holds_next = reply not in (REFUSAL, SHORT) and not gate.holds.is_set()
        return reply

    asyncio.get_running_loop().set_default_executor(gate)
    lab = await start(script, vtc_profiles=write_policy(tmp_path, retry={"max": 1}))
    try:
        first = asyncio.create_task(lab.post(asking(IMAGE, stream=stream)))
        held = asyncio.create_task(gate.holds.wait())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([first, held], return_when=asyncio.FIRST_COMPLETED)
        assert gate.holds.is_set()
        answer = await lab.post(chat.request(stream=True, user="another"))
        assert answer.message.calls == [("read", {"filePath": "/a"})]
        assert not first.done()
    finally:
        gate.open.set()
    assert (await first).message.calls == [("read", {"filePath": "/a"})]
    assert not pending


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("status", [400, 200])
async def test_an_error_that_grows_without_end_is_decoded_once_within_a_bound(
    status: int, stream: bool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown, most = [], 1 << 20
    made = make_decoder

    def counting(coding: str) -> ContentDecoder:
        decoder = made(coding)
        feed, size = decoder.feed, len(grown)
        grown.append(0)

        def count_output(data: bytes) -> bytes:
            plain = feed(data)
            grown[size] += len(plain)
            return plain

        decoder.feed = count_output  # type: ignore[method-assign]
        return decoder

    monkeypatch.setattr("vtc.wire.compression.make_decoder", counting)
    bomb = gzip.compress(b'{"error": {"message": "no such thing' + b" " * (40 << 20))
    headers = {**JSON, "content-encoding": "gzip"}
    lab = await start(Reply([bomb], headers, status, framing="length"), vtc_max_body_bytes=most)
    assert (await lab.post(chat.request(stream=stream))).status == status
    of_the_error = [size for size in grown if size]
    assert len(of_the_error) == 1
    assert of_the_error[0] < 3 * most
    if status == 400:
        assert "no such thing" in (await lab.flow()).comment


# Clients that disconnect


def working(first: Reply, asked: asyncio.Event, gone: asyncio.Event) -> Callable[[Seen], Reply]:
    """Return a server that sends its second reply only after the client has disconnected."""
    pending = [first]

    async def pieces() -> AsyncIterator[bytes]:
        asked.set()
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        while True:
            yield b" " * 1000

    return lambda seen: pending.pop() if pending else Reply(pieces(), JSON)


async def reset(lab: Lab, tls: Http2TlsContext, body: bytes, asked: asyncio.Event) -> None:
    """Send a request over HTTP/2 and reset its stream; the connection stays open."""
    port = int(lab.proxy.url.rpartition(":")[2])
    tls.set_alpn_protocols([])  # offers HTTP/2 in any case
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="127.0.0.1")
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    pseudo = {":method": "POST", ":path": PATH, ":scheme": "https", ":authority": "127.0.0.1"}
    connection.send_headers(1, [*pseudo.items(), ("content-type", "application/json")])
    connection.send_data(1, body, end_stream=True)
    writer.write(connection.data_to_send())
    await asked.wait()
    connection.reset_stream(1)
    writer.write(connection.data_to_send())
    async with asyncio.timeout(PATIENCE):
        await lab.upstream.gone.wait()
    writer.close()


@pytest.mark.parametrize("first", [REFUSAL, SHORT], ids=["after a refusal", "retry"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
async def test_a_second_request_ends_when_its_client_has_gone(
    version: str, first: Reply, start: Start, newer_tls: Http2TlsContext, tmp_path: Path
) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()
    lab = await start(working(first, asked, gone), vtc_profiles=write_policy(tmp_path, retry={"max": 1}))
    async with asyncio.timeout(PATIENCE):
        if version == "HTTP/2":
            asyncio.get_running_loop().call_soon(gone.set)
            await reset(lab, newer_tls, chat.encode_json(asking(IMAGE)), asked)
        else:
            client = asyncio.create_task(lab.post(asking(IMAGE)))
            await asked.wait()
            client.cancel()
            gone.set()
        await lab.upstream.gone.wait()
        await lab.next_client_flow()
    assert not lab.proxy.addon._live
