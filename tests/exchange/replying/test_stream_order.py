"""Every stream sent to a client is well-ordered: recorded ones, random ones, and those that arrived in disorder."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, checker, messages, pairs
from tests.apis.replies import REPLIES
from tests.apis.shapes import SHAPES
from tests.exchange.replying.native_calls import CASES, encode_frames, in_cuts, open_with_tools

FOLDERS = {"messages": "anthropic-messages", "responses": "openai-responses", "ollama": "ollama-chat"}
RECORDED = [name for name in REPLIES if name.endswith((".sse", ".ndjson"))]
NOTHING = st.sampled_from([None, "", "null"])
ODD = st.fixed_dictionaries(
    {}, optional={"id": NOTHING | st.just("c9"), "type": NOTHING | st.just("function"), "role": NOTHING}
)
TEXTS = st.lists(st.sampled_from(["Hello. ", "a < b\n", "`x`", "é😀", "</tool_call>"]), max_size=4)
CALLS: Any = st.lists(
    st.tuples(st.just("write"), st.fixed_dictionaries({"filePath": st.text(max_size=6), "limit": st.integers(0, 99)})),
    max_size=3,
)


@pytest.mark.parametrize("client", pairs.NAMES)
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams_are_in_order_for_every_client(name: str, client: str) -> None:
    exchange = open_with_tools(client, FOLDERS[name.split("/")[0]], stream=True)
    assert checker.list_problems(client, in_cuts(exchange, REPLIES[name], 1000)) == []


@given(
    api=st.sampled_from(pairs.NAMES),
    client=st.sampled_from(pairs.NAMES),
    pieces=TEXTS,
    calls=CALLS,
    cuts=st.integers(1, 99),
)
def test_random_streams_are_in_order(api: str, client: str, pieces: list[str], calls: Any, cuts: int) -> None:
    body = pairs.make_stream(api, pieces, calls)
    assert checker.list_problems(client, in_cuts(open_with_tools(client, api, stream=True), body, cuts)) == []


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("case", CASES["frames"], ids=lambda case: case["name"])
def test_disordered_streams_are_reordered(case: dict[str, Any], client: str) -> None:
    body = encode_frames(case)
    assert checker.list_problems(client, in_cuts(open_with_tools(client, case["api"], stream=True), body, 100)) == []


BLOCKS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(["Hello. ", "a < b\n"]), min_size=1, max_size=3).map(lambda texts: ("text", texts)),
        st.lists(st.sampled_from(["Hm. ", "So"]), max_size=2).map(lambda texts: ("thinking", texts)),
        st.just(("call", ['{"filePath": ', '"a"', "}"])),
        st.just(("server", ['{"query": ', '"a"}'])),
    ),
    max_size=4,
)


@given(client=st.sampled_from(pairs.NAMES), blocks=BLOCKS, order=st.randoms(use_true_random=False))
def test_random_blocks_that_are_mixed_are_put_in_order(client: str, blocks: Any, order: Random) -> None:
    """Each block begins after the one before it has begun, and any open one can continue or end."""
    to_come = {index: mixed_block(index, kind, pieces) for index, (kind, pieces) in enumerate(blocks)}
    frames, begun, texts = [], 0, ""
    while to_come:
        index = order.choice([index for index in to_come if index <= begun])
        begun = max(begun, index + 1)
        frames.append(to_come[index].pop(0))
        texts += json.loads(frames[-1].partition(b"data: ")[2]).get("delta", {}).get("text", "")
        if not to_come[index]:
            del to_come[index]
    calls = [("write", {"filePath": "a"}) for kind, _ in blocks if kind == "call"]
    body = b"".join([messages.START, *frames, *messages.end("tool_use" if calls else "end_turn")])
    out = in_cuts(open_with_tools(client, "anthropic-messages", stream=True), body, 100)
    assert checker.list_problems(client, out) == []
    if client == "openai-chat" and len(calls) > 1:
        return  # in this API pieces of several calls can be interleaved, because each has its number
    found = pairs.read(client, out, stream=True)
    expected = pairs.make_content("".join(texts.split()), calls)
    assert ("".join(found.text.split()), found.calls) == (expected.text, expected.calls)
    if client == "anthropic-messages":
        assert all(out.count(piece) == body.count(piece) for piece in (b"Hm. ", b"So", b"query"))


def mixed_block(index: int, kind: str, pieces: list[str]) -> list[bytes]:
    match kind:
        case "text":
            return messages.text_block(index, *pieces)
        case "thinking":
            starts, *deltas, stops = messages.thinking_block(index, "")
            thoughts = [messages.delta(index, "thinking_delta", thinking=piece) for piece in pieces]
            return [starts, *thoughts, *deltas[1:], stops]
    frames = messages.call_block(index, "write", *pieces, id=f"t{index}")
    return [frame.replace(b'"tool_use"', b'"server_tool_use"') for frame in frames] if kind == "server" else frames


def test_the_checker_knows_most_of_them() -> None:
    """Cases with text and calls in two choices are excluded, because the order of their frames is correct."""
    known = [
        case["name"]
        for case in CASES["frames"]
        if not case.get("run_on") and checker.list_problems(case["api"], encode_frames(case))
    ]
    assert len(known) >= 24


@given(
    pieces=st.lists(st.tuples(st.sampled_from(['{"filePath": "', "a", "b", '"}']), ODD, NOTHING), max_size=5),
    name=NOTHING,
)
def test_random_pieces_of_a_call_are_put_in_order(pieces: list[tuple[str, dict[str, Any], Any]], name: Any) -> None:
    frames = [chat.ROLE, chat.chunk({"tool_calls": [chat.native(0, id="c1", name="write", arguments="")]})]
    for text, odd, reason in pieces:
        role = {"role": odd.pop("role")} if "role" in odd else {}
        entry = {"index": 0, **odd, "function": {"name": name, "arguments": text}}
        frames.append(chat.chunk({**role, "tool_calls": [entry]}, reason))
    body = b"".join([*frames, chat.chunk({}, "tool_calls"), chat.DONE])
    found = checker.list_problems(
        "openai-chat", in_cuts(open_with_tools("openai-chat", "openai-chat", stream=True), body, 50)
    )
    assert {*found} <= {checker.NO_OBJECT}
