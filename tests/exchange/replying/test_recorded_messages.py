"""Exchanges of Anthropic Messages: recorded replies, a call inserted into their text, and every cut."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz import targets
from tests.apis import chat, messages, sdks
from tests.apis.named_events import DONE, events, frame
from tests.apis.replies import MIXED, REPLIES
from tests.exchanges import PROFILES, REPLY_PIECES, FastPath, feed_stream, planner, reveals_reasoning_late
from vtc.apis import APIS
from vtc.dialects import Reader
from vtc.exchange import Session
from vtc.profiles import Facts

(API,) = [api for api in APIS if api.name == "anthropic-messages"]
CLIENT = Facts(user_agent="Anthropic/Python 2", host="127.0.0.1", path=messages.PATH)
RECORDED = [name for name in REPLIES if name.startswith("messages/")]
LEAK = "messages/ollama-leak.sse"
CALLING = [name for name in RECORDED if b'"tool_use"' in REPLIES[name] and b"server_tool_use" not in REPLIES[name]]


def open_messages(**fields: Any) -> Session:
    body = chat.encode_json(messages.request(stream=True, **fields))
    return Session.open(API, body, CLIENT, planner(), "seed")


def cut_body(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1, 7, 64, 300, 1 << 20])
@pytest.mark.parametrize("name", [name for name in RECORDED if name not in (LEAK, *MIXED)])
def test_recorded_reply_passes_byte_for_byte(name: str, size: int) -> None:
    exchange = open_messages()
    assert feed_stream(exchange.stream(), *cut_body(REPLIES[name], size)) == REPLIES[name]
    assert exchange.report.failures == []


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", MIXED)
def test_interleaved_recorded_blocks_are_sent_in_order(name: str, size: int) -> None:
    """Text inside of the block of a call gets a separate block."""
    found = messages.read(feed_stream(open_messages().stream(), *cut_body(REPLIES[name], size)))
    contents = [block.get("thinking") or block.get("text") or block["input"] for block in found.blocks]
    assert contents == MIXED[name]


@pytest.mark.parametrize("size", [1, 64, 1 << 20])
def test_recorded_leak_is_lifted(size: int) -> None:
    found = messages.read(feed_stream(open_messages().stream(), *cut_body(REPLIES[LEAK], size)))
    assert (found.calls, found.stop_reason) == ([("read", {"filePath": "a.txt"})], "tool_use")
    assert found.content == "I'll read the file."


@cache
def leaking(name: str) -> tuple[bytes, messages.Read]:
    """Return a recorded reply whose calls are moved into the preceding text block or a separate one, and its
    content.
    """
    overlapping = name == "messages/llama-cpp.sse"
    body = REPLIES[name].partition(b"data: [DONE]")[0] if "done-marker" in name else REPLIES[name]
    was = messages.read(body, overlapping=overlapping)
    calls = iter(was.calls)
    out: list[bytes] = []
    moved: set[int] = set()
    text = max((place for place, kind in enumerate(was.kinds) if kind == "text"), default=None)
    assert text is not None
    for event in events(body):
        if event.data == DONE:
            continue
        kind, index = event.data["type"], event.data.get("index")
        if kind == "content_block_start" and event.data["content_block"]["type"] == "tool_use":
            moved.add(index)
        elif index in moved:
            continue
        elif kind == "content_block_stop" and index == text:
            for call, arguments in calls:
                written = f"\n\n{chat.DIALECTS['hermes'](call, arguments)}"
                out += messages.make_text_deltas(index, *cut_text(written))
            out.append(frame(event.data))
        elif kind == "message_delta":
            out.append(frame({**event.data, "delta": {**event.data["delta"], "stop_reason": "end_turn"}}))
        else:
            out.append(frame(event.data))
    was.blocks[text]["text"] = was.blocks[text]["text"].rstrip()  # white space before a call is dropped
    for block in was.blocks:
        block.pop("caller", None)
    return b"".join(out), was


def cut_text(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


@pytest.mark.parametrize("name", [name for name in CALLING if name != "messages/sglang-text-in-a-call.sse"])
async def test_call_in_recorded_text_is_joined_by_the_sdk_as_recorded(name: str) -> None:
    body, was = leaking(name)
    out = feed_stream(open_messages().stream(), *cut_body(body, 100))
    found = messages.read(out)
    assert found == was
    assert [one["type"] for one in found.blocks] == was.kinds
    assert (await sdks.read_messages([out])) == was
    for size in (1, 33, 1 << 20):
        assert feed_stream(open_messages().stream(), *cut_body(body, size)) == out


@given(
    content_blocks=st.lists(st.one_of(REPLY_PIECES, st.just("thinking"), st.just("call")), max_size=4),
    thinks=st.booleans(),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
)
@example(
    content_blocks=[["Hello, </think>", chat.DIALECTS["hermes"]("read", {"filePath": "/a"}), "Hello, "], "thinking"],
    thinks=False,
    cuts=[],
)
@example(
    content_blocks=[
        ["Hello, </think>", chat.DIALECTS["hermes"]("read", {"filePath": "/a"}), "Hello, "],
        "call",
        "thinking",
    ],
    thinks=False,
    cuts=[],
)
@example(content_blocks=["call", ["<tool_call>"], []], thinks=False, cuts=[])
def test_cuts_do_not_matter_and_streamed_replies_equal_whole_ones(
    content_blocks: list[Any], thinks: bool, cuts: list[int]
) -> None:
    blocks, content = [], []
    for index, one in enumerate(content_blocks):
        if one == "thinking":
            blocks.append(messages.thinking_block(index, "Hm."))
            content.append(messages.thinking("Hm.", "sig"))
        elif one == "call":
            blocks.append(messages.call_block(index, "list_files", '{"path": ', '"."}', id=f"toolu_{index}"))
            content.append(messages.call("list_files", f"toolu_{index}", path="."))
        else:
            blocks.append(messages.text_block(index, *one))
            content.append(messages.text("".join(one)))
    reason = "tool_use" if "call" in content_blocks else "end_turn"
    body = b"".join(messages.make_stream(*blocks, stop_reason=reason))
    how: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinks else {}
    exchange = open_messages(**how)
    out = feed_stream(exchange.stream(), body)
    assert exchange.report.failures == []
    places = [0, *sorted(min(place, len(body)) for place in cuts), len(body)]
    assert feed_stream(open_messages(**how).stream(), *(body[a:b] for a, b in pairwise(places) if a < b)) == out
    whole = open_messages(**how)
    rewritten = whole.whole.rewrite(chat.encode_json(messages.message(*content, stop_reason=reason)))
    assert whole.report.failures == []
    assert read_reply_content(out) == read_reply_content(rewritten) or reveals_reasoning_late(
        whole, *("".join(one) for one in content_blocks if isinstance(one, list))
    )


CACHED = {"cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
TEXTS = st.sampled_from(["Look.", " Look\n", *(write("read", {"filePath": "/b"}) for write in chat.DIALECTS.values())])
BLOCKS = st.lists(
    st.one_of(TEXTS.map(messages.text), TEXTS.map(lambda one: {**messages.text(one), **CACHED})), min_size=1, max_size=3
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """Draw turns as Anthropic's own server accepts them, with calls and results of every kind."""
    turns = [messages.user(draw(st.one_of(TEXTS, BLOCKS)))]
    for turn in range(draw(st.integers(0, 3))):
        ids = [f"toolu_{turn}_{number}" for number in range(draw(st.integers(0, 2)))]
        blocks = draw(st.sampled_from([[], [messages.thinking("Hm.", "sig")], [messages.text("Look.")]]))
        calls = [{**messages.call("read", id_, filePath="/a"), **draw(st.sampled_from([{}, CACHED]))} for id_ in ids]
        turns.append(messages.assistant(*blocks, *(calls or [messages.text("Done.")])))
        content = st.sampled_from(["moose", [messages.text("moose"), IMAGE], [], ""])
        results = [messages.result(draw(content), id_, **draw(st.sampled_from([{}, CACHED]))) for id_ in ids]
        turns.append(messages.user([*results, *draw(BLOCKS if not ids else st.one_of(st.just([]), BLOCKS))]))
    return turns


@settings(max_examples=max(1, settings().max_examples // 4))
@given(
    turns=conversations(),
    dialect=st.sampled_from([*chat.DIALECTS, "deepseek-v3", "llama3", "functionary"]),
    system=st.sampled_from([None, "Be brief.", [messages.text("x-anthropic-billing-header: a"), messages.text("Be.")]]),
    cline=st.booleans(),
    host=st.sampled_from(["127.0.0.1", "api.anthropic.com"]),
)
def test_request_to_a_model_is_valid_for_anthropic(
    turns: list[Any], dialect: str, system: Any, cline: bool, host: str
) -> None:
    messages.check_request({"messages": turns})
    system = [{**messages.text(targets.PROMPT), **CACHED}] if cline else system
    body = messages.request(messages=turns, system=system, tools=None if cline else messages.TOOLS)
    dialect = dialect if dialect in PROFILES.dialects else "hermes"
    for how in ({"tools": "prompt", "dialect": dialect}, {"tools": "native"}):
        facts = dataclasses.replace(CLIENT, host=host)
        exchange = Session.open(API, chat.encode_json(body), facts, planner(**how), "seed")
        sent = json.loads(exchange.encode_request())
        messages.check_request(sent)
        blocks = [one for turn in sent["messages"] if isinstance(turn["content"], list) for one in turn["content"]]
        kinds = [one["type"] for one in blocks]
        if how["tools"] == "prompt" and exchange.plan.protocol.write:
            assert "tools" not in sent
            assert not {"tool_use", "tool_result"} & {*kinds}
            assert "read" in str(sent["system"])
        assert kinds.count("thinking") == str(turns).count("'thinking': 'Hm.'")
        marks = [str(part).count("ephemeral") for part in (body["messages"], sent["messages"])]
        assert marks[1] <= marks[0], "more marks for the cache than there were"
        if isinstance(system, list) and len(system) == 2:
            # If VTC renders the prompt, only Anthropic's server gets the line that differs in each request.
            is_told = how["tools"] == "native" or host == "api.anthropic.com"
            assert ("billing" in str(sent["system"])) is is_told
            assert not is_told or sent["system"][0] == system[0]


def read_reply_content(body: bytes) -> Any:
    """Return the content of a reply; blank text is allowed, because the original can contain it."""
    if body.startswith(b"{"):
        found = json.loads(body)
        blocks, reason = found["content"], found["stop_reason"]
    else:
        blocks, reason = [], None
        for event in events(body):
            match event.data:
                case {"type": "content_block_start", "index": index, "content_block": block}:
                    assert index == len(blocks)
                    blocks.append({**block, "json": ""})
                case {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}:
                    key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(kind)
                    ((name, piece),) = delta.items()
                    blocks[index][key or "json"] += piece
                    assert name
                case {"type": "message_delta", "delta": delta}:
                    reason = delta["stop_reason"]
        blocks = [{**one, "input": json.loads(one["json"])} if one["json"] else one for one in blocks]
    own = ("text", "thinking", "name", "input")
    contents = [{key: one[key] for key in own if key in one} for one in blocks]
    return [one for one in contents if one != {"text": ""}], reason  # a block without text may be missing


@pytest.mark.parametrize("size", [1, 300, 1 << 20])
def test_blocks_after_a_failure_keep_the_numbers_that_the_client_needs(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call before it shifted their indexes."""
    call = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
    blocks = [messages.text_block(0, "Look.", call), messages.thinking_block(1, "Hm."), messages.text_block(2, "On.")]
    body = b"".join(messages.make_stream(*blocks, stop_reason="max_tokens"))
    exchange = open_messages()
    stream = exchange.stream()

    def fails(*_: Any) -> None:
        raise RuntimeError("planted")

    at = body.index(b'"On."')
    out = [piece for part in cut_body(body[:at], size) for piece in stream.feed(part)]
    monkeypatch.setattr(Reader, "feed", fails)
    out += [piece for part in cut_body(body[at:], size) for piece in stream.feed(part)]
    found = messages.read(b"".join([*out, *stream.finish()]))
    assert exchange.report.failures == ["RuntimeError: planted"]
    assert found.kinds == ["text", "tool_use", "thinking", "text"]
    assert found.content == "Look.On."


def test_frames_of_plain_text_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """This works in a block of any index, until the first shift."""
    fast = []
    feed = FastPath.feed

    def count_fast(path: FastPath, chunk: bytes) -> list[bytes] | None:
        out = feed(path, chunk)
        fast.append(out is not None)
        return out

    monkeypatch.setattr(FastPath, "feed", count_fast)
    words = ["Let", " me", *(f" word{i}" for i in range(40))]
    for index in (0, 7):
        fast.clear()
        others = [messages.thinking_block(i, "x") for i in range(index)]
        frames = messages.make_stream(*others, messages.text_block(index, *words))
        exchange = open_messages()
        stream = exchange.stream()
        assert b"".join(out for frame in frames for out in stream.feed(frame)) == b"".join(frames)
        assert sum(fast) > 30
    fast.clear()
    frames = messages.make_stream(messages.thinking_block(0, *words), messages.text_block(1, "a"))
    assert feed_stream(open_messages().stream(), *frames) == b"".join(frames)
    assert sum(fast) > 30


def test_fast_path_takes_no_delta_of_another_block() -> None:
    """Text of a block that has ended is added to the open one, because no client accepts it."""
    words = [f" word{i}" for i in range(20)]
    head = [messages.START, *messages.text_block(0, "a"), messages.make_block_start(1, messages.text(""))]
    frames = [
        *head,
        *messages.make_text_deltas(1, "Let", *words),
        *messages.make_text_deltas(0, " odd"),
        *messages.make_text_deltas(1, *words),
    ]
    out = feed_stream(open_messages().stream(), *frames)
    found = messages.read(out + b"".join([messages.make_block_stop(1), *messages.end()]))
    assert found.blocks == [messages.text("a"), messages.text("".join(["Let", *words, " odd", *words]))]


def test_cache_mark_of_a_result_keeps_its_place() -> None:
    """Agents move it to the last message in each turn."""
    turns = [
        messages.user("Look."),
        messages.assistant(messages.call("read", "t1", filePath="/a"), messages.call("read", "t2", filePath="/b")),
        messages.user([messages.result("one", "t1"), {**messages.result("two", "t2"), **CACHED}]),
    ]
    body = messages.request(messages=turns, tools=messages.TOOLS)
    plans = planner(tools="prompt", dialect="hermes")
    sent = json.loads(Session.open(API, chat.encode_json(body), CLIENT, plans, "seed").encode_request())
    blocks = [one for turn in sent["messages"] if isinstance(turn["content"], list) for one in turn["content"]]
    assert [place for place, one in enumerate(blocks) if "cache_control" in one] == [len(blocks) - 1]
