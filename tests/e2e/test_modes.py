"""Modes observe and off, options that change during a run, and their effect on a flow afterwards."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions, http
from mitmproxy.io import FlowReader, FlowWriter

from tests.apis import chat
from tests.e2e.conftest import PATH, Start
from tests.e2e.upstream import JSON, Reply, Seen

ASK = chat.request(stream=True)
TEXT = "Go <read><filePath>/a</filePath></read>"
STREAM = chat.make_stream(*TEXT)
WHOLE = chat.encode_json(chat.completion(TEXT))


def script(seen: Seen) -> Reply:
    return Reply(STREAM) if b'"stream": true' in seen.body else Reply([WHOLE], JSON, framing="length")


@pytest.mark.parametrize("stream", [True, False])
async def test_observe_changes_nothing_and_reports_possible_actions(stream: bool, start: Start) -> None:
    lab = await start(script, vtc_mode="observe", vtc_tools="prompt")
    ask = chat.request(stream=stream)
    answer = await lab.post(ask)
    assert answer.body == (b"".join(STREAM) if stream else WHOLE)
    assert lab.upstream.seen[0].body == chat.encode_json(ask)
    flow = await lab.flow()
    assert flow.comment == "vtc (observing): lab-model: read, tag -> tool_calls, 3 tools -> tag prompt"
    assert [call["name"] for call in flow.metadata["vtc"]["calls"]] == ["read"]


async def test_with_memory_off_everything_else_is_the_same(start: Start) -> None:
    called = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    asked = [chat.request(stream=True, messages=turns[:length]) for length in (1, 3, 3)]
    sent, answered = [], []
    for cache in ("on", "off"):
        lab = await start(script, vtc_tools="prompt", vtc_cache=cache)
        answered.append([chat.read((await lab.post(one)).body) for one in asked])
        sent.append([seen.body for seen in lab.upstream.seen])
    assert sent[0] == sent[1]
    assert [[message.content for message in one] for one in answered] == [["Go"] * 3] * 2
    assert [[message.calls for message in one] for one in answered] == [[[("read", {"filePath": "/a"})]] * 3] * 2


async def test_observe_holds_nothing_back(start: Start) -> None:
    """Each piece arrives before the next is sent, even inside of a call."""
    arrived = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        for piece in STREAM:
            yield piece
            await arrived.wait()
            arrived.clear()

    lab = await start(Reply(pieces()), vtc_mode="observe")
    received = []
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        async for piece in response.aiter_raw():
            received.append(piece)
            arrived.set()
    assert received == STREAM


@pytest.mark.parametrize("stream", [True, False])
async def test_off_does_nothing(stream: bool, start: Start) -> None:
    lab = await start(script, vtc_mode="off", vtc_tools="prompt")
    ask = chat.request(stream=stream)
    assert (await lab.post(ask)).body == (b"".join(STREAM) if stream else WHOLE)
    flow = await lab.flow()
    assert (lab.upstream.seen[0].body, flow.comment, flow.marked) == (chat.encode_json(ask), "", "")
    assert "vtc" not in flow.metadata


async def test_options_take_effect_while_running(start: Start, tmp_path: Path) -> None:
    """The next request is processed with the new options."""
    lab = await start(script)
    assert (await lab.post(ASK)).message.calls
    lab.set(vtc_mode="off")
    assert not (await lab.post(ASK)).message.calls
    lab.set(vtc_mode="rewrite", vtc_tools="prompt")
    assert (await lab.post(ASK)).message.calls
    assert "tools" not in lab.upstream.seen[-1].json
    profile = {"kind": "model", "name": "mine", "match": {"model": chat.MODEL}, "tools": "native", "markers": ["Go "]}
    (tmp_path / "mine.yaml").write_bytes(chat.encode_json(profile))
    lab.set(vtc_tools="auto", vtc_profiles=[str(tmp_path)])
    message = (await lab.post(ASK)).message
    assert (message.content, bool(message.calls)) == ("", True)
    assert lab.upstream.seen[-1].json == ASK


async def test_rejected_option_keeps_the_others_in_force(start: Start, tmp_path: Path) -> None:
    """A wrong value in mitmweb's editor does not stop the traffic."""
    lab = await start(script)
    (tmp_path / "bad.yaml").write_text("kind: model\nname: x\nmatch: {}\nlenientt: true\n")
    for bad in ({"vtc_profiles": [str(tmp_path)]}, {"vtc_model": "nobody"}, {"vtc_max_call_bytes": 0}):
        with pytest.raises(exceptions.OptionsError):
            lab.set(**bad)
        assert (await lab.post(ASK)).message.calls == [("read", {"filePath": "/a"})]


async def test_a_change_does_not_reach_into_a_running_exchange(start: Start) -> None:
    """The plan of a request also applies to its reply."""
    asked, changed = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        asked.set()
        await changed.wait()
        for piece in STREAM:
            yield piece

    lab = await start(Reply(pieces()))
    running = asyncio.create_task(lab.post(ASK))
    await asked.wait()
    lab.set(vtc_dialect="hermes", vtc_client_patterns=[])
    changed.set()
    assert (await running).message.calls == [("read", {"filePath": "/a"})]


def reload_flow(flow: http.HTTPFlow) -> http.HTTPFlow:
    """Save a flow to a file and return it as loaded from there."""
    file = io.BytesIO()
    FlowWriter(file).add(flow)
    file.seek(0)
    (found,) = FlowReader(file).stream()
    assert isinstance(found, http.HTTPFlow)
    return found


@pytest.mark.parametrize(
    ("ask", "mark"),
    [(ASK, ":hammer:"), (chat.request(), ":hammer:"), (chat.request(messages=5), ":zzz:")],
    ids=["streamed", "whole", "bad"],
)
async def test_the_report_is_saved_with_the_flow(ask: dict[str, Any], mark: str, start: Start) -> None:
    lab = await start(script, vtc_tools="prompt")
    await lab.post(ask)
    flow = await lab.flow()
    found = reload_flow(flow)
    assert found.metadata["vtc"] == flow.metadata["vtc"]
    assert found.metadata["vtc"]["notes" if mark == ":zzz:" else "request"]
    assert (found.comment, found.marked) == (flow.comment, mark)


async def test_secrets_are_in_no_report(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "vtc")
    lab = await start(script, vtc_tools="prompt")
    await lab.post(ASK, headers={"authorization": "Bearer sk-secret", "x-api-key": "sk-secret"})
    flow = await lab.flow()
    reports = str(flow.metadata) + flow.comment + "".join(r.getMessage() for r in caplog.records if "vtc" in r.name)
    assert "tool_calls" in reports
    assert "sk-secret" not in reports


async def test_reason_is_reported_again_only_if_it_changes(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "vtc")
    lab = await start(script, vtc_tools="prompt")
    for model in ("one", "one", "qwen3-coder", "one"):
        await lab.post({**ASK, "model": model})
    lines = [record.getMessage() for record in caplog.records if record.levelname == "DEBUG"]
    reports = [line for line in lines if "ms of work" not in line]  # also logged on a busy machine
    assert ["profile qwen3-coder" in line for line in reports] == [False, True, False]


async def test_a_flow_that_is_replayed_is_rewritten_again(start: Start) -> None:
    lab = await start(script, vtc_tools="prompt")
    await lab.post(ASK)
    first = await lab.flow()
    copy = first.copy()
    copy.request.content = chat.encode_json(ASK)
    copy.metadata.clear()
    lab.proxy.master.commands.call("replay.client", [copy])
    again = await lab.flow()
    assert [call["name"] for call in again.metadata["vtc"]["calls"]] == ["read"]
    assert lab.upstream.seen[0].body == lab.upstream.seen[1].body
