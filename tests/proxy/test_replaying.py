"""Captured flows through today's profiles."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.io import FlowWriter
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat, messages
from vtc.profiles import loader
from vtc.profiles.planner import Planner, Settings
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.replaying import replayed

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
TAG = chat.DIALECTS["tag"]("read", {"filePath": "/a"})


def captured(
    text: str, *, seen: bool = True, status: int = 200, of_messages: bool = False, **fields: Any
) -> http.HTTPFlow:
    """A flow as it was captured, with what VTC did to it if it had seen it."""
    options = {key: fields.pop(key) for key in list(fields) if key.startswith("vtc_")}
    headers = http.Headers(content_type="application/json", authorization="Bearer open-sesame")
    body = chat.encoded((messages if of_messages else chat).request(**fields))
    path = b"/v1/messages" if of_messages else b"/v1/chat/completions"
    flow = tflow.tflow(req=tutils.treq(method=b"POST", path=path, headers=headers, content=body))
    addon = VirtualToolCalling()
    with taddons.context(addon) as context:
        context.configure(addon, **{"vtc_keep_bodies": "on", "vtc_mode": "rewrite" if seen else "off", **options})
        addon.request(flow)
        reply = chat.encoded(messages.message(messages.text(text)) if of_messages else chat.completion(text))
        flow.response = http.Response.make(status, reply, {"content-type": "application/json"})
        addon.responseheaders(flow)
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
    directories = [loader.builtin_directory(), *([directory] if directory else [])]
    return Planner(loader.load(directories), Settings(**settings))


@pytest.mark.parametrize("text", ["Hello", f"I look.\n{CALL}"])
def test_with_the_same_profiles_nothing_changes(text: str) -> None:
    assert replayed(captured(text), planner())["result"] == "same"
    assert replayed(captured(text, of_messages=True), planner())["result"] == "same"
    prompted = captured(text, vtc_tools="prompt", vtc_dialect="hermes")
    assert replayed(prompted, planner(tools="prompt", dialect="hermes"))["result"] == "same"


def test_what_other_settings_change_is_shown_for_each_side() -> None:
    found = replayed(captured(CALL), planner(tools="prompt", dialect="hermes"))
    assert found["result"] == "changed"
    (request,) = found["changes"]
    assert request.startswith("--- request captured\n+++ request today\n")
    assert "-[tools]" in request.splitlines()


def test_what_other_profiles_change(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [lab-*]}\naccept: [tag]\n")
    found = replayed(captured(CALL), planner(tmp_path))
    (reply,) = found["changes"]
    assert "+  <tool_call>" in reply.splitlines()
    assert any(line.startswith("-  -> read  call_") for line in reply.splitlines())


def test_of_a_flow_that_vtc_never_saw_what_it_would_do() -> None:
    found = replayed(captured(CALL, seen=False), planner())
    assert (found["result"], found["reason"]) == ("changed", "vtc: hermes -> tool_calls, 1 call")
    assert "+  finish_reason: tool_calls" in found["changes"][0].splitlines()


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


def test_an_error_of_the_server_is_no_reply() -> None:
    assert replayed(captured(CALL, status=500), planner())["result"] == "same"


def test_no_secret_is_shown() -> None:
    found = replayed(captured(f"open-sesame {CALL} sk-abcdefgh123", seen=False), planner())
    assert "[secret]" in str(found)
    assert "open-sesame" not in str(found)
    assert "sk-abcdefgh123" not in str(found)
