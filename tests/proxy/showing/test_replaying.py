"""Captured flows with the current profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.proxy.captures import CALL, capture_flow
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles
from vtc.proxy.showing.replaying import replay_flow

TAG = chat.DIALECTS["tag"]("read", {"filePath": "/a"})


def planner(directory: Path | None = None, **settings: Any) -> Planner:
    directories = [builtin_directory(), *([directory] if directory else [])]
    return Planner(load_profiles(directories), Settings(**settings))


@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("text", ["Hello", f"I look.\n{CALL}"])
def test_with_the_same_profiles_nothing_changes(text: str, stream: bool, api: str) -> None:
    found = replay_flow(capture_flow(text, api=api, stream=stream), planner())
    assert (found["result"], found["reason"]) == ("same", "vtc: read, hermes -> tool_calls" if CALL in text else "")
    prompted = capture_flow(text, api=api, stream=stream, vtc_tools="prompt", vtc_dialect="hermes")
    assert replay_flow(prompted, planner(tools="prompt", dialect="hermes"))["result"] == "same"


def test_changes_by_other_settings_are_shown_for_each_side() -> None:
    found = replay_flow(capture_flow(CALL), planner(tools="prompt", dialect="hermes"))
    assert found["result"] == "changed"
    (request,) = found["changes"]
    assert request.startswith("--- request captured\n+++ request today\n")
    assert "-[tools]" in request.splitlines()


def test_changes_by_other_profiles(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [read]}\n")
    found = replay_flow(capture_flow(CALL), planner(tmp_path))
    _, reply = found["changes"]  # the tool is not offered either
    assert "+  <tool_call>" in reply.splitlines()
    assert any(line.startswith("-  -> read  call_") for line in reply.splitlines())


@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_possible_changes_of_an_unseen_flow(stream: bool, api: str) -> None:
    found = replay_flow(capture_flow(CALL, seen=False, api=api, stream=stream), planner())
    assert (found["result"], found["reason"]) == ("changed", "vtc: read, hermes -> tool_calls")
    (reply,) = found["changes"]
    assert "-  <tool_call>" in reply.splitlines()
    assert any(line.startswith("+  -> read") for line in reply.splitlines())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"vtc_keep_bodies": "off"}, "the reply was changed and its original not stored"),
        ({"messages": 5}, "not a valid chat completion request"),
    ],
)
def test_flow_that_cannot_be_replayed_is_reported(fields: dict[str, Any], reason: str) -> None:
    found = replay_flow(capture_flow(CALL, **fields), planner())
    assert found["result"] == "skipped"
    assert reason in found["reason"]


PAGE = "a web page: is this the model server?"


def test_page_in_place_of_a_reply_is_reported_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    flow = capture_flow("x")
    flow.response = http.Response.make(200, b"<html>\n proxy error", {"content-type": "text/html; charset=utf-8"})
    found = replay_flow(flow, planner())
    assert (found["result"], found["reason"]) == ("same", f"vtc: the server answered with {PAGE}")
    flow.response.content = b""
    assert replay_flow(flow, planner())["reason"] == ""
    assert caplog.records == []


def test_an_error_of_the_server_is_no_reply() -> None:
    assert replay_flow(capture_flow(CALL, status=500), planner())["result"] == "same"


def test_the_reply_of_an_error_is_the_same_today() -> None:
    flow = capture_flow("", status=400, body={"error": {"failed_generation": CALL}}, vtc_server="hosted")
    assert (flow.response and flow.response.status_code, replay_flow(flow, planner())["result"]) == (200, "same")


def test_no_secret_is_shown() -> None:
    found = replay_flow(capture_flow(f"open-sesame sk-abcdefgh123\n{CALL}", seen=False), planner())
    assert "[secret]" in str(found)
    assert "open-sesame" not in str(found)
    assert "sk-abcdefgh123" not in str(found)
