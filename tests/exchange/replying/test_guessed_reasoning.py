"""Streams that are assumed to begin inside their reasoning, because the prompt opens its tag, but do not.

Reasoning is disabled at such a server, or the server separates it: all text of its replies is text.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, pairs
from tests.apis.pairs import PAIRS, READ
from tests.apis.shapes import THINKING
from tests.exchange.crossings import BY_NAME, open_bridge, read_client_reply
from tests.exchanges import AGENT, PROFILES, feed_stream, open_session
from tests.known import AGREEING
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Memory, Planner, PolicyProfile, Settings

MODEL = "qwen3.5"
CALL = "<tool_call>\n<function=read>\n<parameter=filePath>\n/a\n</parameter>\n</function>\n</tool_call>"
NATIVE = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/b"}'}}
BEGINS = {  # text and a call in each client's API
    "openai-chat": (b'"content":"I look', b'"name":"read"'),
    "anthropic-messages": (b'"text_delta"', b'"tool_use"'),
    "openai-responses": (b'"response.output_text.delta"', b'"function_call"'),
    "ollama-chat": (b'"content":"I look', b'"name":"read"'),
    "gemini-generate": (b'{"text":"I look', b'"name":"read"'),
}


def make_planner(model: dict[str, Any] | None = None, guards: dict[str, Any] | None = None) -> Planner:
    """Return a planner with another setting of the model's reasoning, or with a policy."""
    profile = PROFILES.models[MODEL]
    changed = msgspec.structs.replace(profile, reasoning=msgspec.structs.replace(profile.reasoning, **model or {}))
    policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(guards or {}, Guards))
    policies = {"mine": policy} if guards else {}
    return Planner(
        dataclasses.replace(PROFILES, models={**PROFILES.models, MODEL: changed}, policies=policies),
        Settings(model=MODEL),
    )


def read_stream(
    *pieces: str, calls: bool = False, end: str = "", planner: Planner | None = None, memory: Memory | None = None
) -> chat.Read:
    """Read the stream of a reply in these pieces, before a native call if there are `calls`."""
    body = chat.encode_json(chat.request(stream=True, model="any"))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner or make_planner(), "seed", memory)
    native = [chat.chunk({"tool_calls": [NATIVE]})] if calls else []
    finish = end or ("tool_calls" if calls else "stop")
    frames = [chat.ROLE, *chat.make_text_chunks(*pieces), *native, chat.chunk({}, finish), chat.DONE]
    found = chat.read(feed_stream(exchange.stream(), *frames))
    assert exchange.report.failures == []
    return found


def split_text(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.every
@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
def test_text_before_a_native_call_is_text(client: str, server: str) -> None:
    body = pairs.make_stream(server, ["I look ", "at the file."], READ)
    for cuts in (0, 9):
        exchange = open_bridge(client, server, stream=True, settings={"model": MODEL}, **THINKING.get(client, {}))
        assert exchange.plan.reading.thinking.begins_inside
        found = read_client_reply(exchange, client, body, stream=True, cuts=cuts)
        assert (found.text, found.calls, found.end) == (
            "I look at the file.",
            pairs.make_content("", READ).calls,
            "calls",
        )
        assert exchange.report.failures == []
    out = feed_stream(open_bridge(client, server, stream=True, settings={"model": MODEL}).stream(), body)
    out = out.replace(b'": ', b'":')
    text, called = BEGINS[client]
    assert -1 < out.find(text) < out.find(called)


def test_such_replies_are_observations_of_the_server_and_the_model() -> None:
    memory = Memory()
    for _ in range(AGREEING):
        assert read_stream("I look", " there.", calls=True, memory=memory).reasoning == "I look there."
    found = read_stream("I look", " there.", calls=True, memory=memory)
    assert (found.reasoning, found.content) == ("", "I look there.")


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_no_markup_of_a_call_is_sent_as_reasoning(size: int) -> None:
    found = read_stream(*split_text(f"I look.\n{CALL}\nAnd then.", size))
    assert (found.content, found.reasoning) == ("I look.\nAnd then.", "I look.")
    assert found.calls == [("read", {"filePath": "/a"})]
    found = read_stream(*split_text(CALL, size))
    assert (found.content, found.reasoning, found.calls) == ("", "", [("read", {"filePath": "/a"})])
    # It is unknown if a text tool call before a native call is quoted.
    found = read_stream(*split_text(f"I look.\n{CALL}\nAnd then.", size), calls=True)
    assert (found.content, found.reasoning) == (f"I look.\n{CALL}\nAnd then.", "I look.")
    assert found.calls == [("read", {"filePath": "/b"})]
    # The server's parser did not remove the tag of a call.
    found = read_stream(*split_text("I look.\n<tool_call>\n", size), calls=True)
    assert (found.content.rstrip(), found.reasoning) == ("I look.", "I look.")


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("calls", [False, True])
def test_reasoning_that_ends_is_reasoning_with_the_calls_in_it(size: int, calls: bool) -> None:
    thought = f"Shall I?\n{CALL}\nNo."
    found = read_stream(*split_text(f"{thought}\n</think>\n\nHello.", size), calls=calls)
    assert (found.reasoning.strip(), found.content) == (thought, "Hello.")
    assert found.calls == ([("read", {"filePath": "/b"})] if calls else [])


@pytest.mark.parametrize("size", [1, 1000])
def test_a_reply_that_is_cut_off_may_think_still(size: int) -> None:
    found = read_stream(*split_text(f"Hm.\n{CALL}\nSo", size), end="length")
    assert (found.content, found.reasoning, found.calls) == ("", f"Hm.\n{CALL}\nSo", [])


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("to", ["reasoning_content", "drop"])
def test_policies_look_at_such_text(size: int, calls: bool, to: str) -> None:
    planner = make_planner({"to": to}, {"content": [{"pattern": "SECRET\\w+", "replacement": "xxx"}]})
    found = read_stream(*split_text(f"It is SECRETabc now. {CALL}\nSECRETdef", size), calls=calls, planner=planner)
    rest = f" now. {CALL}\nxxx" if calls else " now. \nxxx"
    assert found.content.split() == f"It is xxx{rest}".split()


SNIPPETS = ["I look. ", "\n", "a < b", "`x`", "<", CALL, f"\n{CALL}\n", "é", "```\n"]
PIECES = st.lists(st.sampled_from(SNIPPETS), max_size=6)


@given(pieces=PIECES, size=st.integers(1, 40))
def test_a_stream_is_read_as_the_whole_reply(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    exchange = open_session(settings={"model": MODEL})
    whole = chat.read(exchange.whole.rewrite(chat.encode_json(chat.completion(text))))
    found = read_stream(*split_text(text, size))
    assert (found.content.split(), found.calls) == (whole.content.split(), whole.calls)


@pytest.mark.parametrize(
    ("model", "text", "content", "reasoning"),
    [
        ("ministral-3-reasoning", "content[THINK]thinking[/THINK]after", "contentafter", "thinking"),
        ("gemma-4-31b-it", "<|channel>x<channel|>y", "y", "x"),
        ("gemma-4-31b-it", "Now. <|channel>thought\nx<channel|>y", "Now. y", "\nx"),
        ("gemma-4-31b-it", "x<channel|>y", "y", "x"),
        ("qwen3", "a<think>b</think>c", "ac", "b"),
    ],
)
def test_whole_reply_is_split_at_the_start_of_its_reasoning(
    model: str, text: str, content: str, reasoning: str
) -> None:
    exchange = open_session(model=model)
    found = chat.read(exchange.whole.rewrite(chat.encode_json(chat.completion(text))))
    assert (found.content, found.reasoning) == (content, reasoning)


PREFILLED = {
    "allenai/Olmo-3-32B-Think": ("</think>", {}),
    "stepfun-ai/Step-3.5-Flash": ("</think>", {}),
    "command-a-reasoning-08-2025": ("<|END_THINKING|>", {}),
    "deepcogito/cogito-671b-v2.1": ("</think>", {"reasoning_effort": "high"}),
    "deepseek-ai/DeepSeek-V3.1": ("</think>", {"reasoning_effort": "high"}),
}
"""Models whose template opens the reasoning: its closing tag, and the fields of a request that ask for it."""


@pytest.mark.every
@pytest.mark.parametrize("model", PREFILLED)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_stream_of_a_model_whose_template_opens_the_reasoning(model: str, size: int) -> None:
    closer, fields = PREFILLED[model]
    for text, content, reasoning in (
        (f"I think.\n{closer}Answer.", "Answer.", "I think.\n"),
        ("Hello there.", "Hello there.", "Hello there."),
    ):
        exchange = open_session(model=model, **fields)
        frames = [chat.ROLE, *chat.make_text_chunks(*split_text(text, size)), chat.chunk({}, "stop"), chat.DONE]
        found = chat.read(feed_stream(exchange.stream(), *frames))
        assert (found.content, found.reasoning) == (content, reasoning)


@pytest.mark.every
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_opening_tag_of_gemma_without_its_marker(size: int) -> None:
    for text, content, reasoning in (
        ("thought\nI list.\n<channel|>Here.", "Here.", "thought\nI list.\n"),
        ("thought\nis a word.", "thought\nis a word.", ""),
        ("thoughts\nare <channel|>", "thoughts\nare <channel|>", ""),
    ):
        exchange = open_session(model="gemma-4-31b-it")
        frames = [chat.ROLE, *chat.make_text_chunks(*split_text(text, size)), chat.chunk({}, "stop"), chat.DONE]
        found = chat.read(feed_stream(exchange.stream(), *frames))
        assert (found.content, found.reasoning) == (content, reasoning)
