"""Invariants of a reply for every dialect, API and policy, from the server's bytes to the client's.

Streamed and whole replies have the same content, cuts between chunks have no effect, no text is lost, ids differ, and
unchanged frames keep their bytes. The checks of each reply are in `fuzz/targets.py`; these tests apply them to each
dialect with its own calls.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import targets
from tests.apis import chat, gemini, messages, ollama, responses
from tests.dialects.material import DIALECTS
from tests.exchanges import AGENT, API, REPLY_PIECES, feed_stream
from tests.rules import draw_pieces
from vtc.apis import APIS
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall
from vtc.exchange import PlannedExchange, PlannedRequest, Session
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

EXAMPLES = settings().max_examples
TOOLS = {
    tool["function"]["name"]: Tool(tool["function"]["name"], "", tool["function"]["parameters"])
    for tool in targets.TOOLS
}
CALLS = [
    ToolCall("read", '{"filePath":"/a"}', "call00001"),
    ToolCall("write", json.dumps({"filePath": "", "content": '<b>\n"x" \\ `y`\r\n\n```\n'}), "call00002"),
    ToolCall("edit", '{"edits":[{"a":[1,null]},"é"],"count":3,"deep":null,"dry":true}', "call00003"),
    ToolCall("unknown", "{}", "call00004"),
]


def test_the_apis_that_are_checked_are_all_there_are() -> None:
    names = ["openai-chat", "anthropic-messages", "openai-responses", "ollama-chat", "gemini-generate"]
    assert [api.name for api in APIS] == names


@cache
def pieces(dialect: str, most: int) -> st.SearchStrategy[list[str]]:
    """Draw calls as a dialect writes them, halves of calls, and text around them."""
    written = [write_calls([call], DIALECTS[dialect], TOOLS) for call in CALLS]
    both = write_calls(CALLS[:2], DIALECTS[dialect], TOOLS)
    halves = [part for text in written for part in (text[: len(text) // 2], text[len(text) // 2 :])]
    others = ["Look.", "\n\n", " ", "<think>", "</think>", "<", "é\ud83d"]
    return draw_pieces([*written, both, *halves, *others], written, most)


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Planner]:
    """Return for each dialect a planner whose models write and accept only that dialect."""
    directory = tmp_path_factory.mktemp("models")
    for dialect in DIALECTS:
        model = {"kind": "model", "name": f"only {dialect}", "match": {}, "dialect": dialect, "accept": [dialect]}
        (directory / f"{dialect}.yaml").write_bytes(chat.encode_json({**model, "tools": "prompt"}))
    profiles = load_profiles([builtin_directory(), directory])
    return {dialect: Planner(profiles, Settings(model=f"only {dialect}")) for dialect in DIALECTS}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("dialect", DIALECTS, scope="module")
@settings(max_examples=max(1, EXAMPLES // 16))
@given(
    data=st.data(),
    size=st.sampled_from(targets.PIECE_SIZES),
    finish=st.sampled_from(["stop", "length"]),
    text_client=st.booleans(),
)
def test_replies_of_every_dialect(
    dialect: str, size: int, finish: str, text_client: bool, data: st.DataObject, writers: dict[str, Planner]
) -> None:
    """Clients that declare tools and text clients get correct replies."""
    text = "".join(data.draw(pieces(dialect, 5)))
    body, request, plan = targets.plan_request(writers[dialect], text_client=text_client)
    targets.check_reply(
        lambda: Session(PlannedRequest(API, request, body, PlannedExchange(plan), "seed")), text, size, finish
    )


@pytest.mark.one_in(8)
@pytest.mark.parametrize("dialect", DIALECTS, scope="module")
@settings(max_examples=max(1, EXAMPLES // 32))
@given(data=st.data(), size=st.sampled_from(targets.PIECE_SIZES), reason=st.sampled_from(["end_turn", "max_tokens"]))
def test_replies_of_messages_in_every_dialect(
    dialect: str, size: int, reason: str, data: st.DataObject, writers: dict[str, Planner]
) -> None:
    """Each block of text can begin, contain and cut off calls."""
    texts = data.draw(st.lists(pieces(dialect, 3).filter(bool), max_size=3))
    body = chat.encode_json(messages.request(stream=True, thinking={"type": "enabled"}))

    def open_exchange() -> Session:
        return Session.open(targets.MESSAGES, body, AGENT, writers[dialect], "seed")

    targets.check_messages(open_exchange, ["".join(one) for one in texts], size, reason)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("dialect", DIALECTS, scope="module")
@settings(max_examples=max(1, EXAMPLES // 16))
@given(data=st.data(), size=st.sampled_from(targets.PIECE_SIZES), status=st.sampled_from(["completed", "incomplete"]))
def test_replies_of_responses_in_every_dialect(
    dialect: str, size: int, status: str, data: st.DataObject, writers: dict[str, Planner]
) -> None:
    """Each of several messages can begin, contain and cut off calls."""
    texts = data.draw(st.lists(pieces(dialect, 3).filter(bool), max_size=3))
    body = chat.encode_json(responses.request(stream=True))

    def open_exchange() -> Session:
        return Session.open(targets.RESPONSES, body, AGENT, writers[dialect], "seed")

    targets.check_responses(open_exchange, ["".join(one) for one in texts], size, status)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("dialect", DIALECTS, scope="module")
@settings(max_examples=max(1, EXAMPLES // 32))
@given(data=st.data(), size=st.sampled_from(targets.PIECE_SIZES), reason=st.sampled_from(["stop", "length"]))
def test_replies_of_ollama_in_every_dialect(
    dialect: str, size: int, reason: str, data: st.DataObject, writers: dict[str, Planner]
) -> None:
    text = "".join(data.draw(pieces(dialect, 5)))
    body = chat.encode_json(ollama.request())

    def open_exchange() -> Session:
        return Session.open(targets.OLLAMA, body, AGENT, writers[dialect], "seed")

    targets.check_ollama(open_exchange, text, size, reason)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("dialect", DIALECTS, scope="module")
@settings(max_examples=max(1, EXAMPLES // 32))
@given(data=st.data(), size=st.sampled_from(targets.PIECE_SIZES), reason=st.sampled_from(["STOP", "MAX_TOKENS"]))
def test_replies_of_gemini_in_every_dialect(
    dialect: str, size: int, reason: str, data: st.DataObject, writers: dict[str, Planner]
) -> None:
    text = "".join(data.draw(pieces(dialect, 5)))
    body = chat.encode_json(gemini.request())

    def open_exchange() -> Session:
        return Session.open(targets.GEMINI, body, AGENT, writers[dialect], "seed")

    targets.check_gemini(open_exchange, text, size, reason)


POLICIES: dict[str, chat.Json] = {
    "none": {},
    "steering": {"guards": {"denied_tools": ["read"], "on_denied": "steer"}},
    "leaving as text": {"guards": {"allowed_tools": ["list*"], "on_denied": "text"}},
    "dropping": {"guards": {"denied_tools": ["read"], "on_denied": "drop"}},
    "arguments": {"guards": {"arguments": {"misfit": "steer"}}},
    "content": {"guards": {"content": [{"pattern": "a < b"}, {"pattern": "é"}]}},
    "reactors": {
        "guards": {"reactors": [{"name": "r", "when": {"tools": "read"}, "then": {"rename_tool": "list_files"}}]},
    },
    "dropped fields": {"response": {"drop": ["created", "reasoning_content"]}},
    "one call": {"max_calls": 1},
}


@pytest.fixture(scope="module")
def planners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Planner]:
    planners = {}
    for number, (name, policy) in enumerate(POLICIES.items()):
        directory: Path = tmp_path_factory.mktemp(f"policy{number}")
        model = {"kind": "model", "name": "mine", "match": {"model": chat.MODEL}, **policy}
        (directory / "mine.yaml").write_bytes(chat.encode_json(model))
        planners[name] = Planner(load_profiles([builtin_directory(), directory]), Settings())
    return planners


def native(name: str, arguments: str) -> Any:
    return {"id": f"id{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


NATIVE = [
    native("read", '{"filePath": "/a"}'),
    native("list_files", '{"path": 5}'),
    native("rm", "{}"),
    native("write", '{"filePath'),
]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=max(1, EXAMPLES // 6))
@given(
    texts=REPLY_PIECES,
    calls=st.lists(st.sampled_from(NATIVE), max_size=2, unique_by=lambda call: call["id"]),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
    ended=st.booleans(),
)
def test_replies_under_every_policy(
    policy: str, texts: list[str], calls: list[Any], cuts: list[int], ended: bool, planners: dict[str, Planner]
) -> None:
    """The client's reply depends neither on streaming nor on cuts, for text tool calls and native tool calls."""

    def open_exchange() -> Session:
        return Session.open(API, chat.encode_json(chat.request(stream=True)), AGENT, planners[policy], "seed")

    reason = "length" if not ended else "tool_calls" if calls else "stop"
    heads = [
        chat.chunk({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        for index, call in enumerate(calls)
    ]
    rest = [
        chat.chunk({"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]})
        for index, call in enumerate(calls)
    ]
    calling = [frame for pair in zip(heads, rest, strict=True) for frame in pair]
    frames = [chat.ROLE, *chat.make_text_chunks(*texts), *calling, chat.chunk({}, reason), chat.USED, chat.DONE]
    body = b"".join(frames)
    exchange = open_exchange()
    out = feed_stream(exchange.stream(), body)
    assert exchange.report.failures == []
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert feed_stream(open_exchange().stream(), *(body[a:b] for a, b in pairwise(places) if a < b)) == out
    ids = [call["id"] for delta in chat.deltas(out) for call in delta.get("tool_calls") or () if call.get("id")]
    assert len(set(ids)) == len(ids)
    whole = open_exchange()
    message = {"tool_calls": calls} if calls else None
    completion = chat.encode_json(chat.completion("".join(texts), reason, message=message))
    rewritten = whole.whole.rewrite(completion)
    assert whole.report.failures == []
    if not calls:
        assert chat.read(out) == chat.read(rewritten)
    elif "<" not in "".join(texts):
        (choice,) = json.loads(rewritten)["choices"]
        names = [call["function"]["name"] for call in choice["message"].get("tool_calls") or ()]
        streamed = [c["function"].get("name") for d in chat.deltas(out) for c in d.get("tool_calls") or ()]
        assert [name for name in streamed if name] == names
        assert "".join(d.get("content") or "" for d in chat.deltas(out)) == (choice["message"]["content"] or "")
