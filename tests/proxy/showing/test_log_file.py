"""The log for programs: one line for each exchange, without content and secrets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions, http
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.showing.stats import Stats

TEXT = "My answer. " + chat.DIALECTS["hermes"]("read", {"filePath": "/my/file"})
REFUSED = chat.DIALECTS["hermes"]("sh.rm", {"filePath": "/my/file"})


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[tuple[VirtualToolCalling, taddons.context, Path]]:
    addon, path = VirtualToolCalling(), tmp_path / "vtc.jsonl"
    with taddons.context(addon) as context:
        context.configure(addon, vtc_log=str(path), vtc_tools="prompt")
        yield addon, context, path


def exchange(
    addon: VirtualToolCalling,
    text: str = TEXT,
    body: bytes | None = None,
    path: str = "/v1/chat/completions?key=abcdefgh",
) -> http.HTTPFlow:
    headers = http.Headers(content_type="application/json", authorization="Bearer open-sesame")
    content = chat.encode_json(chat.request("My question.")) if body is None else body
    flow = tflow.tflow(req=tutils.treq(method=b"POST", path=path.encode(), headers=headers, content=content))
    asyncio.run(addon.request(flow))
    flow.response = http.Response.make(
        200, chat.encode_json(chat.completion(text)), {"content-type": "application/json"}
    )
    asyncio.run(addon.responseheaders(flow))
    asyncio.run(addon.response(flow))
    return flow


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_line_an_exchange(loaded: Any) -> None:
    addon, _, path = loaded
    flow = exchange(addon)
    exchange(addon, TEXT + REFUSED)
    exchange(addon, body=b"x")
    first, second, third = lines(path)
    assert first["time"].endswith("+00:00")
    assert (first["id"], first["host"], first["path"], first["status"]) == (
        flow.id,
        "address",
        "/v1/chat/completions",
        200,
    )
    assert (first["outcome"], first["client"], first["model"]) == ("rewritten", "other", "unknown")
    assert [call["name"] for call in first["calls"]] == ["read"]
    assert first["sizes"]["request_came"] < first["sizes"]["request_went"]
    assert first["seconds"] > 0
    assert second["outcome"] == "refused"
    reason = "no tool 'sh.rm' is offered; offered: read, list_files, write"
    assert second["refusals"] == [{"reason": reason, "dialect": "hermes", "name": "", "left_out": False}]
    assert third["outcome"] == "left alone"


def test_log_contains_no_content(loaded: Any) -> None:
    addon, _, path = loaded
    exchange(addon, TEXT + REFUSED + '<tool_call>{"name": "read", "arguments": {"a": "My answer')
    exchange(addon, "I look. @@read(filePath=/my/file)@@")
    text = path.read_text("utf-8")
    assert "rm" in text
    for word in ("My question", "My answer", "/my/file", "open-sesame", "abcdefgh"):
        assert word not in text


def test_the_log_can_be_counted(loaded: Any) -> None:
    addon, context, path = loaded
    for text in (TEXT, TEXT + REFUSED):
        exchange(addon, text)
    stats = Stats()
    for line in lines(path):
        stats.add(line)
    assert stats.as_dict() == json.loads(context.master.commands.call("vtc.stats"))


def test_it_can_be_moved_away_and_switched_off(loaded: Any) -> None:
    addon, context, path = loaded
    exchange(addon)
    path.rename(path.with_suffix(".old"))
    exchange(addon)
    assert len(lines(path)) == 1
    context.configure(addon, vtc_log="")
    exchange(addon)
    assert len(lines(path)) == 1


def test_a_file_that_cannot_be_written_is_refused(loaded: Any) -> None:
    addon, context, _ = loaded
    with pytest.raises(exceptions.OptionsError, match="vtc_log: /nowhere/at/all cannot be written"):
        context.configure(addon, vtc_log="/nowhere/at/all")


def test_unwritable_file_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    addon, directory = VirtualToolCalling(), tmp_path / "logs"
    directory.mkdir()
    with taddons.context(addon) as context:
        context.configure(addon, vtc_log=str(directory / "vtc.jsonl"))
        (directory / "vtc.jsonl").unlink()
        directory.rmdir()
        for _ in range(2):
            exchange(addon)
        assert [r.levelno for r in caplog.records if "not logged" in r.getMessage()] == [logging.ERROR]
        directory.mkdir()
        exchange(addon)
        assert len(lines(directory / "vtc.jsonl")) == 1


def test_no_value_of_an_argument_is_logged(loaded: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log line for people has no values either; the flow shows them."""
    addon, context, path = loaded
    policy = {"kind": "policy", "name": "mine", "match": {}, "guards": {"arguments": {"misfit": "steer"}}}
    (tmp_path / "mine.yaml").write_bytes(chat.encode_json(policy))
    context.configure(addon, vtc_profiles=[str(tmp_path / "mine.yaml")])
    with caplog.at_level(logging.DEBUG):
        flow = exchange(addon, '<tool_call>{"name": "read", "arguments": {"more": ["DIARY"]}}</tool_call>')
    (line,) = lines(path)
    assert [one["action"] for one in line["policies"]] == ["refused"]
    assert "DIARY" not in path.read_text() + flow.comment + caplog.text


def test_a_key_in_the_path_is_logged_nowhere(loaded: Any, caplog: pytest.LogCaptureFixture) -> None:
    addon, _, path = loaded
    with caplog.at_level(logging.DEBUG):
        for key in ("sk-proj-abcdefghijklmnop", "open-sesame"):
            exchange(addon, path=f"/{key}/v1/chat/completions?key=abcdefgh")
    assert [line["path"] for line in lines(path)] == ["/[secret]/v1/chat/completions"] * 2
    assert "[secret]/v1" in caplog.text
    assert not any(key in path.read_text() + caplog.text for key in ("abcdefgh", "open-sesame"))
