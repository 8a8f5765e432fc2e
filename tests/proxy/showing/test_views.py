"""The content view: the bodies for which mitmproxy chooses it, and its output for any others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mitmproxy import contentviews, http
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat, messages, ollama, responses
from vtc.proxy.showing import views
from vtc.proxy.showing.views import METADATA, ExchangeView

SSE = "text/event-stream; charset=utf-8"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the view in a mitmproxy with the options that it uses."""
    with taddons.context():
        views.register()
        yield


def flow(body: bytes, kind: str, *, path: str = "/v1/chat/completions", status: int = 200) -> http.HTTPFlow:
    """Return a flow from a file that VTC did not see live."""
    headers = http.Headers(content_type="application/json")
    request = tutils.treq(
        method=b"POST", path=path.encode(), headers=headers, content=chat.encode_json(chat.request("hi"))
    )
    found = tflow.tflow(req=request)
    found.response = http.Response.make(status, body, {"content-type": kind})
    return found


def render_view(flow: http.HTTPFlow, side: str = "response", view: str = "auto") -> contentviews.ContentviewResult:
    return contentviews.prettify_message(getattr(flow, side), flow, view)


def test_a_stream_from_a_file_is_the_message_it_adds_up_to() -> None:
    found = render_view(flow(b"".join(chat.make_stream("Hel", "lo")), SSE))
    assert (found.view_name, found.text) == ("VTC", "[assistant]\n  Hello\n  finish_reason: stop")


def test_stream_of_messages_is_the_message_it_adds_up_to() -> None:
    blocks = [messages.text_block(0, "Hel", "lo"), messages.call_block(1, "read", '{"filePath": "/a"}')]
    body = b"".join(messages.make_stream(*blocks, stop_reason="tool_use"))
    found = render_view(flow(body, SSE, path=messages.PATH))
    text = "[assistant]\n  Hello\n  -> read  toolu_1\n       filePath: /a\n  finish_reason: tool_use"
    assert (found.view_name, found.text) == ("VTC", text)


def test_stream_of_ollama_is_the_message_it_adds_up_to() -> None:
    body = b"".join(
        ollama.make_stream(*ollama.make_text_lines("Hel", "lo"), ollama.piece("", ollama.call("read", filePath="/a")))
    )
    found = render_view(flow(body, ollama.NDJSON["content-type"], path=ollama.PATH))
    text = "[assistant]\n  Hello\n  -> read\n       filePath: /a\n  finish_reason: stop"
    assert (found.view_name, found.text) == ("VTC", text)


def test_the_raw_stream_is_one_click_away() -> None:
    body = b"".join(chat.make_stream("Hel", "lo"))
    assert render_view(flow(body, SSE), view="raw").text == body.decode()


def test_a_request_from_a_file() -> None:
    found = render_view(flow(b"{}", "application/json"), "request")
    assert found.view_name == "VTC"
    assert found.text.startswith("[user]\n  hi\n \n[tools]\n  read(filePath): Does read.")


@pytest.mark.parametrize(
    "other",
    [
        flow(b'{"error": "no"}', "application/json", status=400),
        flow(b'{"data": []}', "application/json", path="/v1/embeddings"),
        flow(b"<html></html>", "text/html"),
    ],
    ids=["an error", "another path", "no JSON"],
)
def test_other_replies_use_other_views(other: http.HTTPFlow) -> None:
    assert render_view(other).view_name not in ("VTC", None)


def test_a_request_that_vtc_touched_is_shown_even_if_it_is_none() -> None:
    untouched = flow(b"{}", "application/json")
    untouched.request.content = b"x"
    untouched.metadata[METADATA] = {"request": ["left alone: the body is not a valid chat completion request"]}
    assert "left alone: the body" in render_view(untouched, "request").text


@pytest.mark.parametrize("metadata", [contentviews.Metadata(), contentviews.Metadata(flow=tflow.ttcpflow())])
def test_other_flow_is_rejected(metadata: Any) -> None:
    view = ExchangeView()
    assert view.render_priority(b"x", metadata) < 0
    with pytest.raises(ValueError, match="not an exchange with a model"):
        view.prettify(b"x", metadata)


def test_it_is_registered_once() -> None:
    views.register()
    assert contentviews.registry.available_views().count("vtc") == 1


def test_a_stream_of_responses_is_shown_as_the_message_it_adds_up_to() -> None:
    body = b"".join(
        responses.make_stream(
            responses.reasoning_events("Hm"), responses.text_events("Hel", "lo"), responses.call_events("read", "{}")
        )
    )
    found = flow(body, SSE, path=responses.PATH)
    found.request.content = chat.encode_json(responses.request("hi"))
    assert render_view(found).text == (
        '[assistant]\n  (thought: "Hm", 2 characters)\n  Hello\n  -> read  call_1\n  finish_reason: completed'
    )
    assert render_view(found, "request").text.startswith("[user]\n  hi\n \n[tools]\n  read(filePath): Does read.")
