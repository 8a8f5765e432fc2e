"""Captured flows through today's profiles."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.io import FlowWriter
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat
from tests.apis.shapes import SHAPES, asked
from vtc.profiles import Planner, Settings, builtin_directory, load
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.replaying import replayed

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
TAG = chat.DIALECTS["tag"]("read", {"filePath": "/a"})


def captured(
    text: str,
    *,
    seen: bool = True,
    status: int = 200,
    api: str = "openai-chat",
    path: str = "",
    stream: bool = False,
    body: Any = None,
    **fields: Any,
) -> http.HTTPFlow:
    """A flow as it was captured, with what VTC did to it if it had seen it."""
    shape = SHAPES[api]
    options = {key: fields.pop(key) for key in list(fields) if key.startswith("vtc_")}
    headers = http.Headers(content_type="application/json", authorization="Bearer open-sesame")
    ask = asked(api, stream=stream, **fields)
    path = path or shape.at(stream=stream, model=fields.get("model"))
    flow = tflow.tflow(req=tutils.treq(method=b"POST", path=path.encode(), headers=headers, content=ask))
    addon = VirtualToolCalling()
    with taddons.context(addon) as context:
        context.configure(addon, **{"vtc_keep_bodies": "on", "vtc_mode": "rewrite" if seen else "off", **options})
        asyncio.run(addon.request(flow))
        reply = b"".join(shape.streamed(*text)) if stream else chat.encoded(body or shape.whole(text))
        kind = shape.media_type if stream else "application/json"
        flow.response = http.Response.make(status, reply, {"content-type": kind})
        asyncio.run(addon.responseheaders(flow))
        if callable(flow.response.stream):
            for piece in (reply, b""):
                flow.response.stream(piece)
            flow.response.raw_content = None  # as mitmproxy has it of a streamed body
        asyncio.run(addon.response(flow))
    return flow


def saved(directory: Path, *texts: str, **fields: Any) -> Path:
    """Flows in a file, as mitmproxy writes it."""
    path = directory / "flows"
    with path.open("ab") as file:
        for text in texts:
            FlowWriter(file).add(captured(text, **fields))
    return path


def planner(directory: Path | None = None, **settings: Any) -> Planner:
    directories = [builtin_directory(), *([directory] if directory else [])]
    return Planner(load(directories), Settings(**settings))


@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("text", ["Hello", f"I look.\n{CALL}"])
def test_with_the_same_profiles_nothing_changes(text: str, stream: bool, api: str) -> None:
    found = replayed(captured(text, api=api, stream=stream), planner())
    assert (found["result"], found["reason"]) == ("same", "vtc: read, hermes -> tool_calls" if CALL in text else "")
    prompted = captured(text, api=api, stream=stream, vtc_tools="prompt", vtc_dialect="hermes")
    assert replayed(prompted, planner(tools="prompt", dialect="hermes"))["result"] == "same"


def test_what_other_settings_change_is_shown_for_each_side() -> None:
    found = replayed(captured(CALL), planner(tools="prompt", dialect="hermes"))
    assert found["result"] == "changed"
    (request,) = found["changes"]
    assert request.startswith("--- request captured\n+++ request today\n")
    assert "-[tools]" in request.splitlines()


def test_what_other_profiles_change(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [read]}\n")
    found = replayed(captured(CALL), planner(tmp_path))
    _, reply = found["changes"]  # the tool is not offered either
    assert "+  <tool_call>" in reply.splitlines()
    assert any(line.startswith("-  -> read  call_") for line in reply.splitlines())


@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_of_a_flow_that_vtc_never_saw_what_it_would_do(stream: bool, api: str) -> None:
    found = replayed(captured(CALL, seen=False, api=api, stream=stream), planner())
    assert (found["result"], found["reason"]) == ("changed", "vtc: read, hermes -> tool_calls")
    (reply,) = found["changes"]
    assert "-  <tool_call>" in reply.splitlines()
    assert any(line.startswith("+  -> read") for line in reply.splitlines())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"vtc_keep_bodies": "off"}, "the reply was changed and not kept"),
        ({"messages": 5}, "no chat completion request"),
    ],
)
def test_what_cannot_be_replayed_is_told(fields: dict[str, Any], reason: str) -> None:
    found = replayed(captured(CALL, **fields), planner())
    assert found["result"] == "skipped"
    assert reason in found["reason"]


def test_a_page_in_the_place_of_a_reply_is_told_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    flow = captured("x")
    flow.response = http.Response.make(200, b"<html>\n proxy error", {"content-type": "text/html; charset=utf-8"})
    found = replayed(flow, planner())
    assert (found["result"], found["reason"]) == ("same", "vtc: the reply is no JSON: <html> proxy error")
    flow.response.content = b""
    assert replayed(flow, planner())["reason"] == ""
    assert caplog.records == []


def test_an_error_of_the_server_is_no_reply() -> None:
    assert replayed(captured(CALL, status=500), planner())["result"] == "same"


def test_the_reply_of_an_error_is_the_same_today() -> None:
    flow = captured("", status=400, body={"error": {"failed_generation": CALL}}, vtc_server="hosted")
    assert (flow.response and flow.response.status_code, replayed(flow, planner())["result"]) == (200, "same")


def test_no_secret_is_shown() -> None:
    found = replayed(captured(f"open-sesame sk-abcdefgh123\n{CALL}", seen=False), planner())
    assert "[secret]" in str(found)
    assert "open-sesame" not in str(found)
    assert "sk-abcdefgh123" not in str(found)
