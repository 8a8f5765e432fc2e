"""Failing servers, networks and clients: the client receives a correct reply, or exactly the bytes that were sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE, Lab, Start, by_turn
from tests.e2e.test_transport import CODINGS
from tests.e2e.upstream import JSON, SSE, Reply
from tests.exchanges import open_session
from vtc.wire import make_decoder

ASK = chat.request(stream=True)
TEXTS = [
    "Let me",
    " look.\n\n",
    '<tool_call>\n{"name": ',
    '"read", "arguments": {"filePath": "/a"}}\n</tool_',
    "call>",
    "\nDone",
    " it.",
]
STREAM = chat.make_stream(*TEXTS)
CALL = ("read", {"filePath": "/a"})
CALLED = chat.Read("Let me look.\nDone it.", "", [CALL], [], "tool_calls")
PLAIN = chat.make_stream("Let me", " look at <b>", " this `<read>", "<filePath>` and", " ```\n", "that\n```", " é😀")


async def receive_stream(lab: Lab, body: Any = ASK) -> tuple[bytes, bool]:
    """Return the received bytes of a reply, and True if the client noticed that the reply was incomplete."""
    body_ = b""
    async with lab.client.stream("POST", PATH, json=body) as response:
        try:
            async for piece in response.aiter_raw():
                body_ += piece
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return body_, True
    return body_, False


def expect_output(pieces: Iterable[bytes], end: Literal["open", "clean", "broken"]) -> bytes:
    """Return the bytes that VTC sends for these pieces; possible markup of a stream that is open stays buffered."""
    stream = open_session().stream()
    ends = {"open": list, "clean": stream.finish, "broken": lambda: stream.break_off("it broke off")}
    out = [piece for chunk in pieces for piece in stream.feed(chunk)]
    return b"".join([*out, *ends[end]()])


def same(body: bytes) -> bytes:
    """Remove ids that differ between exchanges."""
    return re.sub(rb'"call_[0-9a-f]{24}"', b'"call_"', body)


def read_dispatched(body: bytes) -> chat.Read:
    """Parse a reply as the standard requires, which drops an event without a blank line after it."""
    return chat.read(body[: body.rfind(b"\n\n") + 2])


def places(frames: Sequence[bytes]) -> list[list[bytes]]:
    """Return the stream up to the end of each frame, and up to the middle of each frame."""
    whole = [list(frames[:end]) for end in range(len(frames) + 1)]
    return [*whole, *([*frames[:end], frames[end][: len(frames[end]) // 2]] for end in range(len(frames)))]


# The server breaks off


@pytest.mark.rest
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_it_closes_at_any_place(framing: Literal["chunked", "length", "close"], start: Start) -> None:
    """All received text is sent, as calls or text. If only the end of the connection ends the body, it is complete."""
    ends = framing == "close"
    cuts = [pieces for frames in (STREAM, PLAIN) for pieces in places(frames)]
    lab = await start(by_turn(*(Reply(pieces, framing=framing, cut=not ends) for pieces in cuts)))
    for pieces in cuts:
        body, is_incomplete = await receive_stream(lab)
        assert is_incomplete == (not ends)
        assert same(body) == same(expect_output(pieces, "clean" if ends else "broken"))
        received, expected = read_dispatched(b"".join(pieces)), read_dispatched(body)
        assert expected.calls == [CALL] or received.content == expected.content
        assert (
            expected.finish_reason
            == (received.finish_reason and "tool_calls" if expected.calls else received.finish_reason)
            or ends
        )
        if ends:
            reasons = {"the reply ended without a reason"} if not received.finish_reason else set()
            assert {*(await lab.report())["errors"]} <= reasons
        else:
            assert (await lab.flow()).marked == ":x:"
    assert not lab.proxy.addon._live


async def test_it_resets_the_connection_at_any_place(start: Start) -> None:
    """Bytes in transit can be lost, and the client notices the error; the received part is correct."""
    cuts = places(STREAM)
    lab = await start(by_turn(*(Reply(pieces, cut="reset") for pieces in cuts)))
    for pieces in cuts:
        with suppress(httpx.HTTPError):
            body, is_incomplete = await receive_stream(lab)
            if body.startswith(b"data"):  # else mitmproxy answers, because the head is lost, too
                assert is_incomplete
                received, expected = read_dispatched(b"".join(pieces)), read_dispatched(body)
                assert expected.calls == [CALL] or received.content.startswith(expected.content)
    for _ in cuts:
        report = await lab.report()
        assert report["failures"] == []
    assert not lab.proxy.addon._live


async def test_it_resets_the_connection_after_much_at_once(start: Start) -> None:
    """All bytes that arrived before the reset are sent, even if there are more than one read returns."""
    frames = chat.make_stream(*(f"This is line {number}.\n" for number in range(250)))[:-1]
    lab = await start(lambda _: Reply([b"".join(frames)], cut="reset"))
    body, is_incomplete = await receive_stream(lab)
    assert is_incomplete
    assert body == expect_output(frames, "broken")


async def test_it_stalls_at_any_place(start: Start) -> None:
    """All decided text is sent, and when the client disconnects, the connection to the server is closed."""
    cuts = places(STREAM)
    departures = asyncio.Semaphore(0)

    async def stalling(pieces: list[bytes]) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        try:
            await asyncio.Event().wait()
        finally:
            departures.release()

    lab = await start(by_turn(*(Reply(stalling(pieces)) for pieces in cuts)))
    for pieces in cuts:
        wanted, body = same(expect_output(pieces, "open")), b""
        async with asyncio.timeout(PATIENCE), lab.client.stream("POST", PATH, json=ASK) as response:
            if wanted:
                async for piece in response.aiter_raw():
                    body += piece
                    if len(same(body)) >= len(wanted):
                        break
        assert same(body) == wanted
        flow = await lab.flow()
        assert flow.error is not None
    assert not lab.proxy.addon._live


async def test_it_resets_one_stream_of_http2(start_http2: Start) -> None:
    """The connection and its next exchange continue."""
    cuts = places(STREAM)[1:]
    lab = await start_http2(by_turn(*(Reply(pieces, cut=True) for pieces in cuts), Reply(STREAM)))
    for pieces in cuts:
        body, is_incomplete = await receive_stream(lab)
        assert is_incomplete
        assert same(expect_output(pieces, "broken")).startswith(same(body))
        assert (await lab.flow()).marked == ":x:"
    body, is_incomplete = await receive_stream(lab)
    assert (chat.read(body), is_incomplete) == (CALLED, False)


HELLO = chat.make_text_chunks("Hello")[0]
SIZE = b"%x\r\n" % len(HELLO)
CHUNKS: dict[str, tuple[bytes, bytes, bool]] = {
    "no last chunk": (SIZE + HELLO + b"\r\n", HELLO, True),
    "in a size": (SIZE + HELLO + b"\r\n" + SIZE[:1], HELLO, True),
    "in a chunk": (SIZE + HELLO[:20], HELLO[:20], True),
    "no size": (SIZE + HELLO + b"\r\nxyz\r\n" + HELLO, HELLO, True),
    "in the last chunk": (SIZE + HELLO + b"\r\n0\r\n", HELLO, True),
    "an extension": (SIZE[:-2] + b';a="b"\r\n' + HELLO + b"\r\n0\r\n\r\n", HELLO, False),
    "a trailer, which mitmproxy refuses": (SIZE + HELLO + b"\r\n0\r\nx-checksum: 5\r\n\r\n", HELLO, True),
    "one byte each": (b"".join(b"1\r\n%c\r\n" % byte for byte in HELLO) + b"0\r\n\r\n", HELLO, False),
    "nothing at all": (b"0\r\n\r\n", b"", False),
}


@pytest.mark.parametrize("how", CHUNKS)
async def test_chunks_of_http(how: str, start: Start) -> None:
    raw, body, broken = CHUNKS[how]
    headers = {**SSE, "transfer-encoding": "chunked"}
    lab = await start(Reply([raw], headers, framing="close"))
    arrived, is_incomplete = await receive_stream(lab)
    assert is_incomplete == broken
    assert body.startswith(arrived)
    assert is_incomplete or arrived == body


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_encoded_stream_that_is_cut(coding: str, start: Start) -> None:
    """The client gets the text of all decodable bytes. The break is reported to it, even if HTTP does not show one."""
    encoded = b"".join(CODINGS[coding](STREAM))
    cuts = [encoded[:end] for end in range(0, len(encoded), len(encoded) // 9)]
    replies = [
        Reply([cut] if cut else [], {**SSE, "content-encoding": coding}, cut=is_incomplete)
        for cut in cuts
        for is_incomplete in (True, False)
    ]
    lab = await start(by_turn(*replies))
    for cut in cuts:
        plain = make_decoder(coding).feed(cut)
        assert b"".join(STREAM).startswith(plain)
        bodies = [await receive_stream(lab), await receive_stream(lab)]
        assert [is_incomplete for _, is_incomplete in bodies] == [True, bool(cut)]
        assert same(bodies[0][0]) == same(expect_output([plain], "broken"))
        text = read_dispatched(bodies[1][0]).content
        assert read_dispatched(plain).content == text or CALLED.content.startswith(text)


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_encoded_body_that_is_cut_or_corrupt(coding: str, start: Start) -> None:
    """The body cannot be parsed and is sent unchanged."""
    encoded = b"".join(CODINGS[coding]([chat.encode_json(chat.completion("".join(TEXTS)))]))
    bodies = [encoded[: len(encoded) // 2], encoded[:20] + b"\xff" * 99, b"\xff\xff\xff\xff"]
    headers = {**JSON, "content-encoding": coding}
    lab = await start(by_turn(*(Reply([body], headers, framing="length") for body in bodies)))
    for body in bodies:
        answer = await lab.post(chat.request())
        assert (answer.body, answer.headers["content-encoding"]) == (body, coding)
        assert len((await lab.report())["failures"]) <= 1


# The client disconnects


@pytest.mark.rest
@pytest.mark.parametrize("after", [1, 4, 5, 8])
async def test_client_disconnects_during_a_stream(after: int, start: Start) -> None:
    """VTC keeps no state of it and reports the exchange, and the connection to the server is closed."""
    resumed = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        for frame in STREAM[:after]:
            yield frame
        async with asyncio.timeout(PATIENCE):
            await resumed.wait()
        while True:
            yield b": still there\n\n"

    lab = await start(Reply(pieces()))
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        assert response.status_code == 200
    flow = await lab.flow()
    resumed.set()
    async with asyncio.timeout(PATIENCE):
        await lab.upstream.gone.wait()
    assert flow.error is not None
    assert re.search(r"the client left after \d+\.\d s; the server had begun its reply", flow.comment)
    assert flow.metadata["vtc"]["failures"] == []
    assert not lab.proxy.addon._live


# Formats of an event stream


def crlf(frames: list[bytes]) -> list[bytes]:
    return [frame.replace(b"\n", b"\r\n") for frame in frames]


def cr(frames: list[bytes]) -> list[bytes]:
    return [frame.replace(b"\n", b"\r") for frame in frames]


def bom(frames: list[bytes]) -> list[bytes]:
    return [b"\xef\xbb\xbf" + frames[0], *frames[1:]]


def comments(frames: list[bytes]) -> list[bytes]:
    return [piece for frame in frames for piece in (b": ping\n\n", b":\n" + frame)]


def add_event_fields(frames: list[bytes]) -> list[bytes]:
    return [b"id: %d\nevent: message\nretry: 9\n%s" % (i, frame) for i, frame in enumerate(frames)]


def several_lines(frames: list[bytes]) -> list[bytes]:
    """Write JSON over multiple data lines."""
    return [re.sub(rb"(?<=[,{]) ?(?=\")", b"\ndata: ", frame) for frame in frames]


def no_space(frames: list[bytes]) -> list[bytes]:
    return [frame.replace(b"data: ", b"data:", 1) for frame in frames]


def blank_lines(frames: list[bytes]) -> list[bytes]:
    return [b"\n\n" + frame + b"\n" for frame in frames]


FORMS = [crlf, cr, bom, comments, add_event_fields, several_lines, no_space, blank_lines]
CUTS = {"frame by frame": 0, "one byte a read": 1, "five bytes a read": 5, "at once": 1 << 20}


@pytest.mark.halved
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
async def test_forms_of_an_event_stream(form: Any, start: Start) -> None:
    """However a stream is cut, its calls are read, and a stream without calls keeps all its text."""
    calling, talking = form(STREAM), form(PLAIN)

    def pieces(frames: list[bytes], size: int) -> list[bytes]:
        body = b"".join(frames)
        return [body[at : at + size] for at in range(0, len(body), size)] if size else frames

    lab = await start(by_turn(*(pieces(frames, size) for size in CUTS.values() for frames in (calling, talking))))
    for cut in CUTS:
        body = (await lab.post(ASK)).body
        text = b"\n".join(re.split(rb"\r\n?|\n", body)).removeprefix(b"\xef\xbb\xbf")
        assert read_lines(text) == CALLED, cut
        assert chat_text((await lab.post(ASK)).body) == chat_text(b"".join(talking)), cut
        assert (await lab.report())["failures"] == (await lab.report())["failures"] == []


def read_lines(body: bytes) -> chat.Read:
    """Parse as a client that joins the data lines of an event."""
    frames = [b"".join(re.findall(rb"^data: ?(.*)$", frame, re.MULTILINE)) for frame in body.split(b"\n\n")]
    return chat.read(b"".join(b"data: " + frame + b"\n\n" for frame in frames if frame))


def chat_text(body: bytes) -> str:
    return read_lines(b"\n".join(re.split(rb"\r\n?|\n", body)).removeprefix(b"\xef\xbb\xbf")).content


@pytest.mark.parametrize("dialect", ["hermes", "tag", "invoke"])
async def test_frames_of_a_megabyte(dialect: str, start: Start) -> None:
    """A text of that length, and a call with such a value, each in one frame and in two."""
    long = "0123456789abcde\n" * (1 << 16) + "end"
    call = chat.DIALECTS[dialect]("write", {"filePath": "/a", "content": long})
    replies = [chat.make_stream(long), chat.make_stream(call), chat.make_stream(call[: 1 << 19], call[1 << 19 :])]
    lab = await start(by_turn(*replies), vtc_max_call_bytes=4 << 20)
    assert (await lab.post(ASK)).body == b"".join(replies[0])
    for _ in replies[1:]:
        ((name, arguments),) = (await lab.post(ASK)).message.calls
        assert (name, arguments["filePath"], arguments["content"]) == ("write", "/a", long)


@pytest.mark.parametrize("where", ["between", "in a call"])
async def test_done_arrives_early(where: str, start: Start) -> None:
    """Frames after `[DONE]` are passed through unchanged."""
    before = ["Hi", " there"] if where == "between" else ["Hi", "<read><filePath>/a"]
    frames = [
        chat.ROLE,
        *chat.make_text_chunks(*before),
        chat.DONE,
        *chat.make_text_chunks("</filePath>", "</read>"),
        chat.STOP,
        chat.DONE,
    ]
    lab = await start(frames)
    assert (await lab.post(ASK)).body == b"".join(frames)


ERROR = chat.frame({"error": {"message": "overloaded", "type": "server_error", "code": 529}})


@pytest.mark.parametrize("error", [ERROR, b"event: error\n" + ERROR, b'data: {"object": "error", "message": "x"}\n\n'])
async def test_an_error_object_in_the_stream(error: bytes, start: Start) -> None:
    """Anywhere in the stream, the frame arrives unchanged after all preceding text, and is reported like an HTTP
    error.
    """
    lab = await start(by_turn(*([*STREAM[:at], error] for at in range(1, len(STREAM)))))
    for at in range(1, len(STREAM)):
        body = (await lab.post(ASK)).body
        assert body.count(error) == 1
        assert same(body) == same(expect_output(STREAM[:at], "broken") + error)
        flow = await lab.flow()
        assert flow.marked == ":x:"
        assert "the server broke off with an error: " + ("x" if b'"x"' in error else "overloaded") in flow.comment


# Invalid UTF-8


async def test_bytes_that_are_no_utf8(start: Start) -> None:
    """Text keeps invalid bytes; in a call they become replacement characters, as in a client."""
    text = [frame.replace(b"look", b"l\xffk") for frame in chat.make_stream("I look", " < and look", " up.")]
    call = [frame.replace(b"/a", b"/\xe9") for frame in STREAM]
    lab = await start(by_turn(text, call))
    assert (await lab.post(ASK)).body == b"".join(text)
    assert (await lab.post(ASK)).message.calls == [("read", {"filePath": "/\ufffd"})]


# Statuses and connections

REDIRECT = {"location": "/v2", "content-type": "text/html"}
REFUSAL = {**JSON, "retry-after": "1"}
REFUSED = [b'{"error": {"message": "<read>"}}']
STATUSES = [
    Reply([], {}, 204, framing="close"),
    *(Reply([b"<a>there</a>"], REDIRECT, code, framing="length") for code in (301, 302, 307, 308)),
    *(Reply(REFUSED, REFUSAL, code, framing="length") for code in (400, 401, 403, 404, 413, 422, 429, 500, 503, 529)),
    *(Reply([*chat.make_text_chunks(*TEXTS), chat.DONE], SSE, code) for code in (401, 429, 500)),
]


@pytest.mark.halved
@pytest.mark.parametrize("reply", STATUSES, ids=lambda reply: f"{reply.status}")
async def test_statuses_that_are_no_reply(reply: Reply, start: Start) -> None:
    lab = await start(reply)
    for ask in (ASK, chat.request()):
        answer = await lab.post(ask)
        assert (answer.status, answer.body) == (reply.status, b"".join(reply.pieces))  # type: ignore[arg-type]
        for name, value in reply.headers.items():
            assert answer.headers[name] == value
        assert (await lab.report())["calls"] == []


TYPES = [
    "text/event-stream",
    "Text/Event-Stream",
    "text/event-stream;charset=UTF-8",
    "text/event-stream ; charset=utf-8; foo=bar",
    "application/json",
    "application/octet-stream",
    "text/plain; charset=latin-1",
    "application/x-ndjson",
    "nonsense",
    "",
]


@pytest.mark.halved
@pytest.mark.parametrize("type_", TYPES)
async def test_stream_of_any_media_type(type_: str, start: Start) -> None:
    """The first bytes of the body do not matter either."""
    heads = [b"", b"\xef\xbb\xbf", b"retry: 5\n\n", b": hi\n\n", b"\n", b"event: ping\n\n"]
    headers = {"content-type": type_} if type_ else {}
    lab = await start(by_turn(*(Reply([head, *STREAM] if head else STREAM, headers) for head in heads)))
    for head in heads:
        answer = await lab.post(ASK)
        assert answer.body.startswith(head)
        assert chat.read(answer.body.removeprefix(head)) == CALLED


@pytest.mark.parametrize("type_", ["application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", ""])
async def test_whole_reply_of_any_media_type(type_: str, start: Start) -> None:
    reply = chat.encode_json(chat.completion("".join(TEXTS)))
    lab = await start(Reply([reply], {"content-type": type_} if type_ else {}, framing="length"))
    assert (await lab.post(chat.request())).message == CALLED


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("connection", ["keep-alive", "close", None])
async def test_one_exchange_after_another(version: str, connection: str | None, start: Start) -> None:
    """The client reuses its connection, even if the server closes its own."""
    headers = {**SSE, **({"connection": connection} if connection else {})}
    framing: Literal["chunked", "close"] = "chunked" if version == "HTTP/1.1" else "close"
    lab = await start(Reply(STREAM, headers, framing=framing, version=version))
    for _ in range(3):
        assert (await lab.post(ASK)).message == CALLED
