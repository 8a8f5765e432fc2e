"""Whole replies of any status and type that a policy could not check are withheld, through a real proxy."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.apis import chat, messages, ollama, responses
from tests.attacks.test_whole_replies import APIS, DEEP, UNREAD, body, text_of
from tests.e2e.conftest import Start, by_turn
from tests.e2e.policies import write_guards
from tests.e2e.upstream import JSON, Reply
from vtc.exchange import WITHHELD

ASKED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", chat.request()),
    "messages": ("/v1/messages", messages.request()),
    "responses": ("/v1/responses", responses.request()),
    "ollama": ("/api/chat", ollama.request(stream=False)),
}
API = pytest.mark.parametrize("api", APIS)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
TYPES = [
    "application/json",
    "text/plain",
    "text/html",
    "application/octet-stream",
    "multipart/mixed; boundary=x",
    "image/png",
    "",
]


def choose_request(api: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    path, ask = ASKED[api]
    return path, {**ask, "stream": stream}


def denying(tmp_path: Path) -> list[str]:
    return write_guards(tmp_path, denied_tools=["bash"], on_denied="drop")


def whole(sent: str | bytes, headers: Mapping[str, str] = JSON, status: int = 200) -> Reply:
    return Reply([sent if isinstance(sent, bytes) else sent.encode()], headers, status=status, framing="length")


@API
@STREAM
async def test_it_is_withheld_with_a_message(stream: bool, api: str, start: Start, tmp_path: Path) -> None:
    """This holds also if a stream was requested."""
    path, ask = choose_request(api, stream=stream)
    ways = [how for how in UNREAD if (api, how) != ("ollama", "the same twice")]  # it is a stream
    replies = [whole(UNREAD[how](body(api))) for how in ways]
    lab = await start(by_turn(*replies), vtc_profiles=denying(tmp_path))
    for how in ways:
        answer = await lab.post(ask, path=path)
        assert text_of(api, json.loads(answer.body)) == WITHHELD, how
        assert answer.headers["content-type"] == "application/json"
        flow = await lab.flow()
        assert flow.marked == ":no_entry:"
        assert "unread_calls refused (the reply could not be read, so it was withheld)" in flow.comment


@API
@pytest.mark.parametrize("status", [200, 201, 202, 206, 300, 400, 422, 500, 503])
async def test_reply_of_any_status_and_type(status: int, api: str, start: Start, tmp_path: Path) -> None:
    """Clients can ignore both, so the reply is read, or replaced by a message."""
    path, ask = choose_request(api, stream=False)
    deep = UNREAD["nested 2,000 deep"](body(api))
    types = [{"content-type": type_} if type_ else {} for type_ in TYPES]
    replies = [whole(sent, headers, status) for headers in types for sent in (body(api), deep)]
    lab = await start(by_turn(*replies), vtc_profiles=denying(tmp_path))
    for text in ["Hello", WITHHELD] * len(types):
        answer = await lab.post(ask, path=path)
        assert (answer.status, text_of(api, json.loads(answer.body))) == (status, text)
        assert b"bash" not in answer.body
        assert (await lab.flow()).marked == (":x:" if status >= 400 else ":no_entry:")


@API
@pytest.mark.parametrize("status", [200, 500])
async def test_reply_keeps_its_bytes_without_a_policy(status: int, api: str, start: Start) -> None:
    path, ask = choose_request(api, stream=False)
    passing = UNREAD.keys() - {"a page around it", *(["the same twice"] if api == "ollama" else [])}
    bodies = [UNREAD[how](body(api)).encode() for how in UNREAD if how in passing]
    lab = await start(by_turn(*(whole(sent, status=status) for sent in bodies)))
    for sent in bodies:
        assert (await lab.post(ask, path=path)).body == sent
        assert (await lab.report())["failures"] == []


@API
async def test_errors_and_pages_pass(api: str, start: Start, tmp_path: Path) -> None:
    """They contain no call."""
    path, ask = choose_request(api, stream=False)
    for sent in (
        b'{"error":{"message":"busy"}}',
        b'{"message": "busy"}',
        b'{"detail": "no"}',
        b"<h1>Bad</h1>",
        b"busy",
    ):
        lab = await start(
            Reply([sent], {"content-type": "x/y"}, status=503, framing="length"), vtc_profiles=denying(tmp_path)
        )
        answer = await lab.post(ask, path=path)
        assert (answer.status, answer.body, answer.headers["content-type"]) == (503, sent, "x/y")
        assert (await lab.flow()).comment.startswith("vtc: lab-model: the server answered 503")


@pytest.mark.parametrize("charset", ["utf-7", "utf-16", "cp037", '"UTF-7"'])
async def test_charset_that_a_client_may_believe_is_not_passed_on(charset: str, start: Start, tmp_path: Path) -> None:
    """UTF-7 can encode quotation marks, so a client would find a call in a text."""
    sent = chat.encode_json(chat.completion("+ACI-, +ACI-tool+AF8-calls+ACI-: 5"))
    kept = [
        ("application/json; charset=utf-8; x=y",) * 2,
        (f"application/json; charset={charset}; x=y", "application/json; x=y"),
    ]
    for type_, expected in kept:
        reply = Reply([sent], {"content-type": type_}, framing="length")
        lab = await start(reply, vtc_profiles=denying(tmp_path))
        answer = await lab.post(chat.request())
        assert (answer.body, answer.headers["content-type"]) == (sent, expected)
        lab = await start(reply)
        assert (await lab.post(chat.request())).headers["content-type"] == type_


@pytest.mark.parametrize("status", [200, 400])
async def test_long_reply_is_not_streamed_past_a_policy(status: int, start: Start, tmp_path: Path) -> None:
    """With `stream_large_bodies` mitmproxy stores no body that could be checked."""
    sent = UNREAD["nested 2,000 deep"](body("chat", text="x" * 5_000)).encode()
    for reply in (sent, body("chat", text="x" * 5_000).encode()):
        lab = await start(
            Reply([reply], JSON, status=status, framing="length"),
            vtc_profiles=denying(tmp_path),
            stream_large_bodies="1k",
        )
        answer = await lab.post(chat.request())
        assert (answer.status, b"bash" in answer.body) == (status, False)


async def test_members_of_gzip_are_one_body(start: Start, tmp_path: Path) -> None:
    sent = body("chat").encode()
    packed = gzip.compress(sent[:50]) + gzip.compress(sent[50:])
    reply = Reply([packed], {**JSON, "content-encoding": "gzip"}, framing="length")
    lab = await start(reply, vtc_profiles=denying(tmp_path))
    response = await lab.client.post("/v1/chat/completions", json=chat.request())
    assert b"bash" not in response.content
    assert text_of("chat", response.json()) == "Hello"


async def test_sdk_is_given_the_message(start: Start, tmp_path: Path) -> None:
    sent = f'{body("chat")[:-1]},"z":{DEEP}}}'.encode()
    lab = await start(Reply([sent], {"content-type": "text/plain"}, framing="length"), vtc_profiles=denying(tmp_path))
    async with lab.sdk() as client:
        reply = await client.chat.completions.create(**{**chat.request(), "stream": openai.NOT_GIVEN})
    assert reply.choices[0].message.content == WITHHELD
