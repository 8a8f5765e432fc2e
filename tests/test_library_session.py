"""`vtc.Session`: an exchange that a program drives, with a server that is a function."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

import vtc
from tests.apis import chat, messages, pairs
from tests.apis.pairs import PAIRS, READ, make_content
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchange.crossings import IN_TEXT, STREAM
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.exchange import Session

type ServerReply = tuple[int, Mapping[str, str], bytes]

SIZES = [1, 7, 1 << 20]
NO_TOOLS = chat.encode_json({"error": {"message": "this model does not support tools", "type": "invalid_request"}})
DENIES = {"guards": {"denied_tools": ["read"], "on_denied": "text"}}
PIECES = ["I look.\n", *IN_TEXT.partition("name")]


def open_exchange(client: str, server: str | None = None, *, stream: bool = False, **options: Any) -> vtc.Session:
    body = make_request_body(client, stream=stream, **options.pop("fields", {}))
    return vtc.Session(body, client, server, path=SHAPES[client].build_path(stream=stream), **options)


def make_reply(server: str, text: str = "", *, stream: bool = False, pieces: list[str] | None = None) -> ServerReply:
    media_type = SHAPES[server].media_type if stream else "application/json"
    pieces = [text] if pieces is None else pieces
    body = pairs.make_stream(server, pieces) if stream else pairs.make_whole_reply(server, "".join(pieces))
    return 200, {"Content-Type": f"{media_type}; charset=utf-8"}, body


def feed_reply(session: vtc.Session, reply: ServerReply, size: int = 1 << 20) -> bytes:
    code, headers, body = reply
    session.status(code, headers)
    return b"".join(session.feed(body[at : at + size]) for at in range(0, len(body), size)) + session.finish()


def converse(session: vtc.Session, *replies: ServerReply, size: int = 1 << 20) -> tuple[bytes, list[bytes]]:
    """Return the reply for the client, and the requests to the server, which must be as many as the replies."""
    answers, sent = iter(replies), [session.request]
    received = feed_reply(session, next(answers), size)
    while session.retry is not None:
        sent.append(session.retry)
        received += feed_reply(session, next(answers), size)
    assert len(sent) == len(replies)
    return received, sent


@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
@STREAM
@pytest.mark.parametrize("size", SIZES)
def test_a_call_in_text_is_a_call_for_the_client(client: str, server: str, stream: bool, size: int) -> None:
    session = open_exchange(client, server, stream=stream)
    reply, _ = converse(session, make_reply(server, stream=stream, pieces=PIECES), size=size)
    assert pairs.read(client, reply, stream=stream) == make_content("I look.", READ)
    media_type = SHAPES[client].media_type if stream else "application/json"
    assert (session.reply_status, session.reply_headers["content-type"].partition(";")[0]) == (200, media_type)
    assert session.report.calls[0]["name"] == "read"


@pytest.mark.parametrize("client", SHAPES)
@STREAM
def test_it_gives_the_bytes_of_the_addons_session(client: str, stream: bool) -> None:
    (api,) = [api for api in APIS if api.name == client]
    body = make_request_body(client, stream=stream)
    other = Session.open(api, body, agent(client, stream=stream), planner(), "seed")
    session = open_exchange(client, stream=stream, seed="seed")
    assert session.request == other.encode_request() == body
    reply = make_reply(client, stream=stream, pieces=PIECES)
    if stream:
        opened = other.stream()
        expected = b"".join([*opened.feed(reply[2]), *opened.finish()])
    else:
        expected = other.whole.rewrite(reply[2])
    assert feed_reply(session, reply) == expected


@STREAM
def test_a_reply_without_a_call_keeps_its_bytes(stream: bool) -> None:
    reply = make_reply("openai-chat", "Hello", stream=stream)
    session = open_exchange("openai-chat", stream=stream)
    assert converse(session, reply)[0] == reply[2]
    assert session.reply_headers == {"content-type": reply[1]["Content-Type"]}


def test_the_servers_other_headers_reach_the_client() -> None:
    code, headers, body = make_reply("openai-chat", IN_TEXT)
    session = open_exchange("openai-chat")
    converse(session, (code, {**headers, "X-Request-Id": "7", "Content-Length": str(len(body))}, body))
    assert session.reply_headers == {"content-type": "application/json", "x-request-id": "7"}


@STREAM
@pytest.mark.parametrize("size", SIZES)
def test_a_reply_to_a_request_without_tools_passes_through(stream: bool, size: int) -> None:
    reply = make_reply("openai-chat", IN_TEXT, stream=stream)
    session = open_exchange("openai-chat", stream=stream, fields={"tools": None})
    assert converse(session, reply, size=size)[0] == reply[2]


@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
def test_a_rejected_request_is_retried(client: str, server: str) -> None:
    session = open_exchange(client, server)
    reply, sent = converse(session, (400, {}, NO_TOOLS), make_reply(server, IN_TEXT), size=7)
    assert pairs.read(client, reply, stream=False) == make_content("", READ)
    assert ["tools" in json.loads(body) for body in sent] == [True, False]
    assert session.reply_status == 200


@STREAM
@pytest.mark.parametrize("size", SIZES)
def test_a_request_is_retried_by_another_api(stream: bool, size: int) -> None:
    words = "This model is only supported in v1/responses and not in v1/chat/completions."
    session = open_exchange("openai-chat", stream=stream)
    assert session.address({}) == "/v1/chat/completions"
    assert feed_reply(session, (404, {}, chat.encode_json({"error": {"message": words}}))) == b""
    assert session.address({}) == "/v1/responses"
    assert "input" in json.loads(session.retry or b"")
    reply = feed_reply(session, make_reply("openai-responses", stream=stream, pieces=PIECES), size)
    assert pairs.read("openai-chat", reply, stream=stream) == make_content("I look.", READ)
    assert session.reply_status == 200


def test_a_retry_that_is_rejected_too_gives_the_last_error() -> None:
    session = open_exchange("openai-chat")
    error = chat.encode_json({"error": {"message": "out of memory"}})
    reply, _ = converse(session, (400, {}, NO_TOOLS), (500, {}, error))
    assert (reply, session.reply_status) == (error, 500)


def test_a_retry_without_an_answer_gives_the_first_error() -> None:
    session = open_exchange("openai-chat")
    assert feed_reply(session, (400, {}, NO_TOOLS)) == b""
    assert session.retry
    assert (session.finish(), session.retry, session.reply_status) == (NO_TOOLS, None, 400)
    assert (session.finish(), session.retry) == (b"", None)


@pytest.mark.parametrize("client", SHAPES)
def test_an_error_is_an_error_of_the_clients_api(client: str) -> None:
    error = chat.encode_json({"error": {"message": "out of memory"}})
    for server in SHAPES:
        session = open_exchange(client, server)
        reply, _ = converse(session, (500, {"content-type": "application/json"}, error), size=7)
        assert session.reply_status == 500
        assert "out of memory" in reply.decode()
        assert (reply == error) == (client == server)
        assert session.report.errors == ["the server answered 500: out of memory"]


@pytest.mark.parametrize("client", SHAPES)
def test_a_web_page_is_an_error_of_the_clients_api(client: str) -> None:
    for server in SHAPES:
        session = open_exchange(client, server)
        reply, _ = converse(session, (200, {"content-type": "text/html"}, b"<!DOCTYPE html><p>Log in"), size=7)
        assert session.reply_status == 502
        assert "a web page: is this the model server?" in str(json.loads(reply)["error"])
        assert session.report.errors == ["the server answered with a web page: is this the model server?"]


FAULTY = f'{IN_TEXT[:-20]}, "filePath": 2'
"""A call whose end is missing."""


@STREAM
@pytest.mark.parametrize("size", SIZES)
def test_a_faulty_reply_is_retried(stream: bool, size: int) -> None:
    """The server is asked for a whole reply, because the client must see nothing of the first one."""
    session = open_exchange("openai-chat", stream=stream, policy={"retry": {"on": ["malformed"]}})
    faulty, right = make_reply("openai-chat", FAULTY), make_reply("openai-chat", IN_TEXT)
    reply, sent = converse(session, faulty, right, size=size)
    assert chat.read(reply).calls == READ
    assert json.loads(sent[0])["stream"] is False
    assert len(json.loads(sent[1])["messages"]) > len(json.loads(sent[0])["messages"])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
def test_a_streamed_turn_that_ends_in_silence_is_continued(size: int, is_streamed: bool) -> None:
    session = open_exchange("openai-chat", stream=True, policy={"retry": {"on": ["announced"]}})
    first = make_reply("openai-chat", "Let me read the file:", stream=True)
    reply, _ = converse(session, first, make_reply("openai-chat", IN_TEXT, stream=is_streamed), size=size)
    assert chat.read(reply).calls == READ
    assert chat.read(reply).content.startswith("Let me read the file:")


@pytest.mark.parametrize("answer", [None, (500, {}, b""), (200, {}, b" "), (200, {}, b"what?")])
def test_a_streamed_turn_ends_if_its_retry_fails(answer: ServerReply | None) -> None:
    session = open_exchange("openai-chat", stream=True, policy={"retry": {"on": ["announced"]}})
    reply = feed_reply(session, make_reply("openai-chat", "Let me read the file:", stream=True))
    assert session.retry
    reply += feed_reply(session, answer) if answer else session.finish()
    assert chat.read(reply).content == "Let me read the file:"
    assert session.retry is None


@STREAM
@pytest.mark.parametrize("size", SIZES)
def test_a_compressed_reply_is_decoded(stream: bool, size: int) -> None:
    code, headers, body = make_reply("openai-chat", IN_TEXT, stream=stream)
    session = open_exchange("openai-chat", stream=stream)
    reply, _ = converse(session, (code, {**headers, "Content-Encoding": "gzip"}, gzip.compress(body)), size=size)
    assert chat.read(reply).calls == READ
    assert "content-encoding" not in session.reply_headers


@STREAM
def test_a_reply_in_an_unknown_coding_passes_unless_a_policy_denies_calls(stream: bool) -> None:
    code, headers, body = make_reply("openai-chat", IN_TEXT, stream=stream)
    coded = (code, {**headers, "content-encoding": "odd"}, body)
    session = open_exchange("openai-chat", stream=stream)
    assert converse(session, coded)[0] == body
    assert session.reply_headers["content-encoding"] == "odd"
    session = open_exchange("openai-chat", stream=stream, policy=DENIES)
    reply, _ = converse(session, coded)
    assert b"withheld" in reply
    assert "content-encoding" not in session.reply_headers


def make_long_reply() -> ServerReply:
    code, headers, body = make_reply("openai-chat", IN_TEXT)
    return code, headers, body + b" " * (64 << 20)


@pytest.mark.parametrize("size", [1 << 20, 1 << 27])
def test_a_body_that_is_too_long_passes_unless_a_policy_denies_calls(size: int) -> None:
    reply = make_long_reply()
    session = open_exchange("openai-chat")
    assert converse(session, reply, size=size)[0] == reply[2]
    assert session.report.failures == ["the reply is longer than 64 MiB"]
    for options, words in (({"policy": DENIES}, b"withheld"), ({"server": "ollama-chat"}, b"could not be read")):
        received, _ = converse(open_exchange("openai-chat", **options), reply, size=size)
        assert words in received
        assert b"filePath" not in received


def test_the_answer_to_a_retry_that_is_too_long_is_none() -> None:
    assert converse(open_exchange("openai-chat"), (400, {}, NO_TOOLS), make_long_reply())[0] == NO_TOOLS


@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
@STREAM
def test_a_policy_denies_calls(client: str, server: str, stream: bool) -> None:
    session = open_exchange(client, server, stream=stream, policy=DENIES)
    code, headers, _ = make_reply(server, stream=stream)
    calls = pairs.make_stream(server, [], READ) if stream else pairs.make_whole_reply(server, "", READ)
    reply, _ = converse(session, (code, headers, calls))
    assert pairs.read(client, reply, stream=stream).calls == ()
    assert session.report.outcome == "denied"


def test_a_request_that_must_not_be_sent_has_an_answer() -> None:
    assert open_exchange("openai-responses", "openai-chat").answer() is None
    answer = open_exchange("openai-responses", "openai-chat", fields={"previous_response_id": "resp_1"}).answer()
    assert answer
    assert (answer.status, answer.media_type) == (400, "application/json")
    assert b"previous_response_id is known to no server of openai-chat" in answer.body


def test_a_request_at_which_vtc_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "plan_request", lambda *_: 1 / 0)
    with pytest.raises(vtc.RequestError, match="ZeroDivisionError"):
        open_exchange("openai-chat")


def test_a_broken_part_of_vtc_loses_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_exchange("openai-chat")
    monkeypatch.setattr(session.whole, "rewrite", lambda *_, **__: 1 / 0)
    reply = make_reply("openai-chat", IN_TEXT)
    assert converse(session, reply)[0] == reply[2]
    assert session.report.failures == ["ZeroDivisionError: division by zero"]


def test_the_server_of_another_api_is_addressed_in_its_own_way() -> None:
    session = vtc.Session(chat.encode_json(messages.request()), "anthropic-messages", "openai-chat")
    headers = {"x-api-key": "secret", "anthropic-version": "2023-06-01", "anthropic-beta": "a"}
    assert json.loads(session.request)["tools"][0]["type"] == "function"
    assert session.address(headers) == "/v1/chat/completions"
    assert headers == {"authorization": "Bearer secret", "accept-encoding": "identity"}


def test_the_model_behind_an_alias_decides_how_a_reply_is_read() -> None:
    body = make_request_body("openai-chat", model="default")
    models = [vtc.Session(body, model=model).report.parties.model for model in (None, "Qwen/Qwen3-8B")]
    assert models == ["unknown", "qwen3"]


def test_profiles_of_the_user_count(tmp_path: Any) -> None:
    (tmp_path / "mine.yaml").write_text("{kind: model, name: mine, match: {model: lab-model}, dialect: hermes}")
    for profiles in (tmp_path, str(tmp_path), [tmp_path / "mine.yaml"]):
        assert vtc.Session(make_request_body("openai-chat"), profiles=profiles).report.parties.model == "mine"


def test_ids_differ_unless_the_seed_is_given() -> None:
    def make_id(**options: Any) -> str:
        reply = feed_reply(open_exchange("openai-chat", **options), make_reply("openai-chat", IN_TEXT))
        return str(json.loads(reply)["choices"][0]["message"]["tool_calls"][0]["id"])

    assert make_id() != make_id()
    assert make_id(seed="a") == make_id(seed="a") != make_id(seed="b")


KNOWN = "known: openai-chat, anthropic-messages, openai-responses, ollama-chat, gemini-generate"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"[]",), "the body is not a valid chat completion request: "),
        ((b"{",), "the body is not a valid chat completion request: not JSON"),
        ((b"",), "the body is not a valid chat completion request: not JSON"),
        ((b"{}", "openai-chta"), f"there is no API 'openai-chta' (did you mean 'openai-chat'?); {KNOWN}"),
        ((b"{}", "openai-chat", "x"), f"there is no API 'x'; {KNOWN}"),
    ],
)
def test_errors_about_a_request_name_the_mistake(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(vtc.RequestError, match=re.escape(message)):
        vtc.Session(*arguments)


@pytest.mark.parametrize("client", SHAPES)
def test_a_body_that_is_no_object_is_no_request(client: str) -> None:
    for body in (b"[]", b'"a"', b"1", b"null", b"\xff", b"{'a': 1}"):
        with pytest.raises(vtc.RequestError):
            vtc.Session(body, client)


def test_errors_of_profiles_name_the_mistake(tmp_path: Any) -> None:
    body = make_request_body("openai-chat")
    with pytest.raises(ValueError, match=re.escape("policy: guards.denied: unknown key; known here are ")):
        vtc.Session(body, policy={"guards": {"denied": []}})
    with pytest.raises(ValueError, match="no such directory"):
        vtc.Session(body, profiles=tmp_path / "absent")


@STREAM
def test_a_reply_has_the_same_result_at_every_cut(stream: bool) -> None:
    code, headers, body = make_reply("openai-chat", stream=stream, pieces=PIECES)
    for at in range(len(body) + 1):
        session = open_exchange("openai-chat", stream=stream)
        session.status(code, headers)
        reply = session.feed(body[:at]) + session.feed(body[at:]) + session.finish()
        assert pairs.read("openai-chat", reply, stream=stream) == make_content("I look.", READ)
