"""The hooks one by one, and the contract of mitmproxy's stream callable."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat
from vtc.proxy.addon import METADATA, VirtualToolCalling

SSE = http.Headers(content_type="text/event-stream")
JSON = http.Headers(content_type="application/json")
TAG = chat.DIALECTS["tag"]("read", {"filePath": "/a"})


class Flows:
    """Passes flows through the addon's hooks in mitmproxy's order."""

    def __init__(self, addon: VirtualToolCalling, context: taddons.context) -> None:
        self.addon = addon
        self.context = context

    def send_request(self, body: Any = None, *, path: str = "/v1/chat/completions", headers: Any = ()) -> http.HTTPFlow:
        """Return a flow whose request has passed the hooks."""
        content = body if isinstance(body, bytes) else chat.encode_json(body or chat.request(stream=True))
        fields = http.Headers([(b"accept-encoding", b"gzip"), *headers])
        request = tutils.treq(method=b"POST", path=path.encode(), headers=fields, content=content)
        flow = tflow.tflow(req=request)
        asyncio.run(self.addon.request(flow))
        return flow

    def answering(self, headers: http.Headers = SSE, status: int = 200, **asked: Any) -> http.HTTPFlow:
        """Return a flow whose response headers have passed the hooks."""
        flow = self.send_request(**asked)
        flow.response = tutils.tresp(headers=headers.copy(), status_code=status, content=None)
        asyncio.run(self.addon.responseheaders(flow))
        return flow

    def end_reply(self, flow: http.HTTPFlow) -> None:
        """Pass the reply through its hook."""
        asyncio.run(self.addon.response(flow))

    def streaming(self, **asked: Any) -> Callable[[bytes], list[bytes]]:
        flow = self.answering(**asked)
        assert flow.response is not None
        assert callable(flow.response.stream)
        self.flow = flow  # mitmproxy keeps a reference to it
        return flow.response.stream  # type: ignore[return-value]


@pytest.fixture(scope="module")
def loaded() -> Iterator[Flows]:
    addon = VirtualToolCalling()
    with taddons.context(addon) as context:
        context.configure(addon, vtc_mode="rewrite")
        yield Flows(addon, context)


@pytest.fixture
def flows(loaded: Flows) -> Iterator[Flows]:
    yield loaded
    loaded.context.options.reset()
    loaded.context.configure(loaded.addon, vtc_mode="rewrite")


# The stream callable


def test_text_is_sent_in_the_hook_that_received_it(flows: Flows) -> None:
    stream = flows.streaming()
    for frame in [chat.ROLE, *chat.make_text_chunks("Let", " me", " look", " at `x` and <b>y</b>:")]:
        assert stream(frame) == [frame]


def test_call_is_sent_in_the_hook_that_completed_it(flows: Flows) -> None:
    stream = flows.streaming()
    call = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
    assert [stream(frame) for frame in chat.make_text_chunks(*call[:-1])] == [[]] * (len(call) - 1)
    (out,) = stream(chat.make_text_chunks(call[-1])[0])
    assert out.count(b"tool_calls") == 2


def test_nothing_to_send_is_an_empty_list(flows: Flows) -> None:
    """b"" would end the body for the client."""
    stream = flows.streaming()
    assert stream(b"data: ") == []
    assert stream(b'{"choices": [{"delta": {"content": "<re"}}]}') == []
    assert stream(b"\n\n") == []


@given(st.lists(st.binary(max_size=30) | st.sampled_from([*chat.make_stream("a", *TAG), b""]), max_size=12))
def test_it_never_raises_and_never_ends_the_body(loaded: Flows, pieces: list[bytes]) -> None:
    """This holds for any bytes, and for repeated ends."""
    stream = loaded.streaming()
    for piece in [*pieces, b"", b""]:
        out: Any = stream(piece)
        assert isinstance(out, list)
        assert all(isinstance(one, bytes) and one for one in out)


def test_addon_never_raises_even_after_an_internal_fault(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = flows.streaming()
    stream(chat.make_text_chunks("Well")[0])

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("vtc.apis.relay.Relay.feed", broken)
    monkeypatch.setattr("vtc.apis.relay.Relay.finish", broken)
    for frame in [*chat.make_text_chunks("b", "c"), chat.DONE]:
        assert stream(frame) == [frame]
    assert stream(b"") == stream(b"") == []


def test_end_may_be_missing_or_repeated(flows: Flows) -> None:
    stream = flows.streaming()
    for frame in chat.make_text_chunks("a", *TAG):
        stream(frame)
    (out,) = stream(b"")
    assert chat.read(chat.ROLE + out).calls == [("read", {"filePath": "/a"})]
    assert stream(b"") == []


# Which replies are streamed through it


@pytest.mark.parametrize(
    ("headers", "status", "streamed"),
    [
        (SSE, 200, "rewritten"),
        (http.Headers(content_type="Text/Event-Stream; charset=utf-8"), 201, "rewritten"),
        (SSE, 400, "no"),
        (SSE, 500, "no"),
        (JSON, 200, "no"),
        (http.Headers(), 200, "no"),
        (http.Headers(content_type="text/event-stream", content_encoding="x-secret"), 200, "passed"),
    ],
)
def test_which_replies_are_streamed(headers: http.Headers, status: int, streamed: str, flows: Flows) -> None:
    response = flows.answering(headers, status).response
    assert response is not None
    kind = {True: "passed", False: "no"}.get(response.stream, "rewritten")  # type: ignore[arg-type]
    assert kind == streamed
    if streamed != "rewritten":
        assert response.headers == headers


@pytest.mark.parametrize("mode", ["rewrite", "observe", "off"])
@pytest.mark.parametrize(
    "body", [chat.request(stream=True, tools=None), chat.request(stream=True, tool_choice="none"), b"no request"]
)
def test_unread_stream_is_forwarded_at_once(body: Any, mode: str, flows: Flows) -> None:
    """It is not buffered, and its headers are unchanged."""
    flows.context.configure(flows.addon, vtc_mode=mode)
    headers = http.Headers(content_type="text/event-stream", content_encoding="gzip", content_length="5")
    response = flows.answering(headers, body=body).response
    assert response is not None
    assert (response.stream, response.headers) == (True, headers)


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        ("HTTP/1.1", {"content-length": "5"}, {"transfer-encoding": "chunked"}),
        ("HTTP/1.1", {"content-encoding": "gzip", "content-length": "5"}, {"transfer-encoding": "chunked"}),
        ("HTTP/1.1", {"transfer-encoding": "chunked"}, {"transfer-encoding": "chunked"}),
        ("HTTP/1.1", {}, {"transfer-encoding": "chunked", "connection": "close"}),
        ("HTTP/1.0", {"content-length": "5"}, {}),
        ("HTTP/2.0", {"content-length": "5", "content-encoding": "br"}, {}),
    ],
)
def test_headers_of_a_rewritten_stream(
    version: str, before: dict[str, str], after: dict[str, str], flows: Flows
) -> None:
    """The length is unknown beforehand, and the body is not encoded. A connection that ends with its body is closed."""
    flow = flows.send_request()
    headers = http.Headers(
        [(b"content-type", b"text/event-stream"), *((k.encode(), v.encode()) for k, v in before.items())]
    )
    flow.response = tutils.tresp(http_version=version.encode(), headers=headers, content=None)
    asyncio.run(flows.addon.responseheaders(flow))
    assert dict(flow.response.headers) == {"content-type": "text/event-stream", **after}


# Requests


def test_a_reply_is_asked_for_in_a_readable_coding_only_if_it_is_read(flows: Flows) -> None:
    assert flows.send_request().request.headers["accept-encoding"] == "identity"
    assert flows.send_request(chat.request(tools=None)).request.headers["accept-encoding"] == "gzip"
    assert flows.send_request(b"x").request.headers["accept-encoding"] == "gzip"
    assert flows.send_request(path="/v1/embeddings").request.headers["accept-encoding"] == "gzip"
    flows.context.configure(flows.addon, vtc_mode="observe")
    assert flows.send_request().request.headers["accept-encoding"] == "gzip"


def test_request_with_a_broken_content_coding_is_ignored(flows: Flows) -> None:
    flow = flows.send_request(b"not gzip", headers=[(b"content-encoding", b"gzip")])
    assert flow.request.raw_content == b"not gzip"
    assert flow.metadata[METADATA]["notes"][0].startswith("left alone: ")


@pytest.mark.parametrize("headers", [JSON, SSE], ids=["JSON", "events"])
def test_other_flows_have_no_report(headers: http.Headers, flows: Flows) -> None:
    flow = flows.send_request(path="/v1/embeddings")
    flow.response = tutils.tresp(headers=headers.copy(), content=None)
    asyncio.run(flows.addon.responseheaders(flow))
    assert flow.response.stream is (headers is SSE)  # mitmproxy would buffer a stream until its end
    flows.end_reply(flow)
    flows.addon.error(flow)
    assert (flow.metadata, flow.comment, flow.marked) == ({}, "", "")


# State after the end


def end_flow(flows: Flows, how: str) -> http.HTTPFlow:
    flow = flows.answering()
    assert flow.response is not None
    assert callable(flow.response.stream)
    for frame in chat.make_stream(TAG):
        flow.response.stream(frame)
    if how == "response":
        flow.response.stream(b"")
    if how == "response":
        flows.end_reply(flow)
    else:
        flows.addon.error(flow)
    return flow


@pytest.mark.parametrize("how", ["response", "error"])
def test_a_flow_that_ended_is_reported_and_forgotten(how: str, flows: Flows) -> None:
    """A stream that ended with an error is reported like any other, and only once."""
    flow = end_flow(flows, how)
    assert [call["name"] for call in flow.metadata[METADATA]["calls"]] == ["read"]
    flow.comment = "mine"
    flows.end_reply(flow)
    flows.addon.error(flow)
    assert flow.comment == "mine"


@pytest.mark.parametrize("how", ["response", "error", None])
def test_nothing_is_kept_of_a_flow(how: str | None, flows: Flows) -> None:
    """This includes a flow for which no end is ever signalled."""
    flow = end_flow(flows, how) if how else flows.answering()
    gone = weakref.ref(flow)
    del flow
    gc.collect()
    assert gone() is None


def test_the_state_of_a_stream_is_dropped_at_its_end(flows: Flows) -> None:
    """mitmproxy keeps flows for its list; the state for reading them is freed."""
    flow = end_flow(flows, "response")
    assert flow.response is not None
    assert callable(flow.response.stream)
    stream = weakref.ref(flow.response.stream)
    flow.response.stream = False  # as in mitmproxy's copies and files
    gc.collect()
    assert stream() is None


def test_a_whole_reply(flows: Flows) -> None:
    flow = flows.answering(JSON)
    assert flow.response is not None
    flow.response.content = chat.encode_json(chat.completion(TAG))
    flows.end_reply(flow)
    assert chat.read(flow.response.content).calls == [("read", {"filePath": "/a"})]
    assert flow.response.headers["content-length"] == str(len(flow.response.raw_content or b""))


def test_stats_as_a_command_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The command works in mitmweb's command bar during a run; the statistics are also printed at the end."""
    addon = VirtualToolCalling()
    with taddons.context(addon) as context:
        context.configure(addon, vtc_mode="rewrite")
        assert json.loads(context.master.commands.call("vtc.stats"))["total"]["exchanges"] == 0
        end_flow(Flows(addon, context), "response")
        found = json.loads(context.master.commands.call("vtc.stats"))
        for by in (found["total"], found["clients"]["other"], found["models"]["lab-model"]):
            assert (by["exchanges"], by["calls"]) == (1, 1)
        assert found["dialects"]["tag"]["calls"] == 1
        caplog.set_level(logging.INFO, "vtc")
        addon.done()
    messages = [record.message for record in caplog.records if record.name.startswith("vtc")]
    assert [line.partition(": ")[2].partition(":")[0] for line in messages] == [
        "client other",
        "model lab-model",
        "dialect tag",
    ]
    assert all("1 call (0 repaired), 0 left as text" in line for line in messages)


# A replayed flow


def test_replayed_flow_is_processed_again() -> None:
    """Otherwise its rewritten request would offer no tools, and its reply would not be read."""
    addon, body = VirtualToolCalling(), chat.encode_json(chat.request())

    def answer_flow(flow: http.HTTPFlow, content: str) -> None:
        asyncio.run(addon.request(flow))
        reply = chat.encode_json(chat.completion(content))
        flow.response = http.Response.make(200, reply, {"content-type": "application/json"})
        asyncio.run(addon.response(flow))

    with taddons.context(addon) as context:
        context.configure(addon, vtc_tools="prompt", vtc_dialect="hermes", vtc_keep_bodies="on")
        flow = tflow.tflow(req=tutils.treq(method=b"POST", path=b"/v1/chat/completions", content=body))
        answer_flow(flow, "Hi")
        assert flow.request.content != body
        again = flow.copy()
        again.live, again.response, again.is_replay = True, None, "request"
        answer_flow(again, "".join(TAG))
    assert again.request.content == flow.request.content
    assert again.response is not None
    assert chat.read(again.response.content or b"").calls == [("read", {"filePath": "/a"})]
    assert "read" in again.comment


@pytest.mark.parametrize(("version", "chunked"), [("HTTP/1.0", False), ("HTTP/1.1", True)])
def test_a_client_of_http_1_0_is_sent_no_chunks(version: str, chunked: bool, flows: Flows) -> None:
    flow = flows.send_request()
    flow.request.http_version = version
    headers = http.Headers(content_type="text/event-stream", content_length="9")
    flow.response = tutils.tresp(headers=headers, content=None)
    flow.response.http_version = "HTTP/1.1"
    asyncio.run(flows.addon.responseheaders(flow))
    assert ("transfer-encoding" in flow.response.headers) is chunked
    assert "content-length" not in flow.response.headers
