"""Clients that declare tools in their prompt and read calls out of the text, as Cline did."""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest

from tests.apis import chat
from tests.e2e.conftest import Answer, Lab, Start
from tests.e2e.upstream import JSON, Reply

AGENT = {"user-agent": "Cline/3.82.0"}
PROMPT = """You are an engineer.

# Tools

## read
Description: Read a file.
Parameters:
- filePath: (required) The path
Usage:
<read>
<filePath>path here</filePath>
</read>

## list_files
Description: List files.
Parameters:
- path: (required) The path
Usage:
<list_files>
<path>path here</path>
</list_files>

# Rules

Be brief.
"""
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def request(stream: bool, *turns: tuple[str, str]) -> dict[str, Any]:
    messages = [{"role": role, "content": text} for role, text in (("system", PROMPT), ("user", "go"), *turns)]
    return chat.request(tools=None, stream=stream, messages=messages)


async def ask(lab: Lab, stream: bool, *turns: tuple[str, str]) -> Answer:
    return await lab.post(request(stream, *turns), headers=AGENT)


def replying(text: str, stream: bool) -> Reply:
    return Reply(chat.streamed(*text)) if stream else Reply([chat.encoded(chat.completion(text))], JSON)


# Recognition


@pytest.mark.parametrize(
    ("agent", "settings", "pattern"),
    [
        ("Cline/3.82.0", {}, "cline"),
        ("Roo-Code/3.1", {}, "roo"),
        ("x KILO-code", {}, "kilo"),
        ("MyAgent/1", {"vtc_client_patterns": ["other", "myagent"]}, "myagent"),
    ],
)
async def test_a_text_client_is_recognised_by_its_user_agent(
    agent: str, settings: dict[str, Any], pattern: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A1, A11: in any case of letters; a debug line names the agent and the pattern, and so does the report."""
    caplog.set_level(logging.DEBUG, "vtc")
    lab = await start(chat.streamed("ok"), **settings)
    await lab.post(request(True), headers={"user-agent": agent})
    (told,) = [line for line in (await lab.report())["why"] if repr(agent) in line and repr(pattern) in line]
    assert ("vtc.proxy.addon", logging.DEBUG, f"vtc: {told}") in caplog.record_tuples


@pytest.mark.parametrize(
    ("agent", "settings", "fields"),
    [
        ("curl/8", {}, {"messages": [{"role": "user", "content": "go"}]}),
        ("Cline/3.82.0", {}, {"messages": [{"role": "user", "content": "go"}]}),
        ("Cline/3.82.0", {"vtc_client_patterns": []}, {}),
    ],
    ids=["another agent", "no tools in its prompt", "recognition is off"],
)
async def test_what_is_not_recognised_is_not_touched(
    agent: str, settings: dict[str, Any], fields: dict[str, Any], start: Start
) -> None:
    """A1, A2: an empty list turns the recognition off; not a byte changes in either direction."""
    reply = chat.streamed(*chat.DIALECTS["hermes"]("read", {"filePath": "/a"}))
    lab = await start(reply, vtc_tools="prompt", **settings)
    body = chat.encoded({**request(True), **fields})
    assert (await lab.post(body, headers={"user-agent": agent})).body == b"".join(reply)
    assert lab.upstream.seen[0].body == body
    assert lab.upstream.seen[0].headers["accept-encoding"] != "identity"


async def test_a_newer_version_that_declares_tools_is_a_native_client(start: Start) -> None:
    lab = await start(chat.streamed(*chat.DIALECTS["tag"]("read", {"filePath": "/a"})))
    answer = await lab.post(chat.request(stream=True), headers=AGENT)
    assert answer.message.calls == [("read", {"filePath": "/a"})]


# A model that writes text too


@STREAM
async def test_calls_in_its_own_dialect_pass_as_they_came(stream: bool, start: Start) -> None:
    text = f"I will check.\n\n{chat.DIALECTS['tag']('list_files', {'path': '.'})}"
    lab = await start(reply := replying(text, stream))
    assert (await ask(lab, stream)).body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert lab.upstream.seen[0].json == request(stream)
    assert [call["name"] for call in (await lab.report())["calls"]] == ["list_files"]


@STREAM
@pytest.mark.parametrize("dialect", ["hermes", "qwen3-coder", "invoke"])
async def test_calls_in_another_dialect_are_written_in_its_own(dialect: str, stream: bool, start: Start) -> None:
    """A5, A8: set off by two newlines, no markup of the model's is seen, and no structured copy stays beside it."""
    text = "I will check." + chat.DIALECTS[dialect]("list_files", {"path": "."})
    lab = await start(replying(text, stream))
    answer = await ask(lab, stream)
    written = "I will check.\n\n<list_files>\n<path>.</path>\n</list_files>"
    assert answer.message == chat.Read(written, finish_reason="stop")
    assert b"tool_calls" not in answer.body
    assert (await lab.flow()).comment == f"vtc: {dialect} -> cline, 1 call"


@STREAM
async def test_text_without_calls_is_byte_identical(stream: bool, start: Start) -> None:
    """D4 for a text client."""
    lab = await start(reply := replying("Done: <b>x</b> <read> `<read>`", stream))
    assert (await ask(lab, stream)).body == b"".join(reply.pieces)  # type: ignore[arg-type]


@STREAM
async def test_a_client_of_one_call_is_told_of_the_others(stream: bool, start: Start) -> None:
    """D10: it carries out the first and would never know."""
    calls = [chat.DIALECTS["hermes"]("read", {"filePath": path}) for path in ("/a", "/b")]
    lab = await start(replying("\n".join(calls), stream))
    content = (await ask(lab, stream)).message.content
    assert content.startswith("<read>\n<filePath>/a</filePath>\n</read>")
    assert "/b" not in content
    assert "Not carried out" in content
    assert len((await lab.report())["refusals"]) == 1


# A model that makes calls itself

PIECES = [
    chat.ROLE,
    *chat.said("I will", " check."),
    chat.chunk({"tool_calls": [chat.native(0, id="a", name="read")]}),
    *(chat.chunk({"tool_calls": [chat.native(0, arguments=piece)]}) for piece in ('{"filePath"', ': "/a\\n\\u00e9"}')),
]
WRITTEN = "I will check.\n\n<read>\n<filePath>\n/a\né\n</filePath>\n</read>"


@pytest.mark.parametrize(
    "end",
    [[chat.chunk({}, "tool_calls"), chat.USED, chat.DONE], [chat.chunk({}, "tool_calls")], [chat.DONE], []],
    ids=["finish and [DONE]", "no [DONE]", "no finish", "neither"],
)
async def test_structured_calls_become_its_text(end: list[bytes], start: Start) -> None:
    """E1, E3: however the stream ends; otherwise the client would see an empty answer."""
    lab = await start([*PIECES, *end])
    answer = await ask(lab, True)
    assert (answer.message.content, answer.message.calls) == (WRITTEN, [])
    assert answer.message.finish_reason == "stop"
    assert b"tool_calls" not in answer.body


async def test_a_whole_reply_with_structured_calls_becomes_its_text(start: Start) -> None:
    """E1."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a\\né"}'}}
    reply = chat.completion("I will check.", "tool_calls", message={"tool_calls": [call]})
    lab = await start(Reply([chat.encoded(reply)], JSON))
    assert (await ask(lab, False)).message == chat.Read(WRITTEN, finish_reason="stop")


async def test_interleaved_structured_calls(start: Start, tmp_path: Any) -> None:
    """E2: put together by index, in the order of the indexes, whether or not they have ids."""
    profile = {"kind": "client", "name": "many", "match": {"user_agent": "Many*"}, "tool_protocol": "text"}
    (tmp_path / "many.yaml").write_bytes(chat.encoded(profile))
    frames = [
        chat.chunk({"tool_calls": [{"index": 1, "function": {"name": "list_files", "arguments": "{"}}]}),
        chat.chunk({"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": ""}}], "content": "Go."}),
        chat.chunk({"tool_calls": [chat.native(0, arguments='{"filePath": '), chat.native(1, arguments='"path": ')]}),
        chat.chunk({"tool_calls": [chat.native(1, arguments='"."}'), chat.native(0, arguments='"/a"}')]}),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    lab = await start(frames, vtc_profiles=[str(tmp_path)])
    answer = await lab.post(request(True), headers={"user-agent": "Many/1"})
    read, listing = "<read>\n<filePath>/a</filePath>\n</read>", "<list_files>\n<path>.</path>\n</list_files>"
    assert answer.message.content == f"Go.\n\n{read}\n\n{listing}"
    assert [call["id"] for call in (await lab.report())["calls"]] == ["call_0", "call_1"]


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_structured_calls_that_were_cut_off(framing: Literal["chunked", "close"], start: Start) -> None:
    """E3: half a call is none, and the report says so."""
    lab = await start(Reply(PIECES[:-1], framing=framing))
    assert (await ask(lab, True)).message.content == "I will check."
    report = await lab.report()
    assert (report["calls"], [one["name"] for one in report["refusals"]]) == ([], ["read"])


# Tools for the model in its own way


async def test_its_tools_become_structured_ones(start: Start) -> None:
    """Its prompt's tools as `tools`, its turns as calls and results; the reply goes back as its text."""
    lab = await start([*PIECES, chat.chunk({}, "tool_calls"), chat.DONE], vtc_tools="native")
    turns = [
        ("assistant", "First.\n\n<list_files>\n<path>.</path>\n</list_files>"),
        ("user", "[list_files for '.'] Result:\na.txt"),
    ]
    assert (await ask(lab, True, *turns)).message.content == WRITTEN
    sent = lab.upstream.seen[0].json
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read", "list_files"]
    system, user, assistant, result = sent["messages"]
    assert "<read>" not in system["content"]
    assert "Be brief." in system["content"]
    assert user == {"role": "user", "content": "go"}
    (call,) = assistant["tool_calls"]
    assert (assistant["content"], call["function"]["name"]) == ("First.", "list_files")
    assert result == {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"}


async def test_its_tools_are_prompted_in_the_models_dialect(start: Start) -> None:
    lab = await start(
        chat.streamed(*chat.DIALECTS["hermes"]("read", {"filePath": "/a"})), vtc_tools="prompt", vtc_dialect="hermes"
    )
    turns = [("assistant", "<list_files>\n<path>.</path>\n</list_files>"), ("user", "[list_files] Result:\na.txt")]
    content = (await ask(lab, True, *turns)).message.content
    assert content == "<read>\n<filePath>/a</filePath>\n</read>"
    system, _, assistant, result = lab.upstream.seen[0].json["messages"]
    assert '"name": "list_files"' in system["content"]
    assert "<list_files>" not in system["content"] + assistant["content"]
    assert assistant["content"] == '<tool_call>\n{"name": "list_files", "arguments": {"path": "."}}\n</tool_call>'
    assert result == {"role": "user", "content": "<tool_response>\na.txt\n</tool_response>"}
