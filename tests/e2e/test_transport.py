"""The layers below JSON: content codings, framing, ends of streams, HTTP versions, TLS, and mitmproxy's modes."""

from __future__ import annotations

import gzip
import ssl
import zlib
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Literal

import brotli
import httpx
import pytest
from backports import zstd

from tests.apis import chat
from tests.e2e import http2, upstream
from tests.e2e.conftest import PATH, PATIENCE, Lab, Start, by_turn, make_script, running_proxy
from tests.e2e.upstream import JSON, SSE, Reply

ASK = chat.request(stream=True)
TEXT = "Let me look.\n\n<read>\n<filePath>/a</filePath>\n</read>"
CALLED = chat.Read("Let me look.", "", [("read", {"filePath": "/a"})], [], "tool_calls")
STREAM = chat.make_stream(*TEXT)
WHOLE = chat.encode_json(chat.completion(TEXT))

type Encode = Callable[[Iterable[bytes]], list[bytes]]


# Content codings: a server can compress although it was asked not to, and flushes each event.


def encode_gzip(pieces: Iterable[bytes]) -> list[bytes]:
    encoder = zlib.compressobj(wbits=31)
    return [*(encoder.compress(piece) + encoder.flush(zlib.Z_SYNC_FLUSH) for piece in pieces), encoder.flush()]


def encode_deflate(pieces: Iterable[bytes]) -> list[bytes]:
    encoder = zlib.compressobj()
    return [*(encoder.compress(piece) + encoder.flush(zlib.Z_SYNC_FLUSH) for piece in pieces), encoder.flush()]


def encode_brotli(pieces: Iterable[bytes]) -> list[bytes]:
    encoder = brotli.Compressor()
    return [*(encoder.process(piece) + encoder.flush() for piece in pieces), encoder.finish()]


def encode_zstd(pieces: Iterable[bytes]) -> list[bytes]:
    encoder = zstd.ZstdCompressor()
    return [*(encoder.compress(piece, encoder.FLUSH_BLOCK) for piece in pieces), encoder.flush()]


CODINGS: dict[str, Encode] = {"gzip": encode_gzip, "deflate": encode_deflate, "br": encode_brotli, "zstd": encode_zstd}


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_encoded_stream_is_decoded(coding: str, start: Start) -> None:
    lab = await start(Reply(CODINGS[coding](STREAM), {**SSE, "content-encoding": coding}))
    answer = await lab.post(ASK, headers={"accept-encoding": coding})
    assert lab.upstream.seen[0].headers["accept-encoding"] == "identity"
    assert "content-encoding" not in answer.headers
    assert answer.message == CALLED


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_encoded_body_is_decoded(coding: str, start: Start) -> None:
    """The rewritten reply has the coding that its header states."""
    lab = await start(Reply(CODINGS[coding]([WHOLE]), {**JSON, "content-encoding": coding}))
    response = await lab.client.post(PATH, json=chat.request())
    assert response.headers.get("content-encoding") in (coding, None)
    assert chat.read(response.content) == CALLED


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_encoded_body_without_calls_is_byte_identical(coding: str, start: Start) -> None:
    pieces = CODINGS[coding]([chat.encode_json(chat.completion("Hello"))])
    lab = await start(Reply(pieces, {**JSON, "content-encoding": coding}))
    answer = await lab.post(chat.request())
    assert (answer.headers["content-encoding"], answer.body) == (coding, b"".join(pieces))


@pytest.mark.parametrize("headers", [SSE, JSON], ids=["streamed", "whole"])
async def test_an_unknown_coding_passes(headers: dict[str, str], start: Start) -> None:
    lab = await start(Reply([b"\x01\x02", b"\x03"], {**headers, "content-encoding": "x-secret"}))
    answer = await lab.post(ASK)
    assert (answer.headers["content-encoding"], answer.body) == ("x-secret", b"\x01\x02\x03")
    (failure,) = (await lab.report())["failures"]
    assert "x-secret" in failure


@pytest.mark.parametrize("pieces", [1, 2], ids=["in one read", "in two"])
async def test_stream_that_violates_its_content_coding(pieces: int, start: Start) -> None:
    """The decodable part arrives, the client notices that more was to follow, and the report states the reason.

    The decoder keeps the last few bytes of the read that contained the fault.
    """
    frames = [chat.ROLE, *chat.make_text_chunks(*"Hello, world")]
    good, bad = b"".join(encode_gzip(frames)[:-1]), b"\xff" * 150
    lab = await start(Reply([good + bad] if pieces == 1 else [good, bad, bad], {**SSE, "content-encoding": "gzip"}))
    received = b""
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        with suppress(httpx.RemoteProtocolError):
            async for piece in response.aiter_raw():
                received += piece
            pytest.fail("the client was not told")
    assert b"".join(frames).startswith(received)
    assert received == b"".join(frames) if pieces == 2 else len(received) > len(b"".join(frames)) // 2
    report = await lab.report()
    assert report["failures"] == []
    (error,) = report["errors"]
    assert "the server broke off: the body is not valid gzip" in error


# Framing and ends


@pytest.mark.parametrize(
    ("framing", "version"),
    [
        ("chunked", "HTTP/1.1"),
        ("length", "HTTP/1.1"),
        ("close", "HTTP/1.1"),
        ("length", "HTTP/1.0"),
        ("close", "HTTP/1.0"),
    ],
)
async def test_framings_of_a_stream(framing: Literal["chunked", "length", "close"], version: str, start: Start) -> None:
    lab = await start(Reply(STREAM, framing=framing, version=version))
    answer = await lab.post(ASK)
    assert answer.message == CALLED
    assert "content-length" not in answer.headers
    assert chat.events(answer.body)[-1] == "[DONE]"


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
async def test_line_endings(newline: bytes, start: Start) -> None:
    """Calls are read from frames with any line ending, and other frames keep theirs."""
    calling, talking = (
        [frame.replace(b"\n", newline) for frame in chat.make_stream(*text)] for text in (TEXT, "Hello")
    )
    lab = await start(by_turn(calling, talking))
    assert chat.read((await lab.post(ASK)).body.replace(newline, b"\n")) == CALLED
    assert (await lab.post(ASK)).body == b"".join(talking)


@pytest.mark.parametrize(
    "head",
    [b"\xef\xbb\xbf", b": ping\n\n", b"\n\n", b"retry: 100\n\n", b"id: 1\nevent: message\n"],
    ids=["BOM", "comment", "blank", "retry", "fields"],
)
async def test_other_lines_of_an_event_stream(head: bytes, start: Start) -> None:
    lab = await start([head, *STREAM])
    body = (await lab.post(ASK)).body
    assert body.startswith(head)
    assert chat.read(body.removeprefix(b"\xef\xbb\xbf")) == CALLED


FINISH = chat.STOP
ENDS = {
    "finish and [DONE]": [FINISH, chat.DONE],
    "finish, usage and [DONE]": [FINISH, chat.USED, chat.DONE],
    "no [DONE]": [FINISH],
    "no finish": [chat.DONE],
    "neither": [],
    "two [DONE]": [FINISH, chat.DONE, chat.DONE],
    "[DONE] without its blank line": [FINISH, b"data: [DONE]"],
    "[DONE] with other white space": [FINISH, b"data:[DONE] \n\n"],
}


@pytest.mark.parametrize("dialect", ["hermes", "tag", "invoke"])
@pytest.mark.parametrize("end", ENDS)
async def test_ends_of_a_stream(end: str, dialect: str, start: Start) -> None:
    """Whichever end a stream has, a complete call is delivered, with a matching finish reason."""
    call = chat.DIALECTS[dialect]("read", {"filePath": "/a"})
    lab = await start([chat.ROLE, *chat.make_text_chunks(*f"Go {call}"), *ENDS[end]])
    answer = await lab.post(ASK)
    assert answer.message == chat.Read("Go", "", CALLED.calls, [], "tool_calls")
    assert answer.body.count(b"[DONE]") == b"".join(ENDS[end]).count(b"[DONE]")


@pytest.mark.parametrize("end", ENDS)
async def test_ends_of_a_stream_without_calls(end: str, start: Start) -> None:
    """No byte is added, lost, or buffered forever."""
    frames = [chat.ROLE, *chat.make_text_chunks("Hi", " <read>", "<filePath>/a \n"), *ENDS[end]]
    lab = await start(frames)
    assert (await lab.post(ASK)).body == b"".join(frames)


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_stream_that_breaks_off(framing: Literal["chunked", "length"], start: Start) -> None:
    """Complete calls were delivered before; the client notices the broken connection."""
    two = "".join(chat.DIALECTS["invoke"]("read", {"filePath": path}) for path in ("/a", "/b"))
    lab = await start(Reply([chat.ROLE, *chat.make_text_chunks(*two[:-30])], framing=framing, cut=True))
    body = b""
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        with suppress(httpx.RemoteProtocolError):
            async for piece in response.aiter_raw():
                body += piece
            pytest.fail("the client was not told")
    assert chat.read(body).calls == [("read", {"filePath": "/a"})]
    flow = await lab.flow()
    assert flow.error is not None
    assert len(flow.metadata["vtc"]["calls"]) == 1


async def test_a_client_that_goes_away(start: Start) -> None:
    """The connection to the server is closed at once, and the exchange up to then is reported."""

    async def endless() -> Any:
        while True:
            for frame in chat.make_text_chunks(*TEXT):
                yield frame

    lab = await start(Reply(endless()))
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        async for _ in response.aiter_raw():
            break
    flow = await lab.flow()
    assert flow.error is not None
    assert "vtc" in flow.metadata


async def test_a_whole_reply_that_breaks_off(start: Start) -> None:
    """mitmproxy answers instead of the server."""
    lab = await start(Reply([WHOLE], JSON, framing="length", cut=True))
    assert (await lab.post(chat.request())).status == 502
    assert (await lab.report())["calls"] == []


# Replies with a wrong content type, or of another kind than requested

PASSING = {
    "error": Reply([b'{"error": {"message": "busy"}}'], JSON, 429, framing="length"),
    "error in words": Reply([b"<read>"], {"content-type": "text/html"}, 502, framing="length"),
    "error as events": Reply([*chat.make_text_chunks(TEXT), chat.DONE], SSE, 500),
    "error with a completion": Reply([WHOLE], JSON, 400, framing="length"),
    "called HTML": Reply([b"<read><filePath>/a</filePath></read>"], {"content-type": "text/html"}, framing="length"),
    "no content": Reply([], {}, 204, framing="close"),
    "a JSON value": Reply([b'"x"'], JSON, framing="length"),
    "other JSON": Reply([b'{"choices": {"a": 1}}'], JSON, framing="length"),
    "odd choices": Reply([b'{"choices": [1, {"message": 5}, {}]}'], JSON, framing="length"),
    "odd events": Reply([b"data: {\n\n", b'data: {"choices": [[]]}\n\n', b"\xff\n\n"], SSE),
    "odd chunks": Reply([b'data: {"choices": [{"index": [], "delta": {"content": "a"}}]}\n\n', *STREAM[:4]], SSE),
    "no type": Reply([b"x"], {}, framing="length"),
}


@pytest.mark.parametrize("ask", [ASK, chat.request()], ids=["streamed", "whole"])
@pytest.mark.parametrize("what", PASSING)
async def test_body_that_is_no_completion_passes(what: str, ask: dict[str, Any], start: Start) -> None:
    """They pass byte for byte, with their status."""
    reply = PASSING[what]
    lab = await start(reply)
    answer = await lab.post(ask)
    assert answer.status == reply.status
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert (await lab.report())["calls"] == []


async def test_json_though_a_stream_was_asked_for(start: Start) -> None:
    lab = await start(Reply([WHOLE], JSON, framing="length"))
    answer = await lab.post(ASK)
    assert (answer.headers["content-type"], answer.message) == ("application/json", CALLED)
    assert answer.headers["content-length"] == str(len(answer.body))


@pytest.mark.parametrize("size", [1, 9, 10_000])
async def test_json_called_a_stream(size: int, start: Start) -> None:
    pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
    lab = await start(Reply(pieces, SSE, framing="length"))
    assert (await lab.post(ASK)).message == CALLED


@pytest.mark.parametrize("type_", ["application/json", "text/plain", "TEXT/Event-Stream; charset=utf-8"])
async def test_a_stream_by_another_name(type_: str, start: Start) -> None:
    lab = await start(Reply(STREAM, {"content-type": type_}))
    answer = await lab.post(ASK)
    assert (answer.headers["content-type"], answer.message) == (type_, CALLED)


async def test_long_reply_is_ignored(start: Start) -> None:
    small = chat.request(tools=[chat.READ])
    assert len(chat.encode_json(small)) < len(WHOLE)
    lab = await start(Reply([WHOLE], JSON, framing="length"), vtc_max_body_bytes=len(WHOLE) - 1)
    assert (await lab.post(small)).body == WHOLE
    (failure,) = (await lab.report())["failures"]
    assert f"longer than vtc_max_body_bytes ({len(WHOLE)} bytes)" in failure


# HTTP versions, TLS, modes


@pytest.mark.parametrize(
    ("client", "server"),
    [
        ("http", "HTTP/1.1 with TLS"),
        ("https", "HTTP/1.1"),
        ("https", "HTTP/1.1 with TLS"),
        ("HTTP/2 with TLS", "HTTP/1.1"),
        ("HTTP/2 with TLS", "HTTP/2 with TLS"),
    ],
)
async def test_http_versions_and_tls(
    client: str,
    server: str,
    confdir: Path,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    newer_tls: ssl.SSLContext,
) -> None:
    """Replies are streamed with and without a length, and whole. (mitmproxy uses HTTP/2 to the server only if the
    client does.)
    """
    replies = iter([Reply(STREAM), Reply(STREAM, framing="length"), Reply([WHOLE], JSON)])
    script = make_script(lambda _: next(replies))
    newer = "HTTP/2" in client, "HTTP/2" in server
    async with AsyncExitStack() as stack:
        if newer[1]:
            model = await stack.enter_async_context(http2.serving(script, server_tls))
        else:
            tls = server_tls if "TLS" in server else None
            model = await stack.enter_async_context(upstream.serving(script, tls))
        proxy = await stack.enter_async_context(
            running_proxy(confdir, mode=[f"reverse:{model.url}"], ssl_insecure=True)
        )
        base = proxy.url if client == "http" else proxy.url.replace("http:", "https:")
        verify = newer_tls if newer[0] else client_tls
        user = httpx.AsyncClient(base_url=base, http2=newer[0], verify=verify, trust_env=False, timeout=PATIENCE)
        lab = Lab(proxy, model, await stack.enter_async_context(user))
        for ask in (ASK, ASK, chat.request()):
            assert (await lab.post(ask)).message == CALLED
            flow = await lab.flow()
            assert flow.response is not None
            assert (flow.request.is_http2, flow.response.is_http2) == newer


async def test_an_empty_data_frame_loses_nothing(start_http2: Start) -> None:
    """mitmproxy treats it as the end of the body, although frames can follow."""
    lab = await start_http2(
        [
            chat.ROLE,
            *chat.make_text_chunks("a <re"),
            b"",
            *chat.make_text_chunks("ad> b"),
            b"",
            chat.STOP,
            chat.DONE,
            b"",
        ]
    )
    assert (await lab.post(ASK)).message == chat.Read("a <read> b", finish_reason="stop")


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
async def test_as_a_regular_proxy(
    tls: bool, confdir: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """The proxy is set as HTTP_PROXY or HTTPS_PROXY, for a client whose base URL cannot be changed."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(upstream.serving(lambda _: Reply(STREAM), server_tls if tls else None))
        proxy = await stack.enter_async_context(running_proxy(confdir, ssl_insecure=True))
        client = httpx.AsyncClient(
            base_url=model.url, proxy=proxy.url, verify=client_tls, trust_env=False, timeout=PATIENCE
        )
        lab = Lab(proxy, model, await stack.enter_async_context(client))
        assert (await lab.post(ASK)).message == CALLED


async def test_no_model_server(confdir: Path, unused_tcp_port: int) -> None:
    """The request was rewritten, and the report states that, although no server received it."""
    mode = [f"reverse:http://127.0.0.1:{unused_tcp_port}"]
    async with running_proxy(confdir, mode=mode, connection_strategy="lazy", vtc_tools="prompt") as proxy:
        async with httpx.AsyncClient(base_url=proxy.url, trust_env=False, verify=False, timeout=PATIENCE) as client:
            assert (await client.post(PATH, json=ASK)).status_code == 502
        flow = proxy.flows.ended.get_nowait()
        assert flow.metadata["vtc"]["request"] == ["3 tools -> tag prompt"]


async def test_bodies_that_mitmproxy_streams(start: Start) -> None:
    """A request that is streamed past the addons cannot be rewritten, and passes unchanged."""
    lab = await start(STREAM, stream_large_bodies="10", vtc_tools="prompt")
    answer = await lab.post(ASK)
    assert answer.body == b"".join(STREAM)
    assert lab.upstream.seen[0].json == ASK
    assert "streamed" in (await lab.report())["notes"][0]


async def test_streamed_bodies_are_stored_as_they_were_sent(start: Start) -> None:
    """With `store_streamed_bodies` mitmweb shows the bytes that the client got."""
    lab = await start(STREAM, store_streamed_bodies=True)
    answer = await lab.post(ASK)
    flow = await lab.flow()
    assert flow.response is not None
    assert flow.response.raw_content == answer.body


async def test_gzip_from_a_server_that_flushes_nothing(start: Start) -> None:
    """The whole stream is decoded at its end."""
    lab = await start(Reply([gzip.compress(b"".join(STREAM))], {**SSE, "content-encoding": "gzip"}, framing="length"))
    assert (await lab.post(ASK)).message == CALLED
