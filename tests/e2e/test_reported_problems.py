"""Messages to people if no call was rewritten: errors of the server, replies of other kinds, unread traffic."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mitmproxy.addons.view import View
from mitmproxy.flow import Flow
from mitmproxy.test import taddons

from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e.conftest import Start, by_turn
from tests.e2e.upstream import JSON, SSE, Reply, serving
from vtc import demo
from vtc.proxy import launch
from vtc.proxy.addon import VirtualToolCalling

ASK = chat.request(stream=True)
AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
EVENTS = [b"event: x\ndata: 1\n\n", b"data: 2\n\n"]


async def test_server_that_rejects_tools_is_reported_with_a_remedy(start: Start) -> None:
    body = json.dumps({"error": {"message": AUTO}}).encode()
    lab = await start(Reply([body], JSON, status=400, framing="length"), vtc_tools="native")
    assert (await lab.post(ASK)).body == body
    flow = await lab.flow()
    assert flow.comment.startswith(f"vtc: lab-model: the server answered 400: {AUTO} - the server rejects `tools`")
    assert "--tools prompt" in flow.comment
    assert flow.marked == ":x:"


async def test_denied_call_is_not_reported_as_unread(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [read], on_denied: steer}\n"
    )
    call = chat.DIALECTS["hermes"]("read", {"filePath": "a"})
    reply = [chat.ROLE, *chat.make_text_chunks(call), chat.STOP, chat.DONE]
    lab = await start(reply, vtc_profiles=[str(tmp_path)], vtc_keep_bodies="on")
    await lab.post(ASK)
    flow = await lab.flow()
    assert "denied_tools refused read" in flow.comment
    assert "possible call" not in flow.comment


async def test_a_key_in_an_error_is_not_repeated(start: Start) -> None:
    body = b'{"error": {"message": "Incorrect API key provided: open-sesame-77"}}'
    lab = await start(Reply([body], JSON, status=401, framing="length"))
    await lab.post(ASK, headers={"authorization": "Bearer open-sesame-77"})
    flow = await lab.flow()
    assert "does not accept the client's API key" in flow.comment
    assert "open-sesame" not in flow.comment + json.dumps(flow.metadata["vtc"])


LAZY = dict([launch.LAZY_CONNECTION.split("=")])


@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_is_down_is_an_error_of_the_api_and_a_flow(api: str, stream: bool, start: Start) -> None:
    with socket.socket() as nobody:  # bound, so that no other process gets the port, and not listening
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        lab = await start(EVENTS, mode=[f"reverse:http://127.0.0.1:{port}"], **LAZY)
        answer = await lab.post(make_request_body(api, stream=stream), path=SHAPES[api].build_path(stream=stream))
        flow = await lab.flow()
    message = f"the model server at 127.0.0.1:{port} cannot be reached"
    assert answer.status == 502
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.body)["error"]
    assert message in (error if api == "ollama-chat" else error["message"])
    assert message in flow.comment
    assert "is it running?" in flow.comment
    assert flow.marked == ":x:"


HTML = {"content-type": "text/html; charset=utf-8"}
NONE = {
    "empty": (Reply([], JSON, framing="length"), "the reply is empty"),
    "blank": (Reply([b"\n"], JSON, framing="length"), "the reply is empty"),
    "a web page": (
        Reply([b"\n<!DOCTYPE html>\n<p>Log in"], HTML, framing="length"),
        "answered with a web page: is this",
    ),
    "a coded page": (
        Reply([gzip.compress(b"<HTML>")], {**HTML, "content-encoding": "gzip"}),
        "with a web page: is this",
    ),
    "empty and coded": (Reply([gzip.compress(b"")], {**JSON, "content-encoding": "gzip"}), "the reply is empty"),
    "cut": (Reply([b'{"id": '], JSON, framing="length", cut=True), "the server broke off in the middle of its reply"),
    "cut in chunks": (Reply([b'{"id": '], JSON, cut=True), "the server broke off in the middle of its reply"),
    "reset": (Reply([b'{"id": '], JSON, framing="length", cut="reset"), "the server broke off "),
}


@pytest.mark.parametrize("fault", NONE)
@pytest.mark.parametrize("server", ["same", "openai-chat", "anthropic-messages"])
async def test_malformed_whole_reply_is_a_reported_error_of_the_api(server: str, fault: str, start: Start) -> None:
    reply, message = NONE[fault]
    lab = await start(reply, vtc_upstream_api=server)
    for api in SHAPES:
        for tools in ({}, {"tools": []}):  # a reply that is read, and one without tools
            body = {**json.loads(make_request_body(api)), **tools}
            answer = await lab.post(body, path=SHAPES[api].build_path())
            flow = await lab.flow()
            assert answer.status == 502
            assert answer.headers["content-type"] == "application/json"
            assert "content-encoding" not in answer.headers
            error = json.loads(answer.body)["error"]
            assert message in (error if api == "ollama-chat" else error["message"])
            assert message in flow.comment
            assert flow.marked == ":x:"
            assert len(flow.metadata["vtc"]["errors"]) == 1


@pytest.mark.parametrize("fault", ["empty", "cut"])
async def test_malformed_reply_keeps_its_bytes_if_vtc_observes(fault: str, start: Start) -> None:
    reply, message = NONE[fault]
    lab = await start(reply, vtc_mode="observe")
    answer = await lab.post(chat.request())
    assert answer.status == (200 if fault == "empty" else 502)
    assert not answer.body or b"<html>" in answer.body
    assert message in (await lab.flow()).comment


async def test_a_list_of_models_that_is_cut_off_is_an_error_of_the_api(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    lab = await start(NONE["cut"][0])
    answer = await lab.client.get("/v1/models")
    assert answer.status_code == 502
    assert "broke off in the middle of its reply" in answer.json()["error"]["message"]
    assert "broke off in the middle of its reply" in caplog.text


async def test_unreachable_server_is_reported_to_a_client_that_lists_models(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        lab = await start(EVENTS, mode=[f"reverse:http://127.0.0.1:{port}"], **LAZY)
        models, page = await lab.client.get("/v1/models"), await lab.client.get("/index.html")
    assert f"127.0.0.1:{port} cannot be reached" in models.json()["error"]["message"]
    assert "<html>" in page.text  # mitmproxy answers requests that are not for an API
    assert any("cannot be reached" in one.getMessage() for one in caplog.records if one.levelname == "ERROR")


async def test_an_addon_that_is_gone_answers_in_no_other_one_s_place(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """mitmproxy can load a script again; the addon that has the exchange reports it, once."""
    gone = VirtualToolCalling()
    with taddons.context(gone) as context:
        context.configure(gone, vtc_mode="rewrite")
    gone.done()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        lab = await start(EVENTS, mode=[f"reverse:http://127.0.0.1:{nobody.getsockname()[1]}"], **LAZY)
        await lab.post(ASK)
        errors = (await lab.report())["errors"]
    assert ["cannot be reached" in one for one in errors] == [True]
    logged = [one for one in caplog.records if one.levelname == "ERROR" and "cannot be reached" in one.getMessage()]
    assert len(logged) == 1


async def test_the_next_request_after_a_server_was_down_uses_the_connection(start: Start) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        mode = [f"reverse:http://127.0.0.1:{nobody.getsockname()[1]}"]
        lab = await start(EVENTS, mode=mode, **LAZY)
        answers = [await lab.post(ASK) for _ in range(3)]
    assert [one.status for one in answers] == [502] * 3


async def test_untrusted_certificate_is_reported_with_a_remedy(start: Start, server_tls: ssl.SSLContext) -> None:
    async with serving(lambda _: Reply([b"{}"], JSON), tls=server_tls) as upstream:
        lab = await start(EVENTS, mode=[f"reverse:{upstream.url}"], **LAZY)
        answer = await lab.post(ASK)
    assert answer.status == 502
    message = json.loads(answer.body)["error"]["message"]
    assert "is not trusted" in message
    assert "ssl_insecure=true" in message


@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("is_tls", [True, False])
async def test_swapped_http_and_https_are_reported_to_the_client(
    is_tls: bool, api: str, start: Start, server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(lambda _: Reply([], JSON), tls=server_tls) as encrypted:
        with demo.run_server() as plain:
            url = encrypted.url if is_tls else plain.url
            scheme, rest = url.split(":", 1)
            wrong = f"{'http' if is_tls else 'https'}:{rest}"
            lab = await start([], mode=[f"reverse:{wrong}"], vtc_discover="on", **LAZY)
            answer = await lab.post(make_request_body(api), path=SHAPES[api].path)
    assert answer.status == 502
    message = f"{wrong} speaks {scheme}: start VTC with `vtc run {url}`"
    assert message in answer.body.decode()
    assert message in (await lab.next_client_flow()).comment
    assert any(message in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


async def test_address_without_a_model_server_is_reported(start: Start) -> None:
    lab = await start(EVENTS, mode=["regular"])
    answer = await lab.post(ASK)
    assert "no model server was named" in json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/v1/messages", "begins with /v1 twice: remove /v1 from the client's base URL"),
        ("/chat/completions", "the path lacks /v1"),
        ("/v1/chat/completions", "does it speak this API?"),
    ],
)
async def test_wrong_base_url_is_reported(path: str, message: str, start: Start) -> None:
    lab = await start(Reply([b'{"detail": "Not Found"}'], JSON, status=404, framing="length"))
    api = "anthropic-messages" if "messages" in path else "openai-chat"
    await lab.post(make_request_body(api), path=path)
    assert message in (await lab.flow()).comment


@pytest.mark.parametrize("server", ["same", "openai-chat"])
@pytest.mark.parametrize("status", [404, 502])
async def test_an_error_as_a_web_page_becomes_an_error_of_the_api(status: int, server: str, start: Start) -> None:
    reply = Reply([b"<html><h1>Bad\n Gateway</h1></html>"], HTML, status=status, framing="length")
    lab = await start(reply, vtc_upstream_api=server)
    for api in SHAPES:
        answer = await lab.post(json.loads(make_request_body(api)), path=SHAPES[api].build_path())
        error = json.loads(answer.body)["error"]
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        assert (error if api == "ollama-chat" else error["message"]) == "Bad Gateway"
        assert f"the server answered {status}: Bad Gateway" in (await lab.flow()).comment


@pytest.mark.parametrize("body", [b"proxy error", b"{cut", b"\xff\xfe"])
async def test_reply_without_json_is_reported_in_one_line(
    body: bytes, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    lab = await start(Reply([body], {"content-type": "text/html; charset=x"}, framing="length"))
    assert (await lab.post(chat.request())).body == body
    flow = await lab.flow()
    assert flow.comment.startswith("vtc: lab-model: the reply is not JSON: ")
    assert "\n" not in flow.comment
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", {"prompt": "x"}), ("/v1/audio/speech", {}), ("/v1/chat/completions", {"messages": []})],
)
async def test_unread_stream_is_forwarded_at_once_and_stored_in_the_flow(
    path: str, body: dict[str, object], start: Start
) -> None:
    first_came = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield EVENTS[0]
        await first_came.wait()
        yield EVENTS[1]

    lab = await start(Reply(frames(), SSE), vtc_keep_bodies="on")
    pieces = []
    async with lab.client.stream("POST", path, json={**body, "stream": True}) as response:
        async for piece in response.aiter_raw():
            pieces.append(piece)
            first_came.set()
    assert b"".join(pieces) == b"".join(EVENTS)
    flow = await lab.flow()
    assert flow.response is not None
    assert flow.response.content == b"".join(EVENTS)


async def test_withheld_tools_and_fields_set_by_profile_are_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [write]}\nrequest: {set: {top_k: 5}}\n"
    )
    lab = await start(chat.make_stream("Hello"), vtc_profiles=[str(tmp_path)])
    await lab.post(ASK)
    flow = await lab.flow()
    assert flow.comment == "vtc: lab-model: 1 tool not offered (write), top_k: 5 set"


async def test_the_models_name_of_the_request_is_in_report_and_log(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vtc")
    lab = await start(chat.make_stream(*chat.DIALECTS["tag"]("read", {"filePath": "/a"})))
    await lab.post({**ASK, "model": "my-finetune-7b"})
    assert (await lab.report())["asked"] == "my-finetune-7b"
    assert any("my-finetune-7b at 127.0.0.1" in message for message in caplog.messages)


async def test_the_list_shows_that_a_call_is_held_back(start: Start) -> None:
    """The clock advances by ten seconds with each reading."""
    call = chat.DIALECTS["hermes"]("read", {"filePath": "a" * 40})
    lab = await start(chat.make_stream("I look. ", *call))
    view = View()
    lab.proxy.master.addons.add(view)
    lab.proxy.addon.clock = itertools.count(1, 10).__next__
    shown: list[tuple[str, str]] = []

    def note_update(flow: Flow) -> None:
        shown.append((flow.comment, flow.marked))

    view.sig_view_update.connect(note_update)
    await lab.post(ASK)
    held = [comment for comment, mark in shown if mark == ":hourglass_flowing_sand:"]
    assert held
    sizes = [float(comment.split(", ")[1].split(" kB")[0]) for comment in held]
    assert all(comment.startswith("vtc: buffering a possible call, ") for comment in held)
    assert sizes == sorted(sizes)
    assert (await lab.flow()).comment == "vtc: lab-model: read, hermes -> tool_calls"


async def test_buffered_text_without_a_call_is_not_reported(start: Start) -> None:
    lab = await start(chat.make_stream(*"<tool_call> is how Qwen begins"))
    lab.proxy.addon.clock = itertools.count(1, 10).__next__
    await lab.post(ASK)
    flow = await lab.flow()
    assert "holding" not in flow.comment
    assert flow.marked != ":hourglass_flowing_sand:"


@pytest.mark.parametrize("before", [0, 2000])
@pytest.mark.parametrize("keep", ["on", "off"])
async def test_possible_call_in_no_dialect_is_reported(start: Start, keep: str, before: int) -> None:
    texts = (f"I look at {number}. " for number in range(before))
    lab = await start(chat.make_stream(*texts, "@@rea", "d(path=a.py)@@"), vtc_keep_bodies=keep)
    for stream in (True, False):
        await lab.post(chat.request(stream=stream))
        flow = await lab.flow()
        advice = f"vtc new-dialect --flow {flow.id[:13]} --port {flow.client_conn.sockname[1]}"
        assert flow.comment == f"vtc: lab-model: a possible call was not read: @@read( … ({advice})"
        assert flow.marked == ":warning:"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("client", "server"), pairs.PAIRS, ids=lambda name: name)
async def test_possible_call_is_reported_for_any_apis(
    client: str, server: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    text = ["I look. ", "@@read(path", "=a.py)@@"]
    body = pairs.make_stream(server, text) if stream else pairs.make_whole_reply(server, "".join(text))
    reply = Reply([body], {"content-type": SHAPES[server].media_type} if stream else JSON)
    lab = await start(reply, vtc_upstream_api=server, vtc_log=str(tmp_path / "log"))
    await lab.post(SHAPES[client].request(stream=stream), path=SHAPES[client].build_path(stream=stream))
    flow = await lab.flow()
    assert "a possible call was not read: @@read( …" in flow.comment
    assert flow.marked == ":warning:"
    assert flow.metadata["vtc"]["outcome"] == "unread"
    assert json.loads((tmp_path / "log").read_text())["unread"] is True


async def test_possible_call_is_reported_by_the_name_that_the_server_received(start: Start) -> None:
    """The other API forbids a dot in the name of a tool."""
    tool = {"type": "function", "function": {"name": "files.read", "parameters": {"type": "object"}}}
    lab = await start(
        Reply([pairs.make_stream("anthropic-messages", ["@@files__read(path=a.py)@@"])], SSE),
        vtc_upstream_api="anthropic-messages",
    )
    await lab.post(chat.request(stream=True, tools=[tool]))
    assert "a possible call was not read: @@files__read( …" in (await lab.flow()).comment


async def test_a_plain_answer_and_native_calls_are_no_such_thing(start: Start) -> None:
    native = chat.chunk(
        {"tool_calls": [chat.native(0, id="a", name="read", arguments='{"filePath": "x"}')]}, "tool_calls"
    )
    replies = by_turn(chat.make_stream("I would use read next."), [chat.ROLE, native, chat.DONE])
    lab = await start(replies, vtc_keep_bodies="on")
    for _ in range(2):
        await lab.post(ASK)
        assert (await lab.flow()).comment == "vtc: lab-model: nothing was changed"
