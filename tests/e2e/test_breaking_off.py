"""Servers that break off in the middle of a reply, in all APIs: buffered text arrives, and the break is reported."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apis import chat, messages, ollama, responses
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e import upstream
from tests.e2e.conftest import PATIENCE, Lab, Start, make_script, running_proxy
from tests.e2e.policies import write_guards
from tests.e2e.test_transport import encode_gzip
from tests.e2e.text_clients import AGENT, CLINE
from tests.e2e.upstream import JSON, SSE, Reply

TURNS = [{"role": "system", "content": CLINE}, {"role": "user", "content": "<task>\nLook.\n</task>"}]


@dataclass(frozen=True)
class Spoken:
    """An API: its requests, its streams, and how to find the text in a frame."""

    path: str
    ask: dict[str, Any]
    of_cline: dict[str, Any]
    """Additional fields of a request of Cline."""
    begun: Callable[..., list[bytes]]
    """Return the first frames of a reply with the given pieces of text."""
    text: Callable[[Any], Any]
    """Return the text of one frame."""
    error: bytes
    """A frame with the error `CUDA out of memory`."""
    call: list[bytes]
    """Frames of an incomplete call of `read`."""
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)


def _begun_chat(*pieces: str) -> list[bytes]:
    return [chat.ROLE, *chat.make_text_chunks(*pieces)]


def _begun_messages(*pieces: str) -> list[bytes]:
    return [messages.START, messages.PING, *messages.text_block(0, *pieces)[:-1]]


def _begun_responses(*pieces: str) -> list[bytes]:
    return responses.make_text_stream(*pieces)[:-4]


def _choice(value: Any) -> Any:
    return ((value.get("choices") or [{}])[0].get("delta") or {}).get("content")


def _begun_call_of_responses() -> list[bytes]:
    """Return the end of `_begun_responses("Well")` and the first frames of a call."""
    text, call = responses.text_events("Well"), responses.call_events("read", '{"filePath": ', '"/a"}')
    return responses.make_stream(text, call)[5:-4]


APIS = {
    "chat": Spoken(
        "/v1/chat/completions",
        chat.request(stream=True),
        {"messages": TURNS, "tools": None},
        _begun_chat,
        _choice,
        chat.frame({"error": {"message": "CUDA out of memory", "code": 500}}),
        [
            chat.chunk({"tool_calls": [chat.native(0, id="c0", name="read", arguments="")]}),
            chat.chunk({"tool_calls": [chat.native(0, arguments='{"filePath": ')]}),
        ],
    ),
    "messages": Spoken(
        "/v1/messages",
        messages.request(stream=True),
        {"system": CLINE, "messages": TURNS[1:], "tools": None},
        _begun_messages,
        lambda value: (value.get("delta") or {}).get("text"),
        messages.frame(messages.error("CUDA out of memory")),
        [messages.make_block_stop(0), *messages.call_block(1, "read", '{"filePath": ')[:-1]],
    ),
    "responses": Spoken(
        "/v1/responses",
        responses.request(stream=True),
        {"instructions": CLINE, "input": TURNS[1:], "tools": None},
        _begun_responses,
        lambda value: value.get("delta") if value.get("type") == "response.output_text.delta" else None,
        responses.frame({**responses.error("CUDA out of memory"), "sequence_number": 99}),
        _begun_call_of_responses(),
    ),
    "ollama": Spoken(
        "/api/chat",
        ollama.request(),
        {"messages": TURNS, "tools": None},
        lambda *pieces: ollama.make_text_lines(*pieces),
        lambda value: (value.get("message") or {}).get("content"),
        ollama.error("CUDA out of memory"),
        [],
        ollama.NDJSON,
    ),
}
ENDS = (b"[DONE]", b'"finish_reason": "', b'"finish_reason":"', b"message_stop", b"response.completed", b'"done":true')
API = pytest.mark.parametrize("api", APIS)

PARTIAL_TEXTS = {
    "in plain text": ("Let me", " look"),
    "in a marker": ("Let me look: ", "<tool_"),
    "in a call": ("Let me look: ", '<tool_call>\n{"name": "read", ', '"arguments": {"fileP'),
    "in white space": ("Let me look:", "\n", "\n"),
}


def join_frame_texts(api: Spoken, body: bytes) -> str:
    """Return the text of all complete frames."""
    return "".join(str(api.text(value) or "") for value in _values(body))


def _values(body: bytes) -> Iterator[Any]:
    for line in body.decode().split("\n"):
        line = line.removeprefix("data: ")
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                return  # the incomplete last frame


async def receive_stream(
    lab: Lab, api: Spoken, headers: Any = None, first: asyncio.Event | None = None, **fields: Any
) -> tuple[bytes, bool]:
    """Return the bytes of a reply and True if the client noticed the break; `first` is set with the first bytes."""
    body, ask = b"", {key: value for key, value in {**api.ask, **fields}.items() if value is not None}
    async with lab.client.stream("POST", api.path, json=ask, headers=headers) as response:
        assert response.status_code == 200
        try:
            async for piece in response.aiter_raw():
                body += piece
                if first:
                    first.set()
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return body, True
    return body, False


async def check_break_reported(lab: Lab, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Check that log, comment, mark, report and statistics state the break of the server, and no other failure."""
    flow = await lab.flow()
    report = flow.metadata["vtc"]
    assert why in flow.comment
    assert flow.marked == ":x:"
    assert (len(report["errors"]), report["failures"]) == (1, [])
    assert lab.proxy.addon._stats.total.errors == 1
    records = [record for record in caplog.records if record.name.startswith("vtc") and record.levelno >= logging.INFO]
    (line,) = [record.getMessage() for record in records if why in record.getMessage()]
    assert line.startswith("vtc: ")
    assert [why in record.getMessage() for record in records if record.levelno > logging.INFO] == [True]  # in red


WAYS: dict[str, Callable[[Spoken, list[bytes]], Reply]] = {
    "no last chunk": lambda api, frames: Reply(frames, api.headers, cut=True),
    "in a frame": lambda api, frames: Reply([*frames, frames[-1][:20]], api.headers, cut=True),
    "shorter than its length": lambda api, frames: Reply(frames, api.headers, framing="length", cut=True),
    "in its compression": lambda api, frames: Reply(
        encode_gzip(frames)[:-1], {**api.headers, "content-encoding": "gzip"}
    ),
    "compressed, no last chunk": lambda api, frames: Reply(
        encode_gzip(frames)[:-1], {**api.headers, "content-encoding": "gzip"}, cut=True
    ),
}


@API
@pytest.mark.parametrize("where", PARTIAL_TEXTS)
@pytest.mark.parametrize("way", WAYS)
async def test_buffered_text_arrives_as_text(
    way: str, where: str, api: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """No frame states that the reply has ended."""
    caplog.set_level(logging.INFO)
    spoken = APIS[api]
    frames = spoken.begun(*PARTIAL_TEXTS[where])
    lab = await start(WAYS[way](spoken, frames))
    body, broke = await receive_stream(lab, spoken)
    assert broke
    assert join_frame_texts(spoken, body) == "".join(PARTIAL_TEXTS[where])
    assert not any(end in body for end in ENDS)
    await check_break_reported(lab, caplog, "the server broke off")


@API
@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_reset_is_a_break(framing: Any, api: str, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """This holds also if the end of the connection ends the body, because mitmproxy does not distinguish the two."""
    caplog.set_level(logging.INFO)
    spoken, first = APIS[api], asyncio.Event()
    text = "Let me", " look: ", '<tool_call>\n{"name": "read", '
    frames = spoken.begun(*text)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"".join(frames)
        async with asyncio.timeout(PATIENCE):
            await first.wait()

    lab = await start(Reply(pieces(), spoken.headers, framing=framing, cut="reset"))
    body, broke = await receive_stream(lab, spoken, first=first)
    assert broke
    assert join_frame_texts(spoken, body) == "".join(text)
    assert not any(end in body for end in ENDS)
    await check_break_reported(lab, caplog, "the server broke off after")


@API
async def test_server_with_tls(
    api: str, confdir: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """The connections to server and client are encrypted."""
    caplog.set_level(logging.INFO)
    spoken = APIS[api]
    script = make_script(Reply(spoken.begun(*PARTIAL_TEXTS["in a call"]), spoken.headers, cut=True))
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(upstream.serving(script, server_tls))
        settings = {"mode": [f"reverse:{model.url}"], "ssl_insecure": True}
        proxy = await stack.enter_async_context(running_proxy(confdir, **settings))
        base = proxy.url.replace("http:", "https:")
        user = httpx.AsyncClient(base_url=base, verify=client_tls, trust_env=False, timeout=PATIENCE)
        lab = Lab(proxy, model, await stack.enter_async_context(user))
        body, broke = await receive_stream(lab, spoken)
        assert broke
        assert join_frame_texts(spoken, body) == "".join(PARTIAL_TEXTS["in a call"])
        await check_break_reported(lab, caplog, "the server broke off")


# Policies


@API
@pytest.mark.parametrize("where", PARTIAL_TEXTS)
async def test_text_arrives_under_a_policy(where: str, api: str, start: Start, tmp_path: Path) -> None:
    """A client that reads native calls finds no calls in text, so the text may be sent."""
    spoken = APIS[api]
    denying = write_guards(tmp_path, denied_tools=["bash"])
    lab = await start(Reply(spoken.begun(*PARTIAL_TEXTS[where]), spoken.headers, cut=True), vtc_profiles=denying)
    body, broke = await receive_stream(lab, spoken)
    assert broke
    assert join_frame_texts(spoken, body) == "".join(PARTIAL_TEXTS[where])
    assert not any(end in body for end in ENDS)
    assert "the server broke off" in (await lab.flow()).comment


@API
@pytest.mark.parametrize("way", WAYS)
async def test_opener_of_a_denied_call_does_not_reach_a_text_client(
    way: str, api: str, start: Start, tmp_path: Path
) -> None:
    spoken = APIS[api]
    pieces = ("Well: ", "<execute_", "command>\n<command>rm -rf .</command>\n")
    denying = write_guards(tmp_path, denied_tools=["execute_command"])
    for end in (2, 3):
        lab = await start(WAYS[way](spoken, spoken.begun(*pieces[:end])), vtc_profiles=denying)
        body, broke = await receive_stream(lab, spoken, AGENT, **spoken.of_cline)
        assert broke
        assert join_frame_texts(spoken, body).startswith("Well:")
        assert "<execute_command" not in join_frame_texts(spoken, body)
        assert "the server broke off" in (await lab.flow()).comment


@pytest.mark.parametrize("api", [name for name, spoken in APIS.items() if spoken.call])
@pytest.mark.parametrize("denied", [True, False])
async def test_truncated_native_call_is_sent_unless_it_may_be_denied(
    denied: bool, api: str, start: Start, tmp_path: Path
) -> None:
    spoken = APIS[api]
    frames = [*spoken.begun("Well"), *spoken.call]
    profiles = {"vtc_profiles": write_guards(tmp_path, denied_tools=["read"])} if denied else {}
    lab = await start(Reply(frames, spoken.headers, cut=True), **profiles)
    body, broke = await receive_stream(lab, spoken)
    assert broke
    assert join_frame_texts(spoken, body).startswith("Well")
    assert (b'"read"' in body) is not denied
    assert denied or b"".join(spoken.call) in body


# Errors in a stream


@API
@pytest.mark.parametrize("denied", [True, False])
@pytest.mark.parametrize("where", PARTIAL_TEXTS)
async def test_error_in_a_stream_is_reported_after_buffered_text(
    where: str, denied: bool, api: str, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spoken = APIS[api]
    profiles = {"vtc_profiles": write_guards(tmp_path, denied_tools=["bash"])} if denied else {}
    lab = await start(Reply([*spoken.begun(*PARTIAL_TEXTS[where]), spoken.error], spoken.headers), **profiles)
    body, broke = await receive_stream(lab, spoken)
    assert not broke
    assert join_frame_texts(spoken, body) == "".join(PARTIAL_TEXTS[where])
    assert "CUDA out of memory" in str([*_values(body)][-1])
    await check_break_reported(lab, caplog, "the server broke off with an error: CUDA out of memory")


async def test_failed_response_is_reported(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    spoken = APIS["responses"]
    frames = responses.make_text_stream("Hi", status="failed")
    error = b'"status": "failed", "error": {"code": "server_error", "message": "CUDA out of memory"}'
    last = frames[-1].replace(b'"error": null', b'"x": null').replace(b'"status": "failed"', error)
    assert error in last
    lab = await start([*frames[:-1], last])
    body, _ = await receive_stream(lab, spoken)
    assert body == b"".join([*frames[:-1], last])
    await check_break_reported(lab, caplog, "the server broke off with an error: CUDA out of memory")


async def test_error_next_to_a_choice_is_reported(start: Start) -> None:
    """Routers send errors in this form."""
    choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
    last = chat.frame({**chat.HEAD, "error": {"code": 502, "message": "upstream is gone"}, "choices": [choice]})
    lab = await start([*_begun_chat("Go: ", *PARTIAL_TEXTS["in a call"][1:]), last, chat.DONE])
    body, _ = await receive_stream(lab, APIS["chat"])
    assert join_frame_texts(APIS["chat"], body) == "Go: " + "".join(PARTIAL_TEXTS["in a call"][1:])
    assert body.endswith(last + chat.DONE)
    assert "the server broke off with an error: upstream is gone" in (await lab.flow()).comment


@pytest.mark.parametrize("client", [name for name in SHAPES if name != "openai-chat"])
async def test_error_next_to_a_choice_is_no_reply_for_a_client_of_another_api(client: str, start: Start) -> None:
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
    last = chat.frame({**chat.HEAD, "error": {"code": 502, "message": "upstream is gone"}, "choices": [choice]})
    lab = await start([last, chat.DONE], vtc_upstream_api="openai-chat")
    answer = await lab.post(make_request_body(client, stream=True), path=SHAPES[client].build_path(stream=True))
    assert "upstream is gone" in str([*_values(answer.body)][-1])


# Whole replies, and none


async def test_truncated_whole_reply_is_reported(start: Start) -> None:
    """mitmproxy answers instead of the server."""
    whole = chat.encode_json(chat.completion("Hi"))
    lab = await start(Reply([whole], JSON, framing="length", cut=True))
    assert (await lab.post(chat.request())).status == 502
    flow = await lab.flow()
    assert flow.marked == ":x:"
    assert "the server broke off in the middle of its reply" in flow.comment


async def test_answer_without_http_is_reported(start: Start) -> None:
    """The client gets the same error as from a server that breaks off before it answers."""
    lab = await start(Reply([], {}, framing="close", version="", status=0))
    with pytest.raises(httpx.HTTPError):
        (await lab.client.post(APIS["chat"].path, json=APIS["chat"].ask)).raise_for_status()
    assert (await lab.flow()).marked == ":x:"


async def test_truncated_observed_stream_keeps_its_bytes(start: Start) -> None:
    frames = _begun_chat(*PARTIAL_TEXTS["in a call"])
    lab = await start(Reply(frames, cut=True), vtc_mode="observe")
    body, broke = await receive_stream(lab, APIS["chat"])
    assert (body, broke) == (b"".join(frames), True)
    assert "the server broke off" in (await lab.flow()).comment
