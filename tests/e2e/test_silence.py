"""Replies without text or calls: the server is asked again, and the client gets one reply."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.conversations import decode_reply, decode_usage, get_history_key, make_answer_entries, make_question
from tests.apis.pairs import NAMES, PAIRS, READ
from tests.apis.shapes import SHAPES, THINKING
from tests.e2e.conftest import PATIENCE, Lab, Start, by_turn
from tests.e2e.policies import write_policy
from tests.e2e.sdk_talks import talk
from tests.e2e.upstream import JSON, Reply, Script, Seen

STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
ON = ["empty", "thought", "announced"]
ANNOUNCED = "Now I will read /a with the read tool:"
SILENT: dict[str, tuple[str, str]] = {
    "empty": ("", ""),
    "thought": ("", "I should read it."),
    "announced": (ANNOUNCED, ""),
}


def replying(server: str, seen: Seen, text: str, calls: pairs.Calls = (), reasoning: str = "", parts: int = 2) -> Reply:
    """Return a reply, streamed or whole as the request asks."""
    shape = SHAPES[server]
    if seen.path == shape.build_path(stream=True) != shape.path or seen.json.get("stream", server == "ollama-chat"):
        pieces = [text[:5], text[5:]] if text else []
        body = pairs.make_stream(server, pieces, calls, reasoning=reasoning)
        return Reply([body], {"content-type": shape.media_type})
    return Reply([pairs.make_whole_reply(server, text, calls)], JSON, framing="length")


def serving(server: str, silence: str) -> Script:
    """Return a server that answers without content until it is reminded, then calls `read`, then states the result."""
    text, reasoning = SILENT[silence]

    def script(seen: Seen) -> Reply:
        body = json.dumps(seen.json)
        pairs.check_request(server, seen.json)
        if "hello" in body:
            return replying(server, seen, "It says hello.")
        if "call a tool" in body or "Make that call now" in body:
            return replying(server, seen, "", READ)
        return replying(server, seen, text, reasoning=reasoning)

    return script


@pytest.mark.one_in(12)
@STREAM
@pytest.mark.parametrize("silence", ["announced", "empty"])
@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
async def test_an_sdk_gets_the_call_that_was_not_made_at_first(
    client: str, server: str, silence: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    lab = await start(
        serving(server, silence), vtc_upstream_api=server, vtc_profiles=write_policy(tmp_path, retry={"on": ON})
    )
    assert await talk(client, lab, stream=stream) == ([("read", {"filePath": "/a"})], "It says hello.")
    assert len(lab.upstream.seen) == 3
    paths = {seen.path for seen in lab.upstream.seen}
    assert paths == {SHAPES[server].build_path(stream=stream)}


def body_of(client: str, **fields: Any) -> bytes:
    """Return the body of a client's request that asks for reasoning and usage."""
    usage = {"stream_options": {"include_usage": True}} if client == "openai-chat" and fields.get("stream") else {}
    return chat.encode_json(SHAPES[client].request(**{**THINKING.get(client, {}), **usage, **fields}))


async def ask_api(lab: Lab, client: str, *, stream: bool = True, **fields: Any) -> tuple[pairs.ReplyContent, bytes]:
    """Send a request as a client of an API, and parse the reply as its strictest client does."""
    answer = await lab.post(body_of(client, stream=stream, **fields), path=SHAPES[client].build_path(stream=stream))
    assert answer.status == 200
    return pairs.read(client, answer.body, stream=stream), answer.body


@pytest.mark.one_in(8)
@pytest.mark.parametrize("silence", SILENT)
@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
async def test_stream_continues_with_one_end_and_its_own_numbers(
    client: str, server: str, silence: str, start: Start, tmp_path: Path
) -> None:
    """Text and reasoning of both replies are sent, and the usage is the sum."""
    text, reasoning = SILENT[silence]
    lab = await start(
        by_turn(
            lambda seen: replying(server, seen, text, reasoning=reasoning),
            lambda seen: replying(server, seen, "I look.", READ, reasoning="Now."),
        ),
        vtc_upstream_api=server,
        vtc_profiles=write_policy(tmp_path, retry={"on": ON}),
    )
    reply, body = await ask_api(lab, client)
    text = f"{text}\n\n" if text else ""
    assert reply == pairs.make_content(f"{text}I look.", READ, reasoning=f"{reasoning}Now.")
    assert decode_usage(client, body) == (6, 10)


# The follow-up and its reply


async def list_retry_actions(lab: Lab) -> list[str]:
    """Return the actions on the turn from the report of the client's flow, not the follow-up's."""
    flow = await lab.next_client_flow()
    return [entry["action"] for entry in flow.metadata["vtc"]["policies"] if entry["policy"] == "retry"]


@STREAM
@pytest.mark.parametrize("retry", [{"on": ON}, {}], ids=["alone", "with all others"])
async def test_the_question_has_the_first_reply_and_a_reminder(
    retry: Any, stream: bool, start: Start, tmp_path: Path
) -> None:
    lab = await start(serving("openai-chat", "announced"), vtc_profiles=write_policy(tmp_path, retry=retry))
    reply, _ = await ask_api(lab, "openai-chat", stream=stream, messages=make_question("openai-chat", "Read it"))
    assert reply == pairs.make_content(ANNOUNCED, READ)
    first, again = (seen.json for seen in lab.upstream.seen)
    *before, answer, reminder = again["messages"]
    assert before == first["messages"]
    assert answer == {"role": "assistant", "content": ANNOUNCED}
    assert (reminder["role"], "made no tool call" in reminder["content"]) == ("user", True)
    assert again.keys() == first.keys()
    assert again["stream"] is first["stream"] is (stream and retry != {})
    assert await list_retry_actions(lab) == ["asked"]


async def test_a_model_that_is_prompted_is_shown_how_a_call_is_written(start: Start, tmp_path: Path) -> None:
    profiles = write_policy(tmp_path, retry={"on": ["announced"]})
    lab = await start(chat.make_stream(ANNOUNCED), vtc_profiles=profiles, vtc_tools="prompt", vtc_dialect="hermes")
    await ask_api(lab, "openai-chat")
    reminder = lab.upstream.seen[1].json["messages"][-1]["content"]
    assert reminder.endswith('<tool_call>\n{"name": "read", "arguments": {"filePath": "notes.txt"}}\n</tool_call>')


IN_TEXT = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
NOT_ASKED = {
    "a call": (ON, lambda seen: replying("openai-chat", seen, "I look.", READ)),
    "a call in the text": (ON, lambda _: Reply(chat.make_stream(f"{ANNOUNCED}\n", IN_TEXT))),
    "an answer": (ON, lambda seen: replying("openai-chat", seen, "I read it. It says hello.")),
    "a question": (ON, lambda seen: replying("openai-chat", seen, "Which file? I'll read it then.")),
    "cut off": (ON, lambda _: Reply(chat.make_stream(ANNOUNCED, finish="length"))),
    "nothing of the kind": (["thought"], lambda seen: replying("openai-chat", seen, ANNOUNCED)),
}


@pytest.mark.parametrize(("on", "script"), NOT_ASKED.values(), ids=NOT_ASKED)
async def test_reply_with_content_keeps_its_bytes(on: list[str], script: Any, start: Start, tmp_path: Path) -> None:
    lab = await start(script, vtc_profiles=write_policy(tmp_path, retry={"on": on}))
    _, body = await ask_api(lab, "openai-chat")
    (seen,) = lab.upstream.seen
    if "read" not in str(chat.read(body).calls):
        assert body == b"".join(list(script(seen).pieces))


async def test_without_tools_nothing_is_announced(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream(ANNOUNCED), vtc_profiles=write_policy(tmp_path, retry={"on": ON}))
    await ask_api(lab, "openai-chat", tools=None)
    assert len(lab.upstream.seen) == 1


async def test_sent_frames_do_not_wait_for_the_second_reply(start: Start, tmp_path: Path) -> None:
    """The first reply is sent except its end, then each piece of the second as it arrives."""
    goes_on = [asyncio.Event(), asyncio.Event()]

    async def pieces() -> AsyncIterator[bytes]:
        frames = chat.make_stream("I l", "ook.")
        for place, frame in enumerate(frames):
            if place in (0, 2):
                await goes_on[place // 2].wait()
            yield frame

    lab = await start(
        by_turn(chat.make_stream(*ANNOUNCED.partition(" ")), Reply(pieces())),
        vtc_profiles=write_policy(tmp_path, retry={"on": ON}),
    )
    text = ""
    body = chat.encode_json(chat.request(stream=True))
    headers = {"content-type": "application/json"}
    async with (
        asyncio.timeout(PATIENCE),
        lab.client.stream("POST", "/v1/chat/completions", content=body, headers=headers) as answer,
    ):
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                break
            choice = json.loads(line.removeprefix("data: "))["choices"][0] if line.startswith("data: ") else {}
            text += choice.get("delta", {}).get("content") or ""
            if text == ANNOUNCED and not goes_on[0].is_set():
                assert choice["finish_reason"] is None
                goes_on[0].set()
            elif text == f"{ANNOUNCED}\n\nI l":
                goes_on[1].set()
    assert text == f"{ANNOUNCED}\n\nI look."


FAILING: dict[str, Reply] = {
    "an error": Reply([b'{"error": {"message": "no"}}'], JSON, status=500, framing="length"),
    "no reply": Reply([b"no"], JSON, framing="length"),
    "nothing": Reply([], JSON, framing="length"),
    "an error amid the stream": Reply([chat.frame({"error": {"message": "no"}})]),
}


SAME = [*((name, name) for name in NAMES), ("anthropic-messages", "openai-chat")]


@pytest.mark.rest
@pytest.mark.one_in(4)
@pytest.mark.parametrize("silence", SILENT)
@pytest.mark.parametrize(("client", "server"), SAME)
async def test_first_reply_ends_if_no_second_one_arrives(
    client: str, server: str, silence: str, start: Start, tmp_path: Path
) -> None:
    text, reasoning = SILENT[silence]
    for name, reply in FAILING.items():
        if name == "an error amid the stream" and server != "openai-chat":
            continue
        first = lambda seen: replying(server, seen, text, reasoning=reasoning)  # noqa: E731
        lab = await start(
            by_turn(first, reply), vtc_upstream_api=server, vtc_profiles=write_policy(tmp_path, retry={"on": ON})
        )
        found, _ = await ask_api(lab, client)
        assert found == pairs.make_content(text, reasoning=reasoning)
        assert len(lab.upstream.seen) == 2


async def test_whole_answer_continues_a_stream(start: Start, tmp_path: Path) -> None:
    second = Reply([pairs.make_whole_reply("openai-chat", "", READ)], JSON, framing="length")
    lab = await start(
        by_turn(chat.make_stream(ANNOUNCED), second), vtc_profiles=write_policy(tmp_path, retry={"on": ON})
    )
    assert (await ask_api(lab, "openai-chat"))[0] == pairs.make_content(ANNOUNCED, READ)


async def test_a_second_reply_that_breaks_off_breaks_the_stream(start: Start, tmp_path: Path) -> None:
    second = Reply(chat.make_stream("I look", " around")[:3], cut=True)
    lab = await start(
        by_turn(chat.make_stream(ANNOUNCED), second), vtc_profiles=write_policy(tmp_path, retry={"on": ON})
    )
    with pytest.raises(Exception, match=r"incomplete|closed"):
        await ask_api(lab, "openai-chat")


async def test_retry_ends_after_the_time_limit_of_the_profile(start: Start, tmp_path: Path) -> None:
    released = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await released.wait()
        yield b"{}"

    profiles = write_policy(tmp_path, retry={"on": ON, "seconds": 0.3})
    lab = await start(by_turn(chat.make_stream(ANNOUNCED), Reply(late())), vtc_profiles=profiles)
    assert (await ask_api(lab, "openai-chat"))[0] == pairs.make_content(ANNOUNCED)
    released.set()
    assert await list_retry_actions(lab) == ["failed"]


async def test_a_second_request_ends_when_its_client_has_gone(start: Start, tmp_path: Path) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        begun.set()
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        while True:
            yield b": \n\n" * 100

    lab = await start(
        by_turn(chat.make_stream(ANNOUNCED), Reply(pieces())), vtc_profiles=write_policy(tmp_path, retry={"on": ON})
    )
    async with asyncio.timeout(PATIENCE):
        client = asyncio.create_task(ask_api(lab, "openai-chat"))
        await begun.wait()
        client.cancel()
        gone.set()
        await lab.upstream.gone.wait()
        await lab.next_client_flow()
    assert not lab.proxy.addon._live


@STREAM
async def test_a_call_of_the_second_reply_is_held_to_the_policies(stream: bool, start: Start, tmp_path: Path) -> None:
    guards = {"denied_tools": ["read"], "on_denied": "steer", "denied_message": "No."}
    profiles = write_policy(tmp_path, retry={"on": ON}, guards=guards)
    for text in ("", ANNOUNCED):
        silence = "announced" if text else "empty"
        lab = await start(serving("openai-chat", silence), vtc_profiles=profiles)
        reply, _ = await ask_api(lab, "openai-chat", stream=stream, messages=make_question("openai-chat", "Read it"))
        assert reply == pairs.make_content(f"{text}\n\nNo.".lstrip())


async def test_a_client_that_reads_calls_out_of_the_text_gets_one(start: Start, tmp_path: Path) -> None:
    call = "<read_file>\n<path>a</path>\n</read_file>"
    prompt = (Path(__file__).parents[1] / "cases" / "prompts" / "cline.md").read_text()
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "<task>\nLook.\n</task>"}]
    lab = await start(
        by_turn(chat.make_stream("Let me read the file."), chat.make_stream(call)),
        vtc_profiles=write_policy(tmp_path, retry={"on": ON}),
    )
    body = chat.request(stream=True, messages=messages, tools=None)
    answer = await lab.post(body, headers={"user-agent": "Cline/3.82.0"})
    assert answer.message.content == f"Let me read the file.\n\n{call}"


# Later turns


@pytest.mark.one_in(8)
@pytest.mark.parametrize("silence", SILENT)
@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
async def test_the_first_reply_and_the_reminder_stay_in_later_turns(
    client: str, server: str, silence: str, start: Start, tmp_path: Path
) -> None:
    """Each prompt begins with the one before it, although the client does not know the added turns."""
    profiles = write_policy(tmp_path, retry={"on": ON})
    lab = await start(serving(server, silence), vtc_upstream_api=server, vtc_profiles=profiles)
    entries = make_question(client, "Read it")
    for result in ("hello", "hello again"):
        answer = await lab.post(
            body_of(client, stream=True, **{get_history_key(client): entries}),
            path=SHAPES[client].build_path(stream=True),
        )
        entries = [*entries, *make_answer_entries(client, decode_reply(client, answer.body), result)]
        entries = [*entries, *make_question(client, "And?")] if result == "hello again" else entries
    await lab.post(
        body_of(client, stream=True, **{get_history_key(client): entries}), path=SHAPES[client].build_path(stream=True)
    )
    prompts = [seen.json[get_history_key(server)] for seen in lab.upstream.seen]
    assert len(prompts) == 4
    for before, after in itertools.pairwise(prompts[1:]):
        assert remove_marks(after[: len(before)]) == remove_marks(before)


def remove_marks(value: Any) -> Any:
    """Remove the marks for prompt caches, which move with a conversation."""
    if isinstance(value, list):
        return [remove_marks(item) for item in value]
    if isinstance(value, dict):
        return {name: remove_marks(item) for name, item in value.items() if name != "cache_control"}
    return value


async def test_the_model_is_not_asked_twice_in_a_row(start: Start, tmp_path: Path) -> None:
    """There is one follow-up in a request, and none in the next if that brought no call."""
    lab = await start(
        lambda seen: replying("openai-chat", seen, ANNOUNCED), vtc_profiles=write_policy(tmp_path, retry={})
    )
    entries: list[Any] = [{"role": "user", "content": "Read it"}]
    counts = []
    for _ in range(3):
        answer = await lab.post(chat.request(messages=entries, stream=True))
        entries = [*entries, {"role": "assistant", "content": answer.message.content}]
        entries = [*entries, {"role": "user", "content": "Go on."}]
        counts.append(len(lab.upstream.seen))
    assert counts == [2, 3, 5]
