"""Malformed calls through a real mitmproxy: repaired, reported and counted, by option or by model; and when not."""

from __future__ import annotations

import itertools
import json
import logging
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply

TODO = chat.tool("todo", todos="string")
SEED = '<function_calls>\n<invoke name="todo">\n{"todos": "[-] one\\n[ ] twoinvfunction_calls>'
"""A reply of DeepSeek V3.2: JSON for the parameters, cut in a string, and the closing tags of two elements in one."""
WRITTEN = [("todo", {"todos": "[-] one\n[ ] two"})]
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def replying(text: str, stream: bool, finish: str = "stop") -> Reply:
    if stream:
        return Reply(chat.make_stream(*text, finish=finish))
    return Reply([chat.encode_json(chat.completion(text, finish))], JSON, framing="length")


async def ask_model(lab: Lab, stream: bool = True, model: str = "deepseek-ai/deepseek-v3.2-maas") -> chat.Read:
    return (await lab.post(chat.request(stream=stream, model=model, tools=[TODO]))).message


@STREAM
async def test_the_seed_case(stream: bool, start: Start) -> None:
    """The client gets one call with all its text and the surrounding text, and the comment reports the repair."""
    lab = await start(replying("I plan.\n\n" + SEED, stream))
    assert await ask_model(lab, stream) == chat.Read("I plan.", calls=WRITTEN, finish_reason="tool_calls")
    flow = await lab.flow()
    assert (
        flow.comment
        == "vtc: deepseek-ai/deepseek-v3.2-maas: todo, 1 repaired (corrupt-closer, json-cut), invoke -> tool_calls"
    )
    assert flow.metadata["vtc"]["model"] == "deepseek-v3"
    assert flow.metadata["vtc"]["calls"][0]["repairs"] == ["corrupt-closer", "json-cut"]


@STREAM
async def test_escaped_attributes_and_newlines(stream: bool, start: Start) -> None:
    text = r"<function_calls>\n<invoke name=\"todo\">\n<parameter name=\"todos\">a</parameter>\n</invoke>\n"
    lab = await start(replying(text + "</function_calls>", stream))
    assert (await ask_model(lab, stream)).calls == [("todo", {"todos": "a"})]


@STREAM
@pytest.mark.parametrize(
    "text",
    [
        "Just text with <b>tags</b>.",
        '<invoke name="todo">\n{"todos": "a" + more}\n</invoke>',
        '<invoke name="todo">\n<parameter name="todos">to be continu',
    ],
    ids=["no call", "beyond repair", "no end"],
)
async def test_unrecoverable_call_stays_text(text: str, stream: bool, start: Start) -> None:
    lab = await start(replying(text, stream))
    assert await ask_model(lab, stream) == chat.Read(text, finish_reason="stop")
    refusals = (await lab.report())["refusals"]
    assert [bool(one["reason"]) for one in refusals] == [True] * ("invoke" in text)


@STREAM
async def test_a_reply_that_was_cut_off_is_not_completed(stream: bool, start: Start) -> None:
    """With `finish_reason: length` the rest of the string is missing."""
    lab = await start(replying(SEED, stream, finish="length"))
    assert await ask_model(lab, stream) == chat.Read(SEED, finish_reason="length")


@pytest.mark.parametrize(
    "model",
    [
        "deepseek-ai/deepseek-v3.2-maas",
        "publishers/deepseek-ai/models/deepseek-v3.1-maas",
        "DeepSeek-V3.2",
        "DeepSeek-V3-0324",
        "deepseek/deepseek-chat-v3.1",
        "deepseek/deepseek-v3.2",
        "deepseek-chat",
    ],
)
async def test_models_that_are_known_to_need_it(model: str, start: Start) -> None:
    """The DeepSeek V3 family has these names at Vertex AI, Azure and OpenRouter."""
    lab = await start(chat.make_stream(SEED))
    assert (await ask_model(lab, model=model)).calls == WRITTEN
    assert (await lab.report())["model"] == "deepseek-v3"


@pytest.mark.parametrize(
    ("option", "profile", "repaired"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("on", False, True),
        ("off", True, False),
    ],
)
async def test_the_option_then_the_profile(
    option: str, profile: bool, repaired: bool, start: Start, tmp_path: Any
) -> None:
    lines = {"kind": "model", "name": "mine", "match": {"model": chat.MODEL}, "accept": ["invoke"], "lenient": profile}
    (tmp_path / "mine.yaml").write_text(json.dumps(lines))
    lab = await start(chat.make_stream(SEED), vtc_profiles=[str(tmp_path)], vtc_lenient=option)
    assert bool((await ask_model(lab, model=chat.MODEL)).calls) is repaired


async def test_the_switch_works_while_running(start: Start) -> None:
    """The option can be changed in mitmweb's editor."""
    lab = await start(chat.make_stream(SEED))
    found = []
    for value in ("on", "off", "auto"):
        lab.set(vtc_lenient=value)
        found.append(bool((await ask_model(lab)).calls))
    assert found == [True, False, True]


@STREAM
@pytest.mark.parametrize("lenient", ["on", "off"])
async def test_valid_calls_are_read_equally(lenient: str, stream: bool, start: Start) -> None:
    text = '<function_calls>\n<invoke name="todo">\n<parameter name="todos">a</parameter>\n</invoke>\n</function_calls>'
    lab = await start(replying(text, stream), vtc_lenient=lenient)
    assert await ask_model(lab, stream) == chat.Read(calls=[("todo", {"todos": "a"})], finish_reason="tool_calls")
    assert (await lab.flow()).comment == "vtc: deepseek-ai/deepseek-v3.2-maas: todo, invoke -> tool_calls"


async def test_a_call_beyond_the_limit_is_not_repaired(start: Start) -> None:
    """The limit is an option."""
    lab = await start(chat.make_stream(*SEED), vtc_max_call_bytes=40)
    assert await ask_model(lab) == chat.Read(SEED, finish_reason="stop")
    assert "longer than 40 bytes" in (await lab.report())["refusals"][0]["reason"]


@pytest.mark.parametrize(("tick", "warned"), [(0.001, False), (0.2, True)])
async def test_slow_work_is_a_warning(
    tick: float, warned: bool, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More than 100 ms of work on one reply are logged as a warning."""
    ticks = itertools.count()
    monkeypatch.setattr("vtc.proxy.addon.time.perf_counter", lambda: next(ticks) * tick)
    lab = await start(chat.make_stream(SEED))
    for _ in range(2):  # the first exchange compiles the dialects, which is no fault
        await ask_model(lab)
        await lab.flow()
    found = [record for record in caplog.records if "ms of work" in record.getMessage()]
    assert len(found) == warned
    assert all(record.levelno == logging.WARNING and "deepseek-v3" in record.getMessage() for record in found)


async def test_counts_while_running_and_at_the_end(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vtc")
    lab = await start(chat.make_stream(SEED))
    for _ in range(2):
        await ask_model(lab)
        await lab.flow()
    figures = json.loads(lab.proxy.master.commands.execute("vtc.stats"))["models"]["deepseek-v3"]
    assert {key: figures[key] for key in ("exchanges", "calls", "repaired", "refused", "success_rate")} == {
        "exchanges": 2,
        "calls": 2,
        "repaired": 2,
        "refused": 0,
        "success_rate": 1.0,
    }
    assert figures["repairs"] == {"corrupt-closer": 2, "json-cut": 2}
    lab.proxy.addon.done()
    lines = [record.getMessage() for record in caplog.records]
    summary = "vtc: model deepseek-v3: 2 exchanges, 2 calls (2 repaired), 0 left as text, 0 unread, 0 errors in VTC"
    assert any(line.startswith(summary) for line in lines)
