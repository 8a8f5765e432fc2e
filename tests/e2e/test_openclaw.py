"""OpenClaw, recognized by its prompt: it gets none of the fields that it does not expect, and is stopped in a loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, messages
from tests.e2e.conftest import Start
from tests.e2e.policies import STREAM
from tests.e2e.upstream import JSON, Reply

PROMPT = "You are a personal assistant running inside OpenClaw.\n## Tooling\n"
"""The first lines of its prompt; 2026.9.6 puts a comment before it."""
SYSTEM = pytest.mark.parametrize("prompt", [PROMPT, f"<!-- openclaw:attempt:STABLE -->\n{PROMPT}"], ids=["", "2026.9"])
PLACES = {
    "top": ("prompt_logprobs", "prompt_token_ids", "kv_transfer_params", "service_tier", "system_fingerprint"),
    "choice": ("stop_reason", "token_ids"),
    "message": ("reasoning", "reasoning_content", "refusal", "annotations", "audio", "function_call", "tool_calls"),
    "usage": ("prompt_tokens_details",),
}
VALUES: dict[str, Any] = {
    "reasoning": "Hm.",
    "reasoning_content": "Hm.",
    "annotations": [],
    "tool_calls": [],
    "service_tier": "default",
    "prompt_tokens_details": {"cached_tokens": 2},
}
"""Values of the fields; the others are null."""
FIELDS = [pytest.param(place, name, id=name) for place, names in PLACES.items() for name in names]


def ask(prompt: str = PROMPT, *, stream: bool, turns: list[chat.Json] | None = None) -> chat.Json:
    asked = [{"role": "system", "content": prompt}, {"role": "user", "content": "Hi"}, *(turns or [])]
    return chat.request(stream=stream, messages=asked, stream_options={"include_usage": True})


def reply_with(place: str, name: str, *, stream: bool) -> Reply:
    """Return a reply `Hi` that has one field in all objects of a kind."""
    parts: dict[str, chat.Json] = {place: {name: VALUES.get(name)}}
    top, choice = parts.get("top", {}), parts.get("choice", {})
    message, usage = parts.get("message", {}), {**chat.USAGE, **parts.get("usage", {})}
    if not stream:
        body = chat.completion("Hi", message=message, **top, usage=usage)
        body["choices"][0].update(choice)
        return Reply([chat.encode_json(body)], JSON, framing="length")
    deltas = [{"role": "assistant", "content": "", **message}, {"content": "H", **message}, {"content": "i", **message}]
    entries = [{"index": 0, "delta": delta, "finish_reason": None, **choice} for delta in deltas]
    entries.append({"index": 0, "delta": message, "finish_reason": "stop", **choice})
    frames = [chat.frame({**chat.HEAD, **top, "choices": [entry]}) for entry in entries]
    return Reply([*frames, chat.frame({**chat.HEAD, **top, "choices": [], "usage": usage}), chat.DONE])


@STREAM
@SYSTEM
@pytest.mark.parametrize(("place", "name"), FIELDS)
async def test_a_field_that_openclaw_does_not_expect_is_dropped(
    place: str, name: str, prompt: str, stream: bool, start: Start
) -> None:
    lab = await start(reply_with(place, name, stream=stream))
    answer = await lab.post(ask(prompt, stream=stream))
    assert (answer.message.content, answer.message.finish_reason) == ("Hi", "stop")
    assert f'"{name}"'.encode() not in answer.body
    assert b'"total_tokens"' in answer.body


@STREAM
async def test_user_chooses_the_fields_by_a_profile(stream: bool, start: Start, tmp_path: Path) -> None:
    """A profile of the same name replaces the built-in one."""
    profile = {"kind": "client", "name": "openclaw", "match": {"body": {"messages.0.content": f"{PROMPT.strip()}*"}}}
    (tmp_path / "mine.yaml").write_text(json.dumps({**profile, "response": {"drop": ["service_tier"]}}))
    for place, name, expected in (("top", "service_tier", False), ("message", "reasoning_content", True)):
        lab = await start(reply_with(place, name, stream=stream), vtc_profiles=[str(tmp_path)])
        assert (f'"{name}"'.encode() in (await lab.post(ask(stream=stream))).body) == expected


@STREAM
async def test_calls_and_refusals_are_not_dropped(stream: bool, start: Start) -> None:
    call = {"index": 0, **chat.native(0, id="c0", name="read", arguments='{"filePath": "a"}')}
    for message in ({"tool_calls": [call]}, {"refusal": "I cannot."}):
        if stream:
            frames = [chat.ROLE, chat.chunk(message), chat.chunk({}, "stop"), chat.DONE]
            lab = await start(Reply(frames))
        else:
            lab = await start(Reply([chat.encode_json(chat.completion(None, message=message))], JSON, framing="length"))
        answer = await lab.post(ask(stream=stream))
        if "refusal" in message:
            assert b'"refusal":"I cannot."' in answer.body.replace(b": ", b":")
        else:
            assert answer.message.calls == [("read", {"filePath": "a"})]


@STREAM
async def test_a_bridge_writes_none_of_these_fields(stream: bool, start: Start) -> None:
    """Its encoder writes the reasoning and the usage of another API's server into fields of its own."""
    if stream:
        reply = Reply(messages.make_stream(messages.thinking_block(0, "Hm."), messages.text_block(1, "Hi")))
    else:
        body = messages.message(messages.thinking("Hm."), messages.text("Hi"))
        reply = Reply([chat.encode_json(body)], JSON, framing="length")
    lab = await start(reply, vtc_upstream_api="anthropic-messages")
    answer = await lab.post(ask(stream=stream))
    assert answer.message.content == "Hi"
    assert not [name for names in PLACES.values() for name in names if f'"{name}"'.encode() in answer.body]


@STREAM
async def test_a_conversation_ends_after_twenty_results(stream: bool, start: Start) -> None:
    lab = await start(chat.make_stream("Hi"))
    turns: list[chat.Json] = []
    for number in range(20):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"a": {number}}}'}}
        turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": f"c{number}", "content": str(number)})
    answer = await lab.post(ask(stream=stream, turns=turns))
    assert "20 tool calls were made" in (answer.message.content or "")
    assert (answer.message.finish_reason, lab.upstream.seen) == ("stop", [])
