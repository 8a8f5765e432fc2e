"""Anthropic Messages through a real mitmproxy, with the official SDK as the client, streamed and whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.apis import chat, messages, sdks
from tests.apis.messages import assistant, call, check_request, result, text, user
from tests.apis.named_events import Json, frame
from tests.e2e.conftest import PATIENCE, Lab, Start, by_turn
from tests.e2e.upstream import JSON, Reply, Seen

PROMPTS = Path(__file__).parents[1] / "cases" / "prompts"
CLINE = (PROMPTS / "cline.md").read_text("utf-8")
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ASKED: Json = {"model": messages.MODEL, "max_tokens": 1024, "tools": messages.TOOLS}
QUESTION = [user("What is in /etc/motd?")]
CALLED = messages.Read([text("Look:"), call("read", filePath="/a")], "tool_use")
THINKING: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def replying(content: str, stream: bool, stop_reason: str = "end_turn") -> Reply:
    """Return a text reply; a stream has pieces of three characters."""
    if stream:
        pieces = [content[at : at + 3] for at in range(0, len(content), 3)]
        return Reply(messages.make_text_stream(*pieces, stop_reason=stop_reason))
    return Reply([chat.encode_json(messages.message(text(content), stop_reason=stop_reason))], JSON, framing="length")


async def ask(
    lab: Lab, stream: bool, history: list[Json] | None = None, agent: str = "", **fields: Any
) -> messages.Read:
    """Return the reply as anthropic-python parses it."""
    client = anthropic.AsyncAnthropic(
        base_url=lab.proxy.url,
        api_key="sk-none",
        max_retries=0,
        timeout=PATIENCE,
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False),
        default_headers={"user-agent": agent} if agent else {},
    )
    body = {key: one for key, one in {**ASKED, "messages": history or QUESTION, **fields}.items() if one is not None}
    async with client:
        return await sdks.read_message(client, body, stream=stream)


def profile(directory: Path, kind: str = "model", **settings: Any) -> list[str]:
    """Write a user's profile, and return its directory as the option `vtc_profiles` takes it."""
    match = {"match": {"model": messages.MODEL}} if kind == "model" else {}
    (directory / "mine.yaml").write_bytes(chat.encode_json({"kind": kind, "name": "mine", **match, **settings}))
    return [str(directory)]


# Text tool calls


@STREAM
async def test_call_that_claude_leaks_after_a_stray_word(stream: bool, start: Start) -> None:
    """Since 4.7 it leaks on Anthropic's own API: the call is read, and the word neither shown nor sent back."""
    leaked = 'Look:\n\ncourt\n<invoke name="read">\n<parameter name="filePath">/a</parameter>\n</invoke>'
    lab = await start(replying(leaked, stream))
    assert await ask(lab, stream, model="claude-opus-4-7") == CALLED
    assert (await lab.report())["calls"][0]["repairs"] == ["stray-word:court"]


@pytest.mark.parametrize("word", ["count", "call"])
async def test_stray_word_is_buffered_only_until_its_line_goes_on(word: str, start: Start) -> None:
    lab = await start(replying(f"{word}\n{word}er {word}\n<b>", stream=True))
    assert (await ask(lab, stream=True)).content == f"{word}\n{word}er {word}\n<b>"


@STREAM
@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_text_call_in_every_dialect_is_lifted(dialect: str, stream: bool, start: Start) -> None:
    written = chat.DIALECTS[dialect]("read", {"filePath": "/a"})
    content = written if dialect == "bare-json" else f"Look:\n\n{written}"
    lab = await start(replying(content, stream), vtc_dialect=dialect)
    found = await ask(lab, stream)
    assert found == (messages.Read(CALLED.blocks[1:], "tool_use") if dialect == "bare-json" else CALLED)
    assert found.ids[0].startswith("toolu_")
    assert (await lab.report())["calls"][0]["name"] == "read"


@STREAM
async def test_reply_without_a_call_keeps_its_bytes(stream: bool, start: Start) -> None:
    reply = replying("A word is no call.", stream)
    lab = await start(reply)
    answer = await lab.post(messages.request(stream=stream), path=f"{messages.PATH}?beta=true")
    assert answer.body == b"".join(reply.pieces)  # type: ignore[arg-type]
    assert lab.upstream.seen[0].json == messages.request(stream=stream)


@STREAM
async def test_reply_that_was_cut_off_is_no_call(stream: bool, start: Start) -> None:
    lab = await start(replying("Look:\n<read><filePath>/a", stream, "max_tokens"))
    found = await ask(lab, stream)
    assert (found.content, found.calls, found.stop_reason) == ("Look:\n<read><filePath>/a", [], "max_tokens")


@STREAM
@pytest.mark.parametrize("asked", [True, False])
async def test_reasoning_in_the_text_is_a_thinking_block_if_it_was_asked_for(
    asked: bool, stream: bool, start: Start, tmp_path: Path
) -> None:
    content = f"<think>Hm.</think>\n\nLook:\n{chat.DIALECTS['hermes']('read', {'filePath': '/a'})}"
    lab = await start(replying(content, stream), vtc_profiles=profile(tmp_path, reasoning={}))
    found = await ask(lab, stream, **THINKING if asked else {})
    assert found.kinds == ["thinking"] * asked + ["text", "tool_use"]
    assert (found.reasoning, found.content, found.calls) == ("Hm." * asked, "Look:", CALLED.calls)


async def test_error_within_a_stream_reaches_the_client(start: Start) -> None:
    lab = await start([messages.START, *messages.text_block(0, "a")[:-1], frame(messages.error())])
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        await ask(lab, True)


async def test_client_that_waits_is_sent_a_ping(start: Start) -> None:
    """Pings are sent only while a call is buffered."""
    written = chat.DIALECTS["hermes"]("read", {"filePath": "/a" * 50})
    lab = await start(messages.make_text_stream("Look:", *written), vtc_keep_alive=15)
    clock = iter(range(0, 100000, 10))
    lab.proxy.addon.clock = lambda: next(clock)
    answer = await lab.post(messages.request(stream=True), path=messages.PATH)
    assert answer.body.count(b"event: ping\n") > 5
    assert messages.read(answer.body).calls == [("read", {"filePath": "/a" * 50})]


# A model that knows no tools


def strict_model(dialect: str, *, stream: bool) -> Any:
    """Return a server that rejects unknown fields, and answers only if the whole cycle arrives as text."""

    def script(seen: Seen) -> Reply:
        body = seen.json
        check_request(body)
        kinds = {
            one["type"]
            for message in body["messages"]
            if isinstance(message["content"], list)
            for one in message["content"]
        }
        if {"tools", "tool_choice"} & set(body) or {"tool_use", "tool_result"} & kinds:
            return Reply([chat.encode_json(messages.error("this server knows no tools"))], JSON, 400)
        if "read" not in str(body.get("system")):
            return Reply([chat.encode_json(messages.error("the model was not told of its tools"))], JSON, 400)
        if len(body["messages"]) == 1:
            return replying(f"I will look.\n\n{chat.DIALECTS[dialect]('read', {'filePath': '/etc/motd'})}", stream)
        return replying("It says moose." if "moose" in str(body["messages"][-1]) else "No idea.", stream)

    return script


@STREAM
@pytest.mark.parametrize("dialect", ["hermes", "qwen3-coder", "invoke", "tag"])
async def test_model_that_knows_no_tools_takes_part_in_the_whole_cycle(
    dialect: str, stream: bool, start: Start
) -> None:
    lab = await start(strict_model(dialect, stream=stream), vtc_tools="prompt", vtc_dialect=dialect)
    billing = text("x-anthropic-billing-header: cc_version=2; cch=1;")
    fields: Json = {"system": [billing, text("Be brief.")], "tool_choice": {"type": "any"}}
    first = await ask(lab, stream, **fields)
    assert first.calls == [("read", {"filePath": "/etc/motd"})]
    (id_,) = first.ids
    history = [*QUESTION, assistant(*first.blocks), user([result("moose", id_), text("Well?")])]
    assert (await ask(lab, stream, history, **fields)).content == "It says moose."
    system = lab.upstream.seen[1].json["system"]
    assert billing not in system  # it differs in each request
    assert "at least one function" in system[0]["text"]


# Text clients


def get_only_text(reply: messages.Read) -> str:
    """Return the content of the single block of text that a text client gets."""
    assert reply.kinds == ["text"]
    assert reply.stop_reason == "end_turn"
    return reply.content


CLINES: Json = {
    "tools": None,
    "system": [{**text(CLINE), "cache_control": {"type": "ephemeral"}}],
    "agent": "Cline/3.82.0",
}
READ = "<read_file>\n<path>a.py</path>\n</read_file>"


@STREAM
async def test_client_of_text_is_given_calls_in_its_own_dialect(stream: bool, start: Start) -> None:
    written = chat.DIALECTS["hermes"]("read_file", {"path": "a.py"})
    lab = await start(replying(f"Look:\n{written}", stream), vtc_dialect="hermes", vtc_tools="prompt")
    assert get_only_text(await ask(lab, stream, **CLINES)) == f"Look:\n\n{READ}"
    (system,) = lab.upstream.seen[0].json["system"]
    assert system["cache_control"] == {"type": "ephemeral"}
    assert "<tool_call>" in system["text"]


@STREAM
async def test_client_of_text_is_promoted(stream: bool, start: Start) -> None:
    """The model gets `tools`, and its calls are returned in the same block of text."""
    reply = messages.message(text("Look:"), call("read_file", path="a.py"), stop_reason="tool_use")
    blocks = [messages.text_block(0, "Look:"), messages.call_block(1, "read_file", '{"path":', '"a.py"}')]
    streamed = Reply(messages.make_stream(*blocks, stop_reason="tool_use"))
    lab = await start(streamed if stream else Reply([chat.encode_json(reply)], JSON), vtc_tools="native")
    history = [*QUESTION, assistant(text(READ)), user([text("[read_file for 'a.py'] Result:"), text("1 + 1")])]
    assert get_only_text(await ask(lab, stream, history, **CLINES)) == f"Look:\n\n{READ}"
    body = lab.upstream.seen[0].json
    check_request(body)
    assert "read_file" in [tool["name"] for tool in body["tools"]]
    assert [one["type"] for history in body["messages"][1:] for one in history["content"]] == [
        "tool_use",
        "tool_result",
    ]


# Choices and policies


@STREAM
async def test_missing_required_call_is_reported(stream: bool, start: Start) -> None:
    lab = await start(replying("No.", stream))
    await ask(lab, stream, tool_choice={"type": "tool", "name": "read"})
    (policy,) = (await lab.report())["policies"]
    assert (policy["policy"], policy["action"], policy["tool"]) == ("tool_choice", "missed", "read")


@STREAM
async def test_calls_are_not_lifted_if_none_is_allowed(stream: bool, start: Start) -> None:
    written = f"Look: {chat.DIALECTS['hermes']('read', {'filePath': '/a'})}"
    lab = await start(replying(written, stream))
    assert (await ask(lab, stream, tool_choice={"type": "none"})).content == written


@STREAM
async def test_one_call_is_forwarded_if_the_client_accepts_one(stream: bool, start: Start) -> None:
    written = "\n".join(chat.DIALECTS["hermes"]("read", {"filePath": path}) for path in "ab")
    lab = await start(replying(written, stream))
    found = await ask(lab, stream, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert found.calls == [("read", {"filePath": "a"})]


@STREAM
@pytest.mark.parametrize("native", [False, True])
async def test_refused_call_becomes_a_message(native: bool, stream: bool, start: Start, tmp_path: Path) -> None:
    blocks = [messages.text_block(0, "Look:"), messages.call_block(1, "read", '{"filePath":', '"/a"}')]
    whole = messages.message(*CALLED.blocks, stop_reason="tool_use")
    made = (
        Reply(messages.make_stream(*blocks, stop_reason="tool_use"))
        if stream
        else Reply([chat.encode_json(whole)], JSON)
    )
    written = replying(f"Look: {chat.DIALECTS['hermes']('read', {'filePath': '/a'})}", stream)
    denying = profile(tmp_path, guards={"denied_tools": ["read"], "on_denied": "steer"})
    lab = await start(made if native else written, vtc_profiles=denying)
    found = await ask(lab, stream)
    assert (found.kinds, found.stop_reason) == (["text"], "end_turn")
    assert found.content.startswith("Look:")
    assert "read" in found.content
    assert "/a" not in found.content
    assert [tool["name"] for tool in lab.upstream.seen[0].json["tools"]] == ["list_files", "write"]


@STREAM
async def test_upstream_is_asked_again_about_a_broken_call(stream: bool, start: Start, tmp_path: Path) -> None:
    broken = replying('<tool_call>\n{"name": "read", "arguments": {{{\n</tool_call>', False)
    better = replying(f"Look:\n{chat.DIALECTS['hermes']('read', {'filePath': '/a'})}", False)
    lab = await start(by_turn(broken, better), vtc_profiles=profile(tmp_path, retry={}))
    assert await ask(lab, stream) == CALLED
    asked = lab.upstream.seen[1].json
    check_request(asked)
    assert [entry["role"] for entry in asked["messages"]] == ["user", "assistant", "user"]
    assert not asked.get("stream")


@STREAM
async def test_upstream_is_asked_for_a_whole_reply(stream: bool, start: Start, tmp_path: Path) -> None:
    """A profile requests this if the server's streams are unreliable."""
    reply = replying(f"Look:\n{chat.DIALECTS['hermes']('read', {'filePath': '/a'})}", False)
    lab = await start(reply, vtc_profiles=profile(tmp_path, upstream_stream="never"))
    assert await ask(lab, stream) == CALLED
    assert not lab.upstream.seen[0].json.get("stream")


@STREAM
async def test_agent_that_goes_round_in_circles_is_stopped(stream: bool, start: Start, tmp_path: Path) -> None:
    lab = await start(replying("never", stream), vtc_profiles=profile(tmp_path, guards={"loop": {"repeated_calls": 2}}))
    history = [*QUESTION]
    for turn in range(3):
        history += [assistant(call("read", f"t{turn}", filePath="/a")), user([result("moose", f"t{turn}")])]
    found = await ask(lab, stream, history)
    assert (found.stop_reason, found.kinds, lab.upstream.seen) == ("end_turn", ["text"], [])
    assert found.content.startswith("Stopped: ")


async def test_both_apis_are_read_at_once(start: Start) -> None:
    written = f"Look:\n{chat.DIALECTS['hermes']('read', {'filePath': '/a'})}"

    def script(seen: Seen) -> Reply:
        return replying(written, True) if seen.path == messages.PATH else Reply(chat.make_stream(*written))

    lab = await start(script)
    other, found = await asyncio.gather(lab.post(chat.request(stream=True)), ask(lab, True))
    assert (other.message.calls, found.calls) == ([("read", {"filePath": "/a"})], CALLED.calls)
