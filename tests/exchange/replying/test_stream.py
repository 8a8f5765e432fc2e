"""A reply from bytes to bytes: every cut, any bytes, and frames that are forwarded unread."""

from __future__ import annotations

import gc
import gzip
import tracemalloc
import weakref
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.targets import is_text_preserved
from tests.apis import chat, pairs
from tests.bounds import count_calls
from tests.exchange.crossings import open_bridge
from tests.exchanges import BODY, CALLED, REPLY_PIECES, TEXT, feed_stream, open_session, reveals_reasoning_late
from vtc.wire import UnsupportedEncoding


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_every_cut_of_a_reply_gives_the_same(coding: str, some: Any) -> None:
    """The cuts are at every byte, and in two pieces at each position."""
    body = gzip.compress(BODY) if coding else BODY
    whole = feed_stream(open_session().stream(coding), body)
    assert chat.read(whole) == CALLED
    assert feed_stream(open_session().stream(coding), *(body[i : i + 1] for i in range(len(body)))) == whole
    for cut in some(range(1, len(body)), 4):
        assert feed_stream(open_session().stream(coding), body[:cut], body[cut:]) == whole


def test_a_stream_does_not_hold_the_conversation_that_it_answers() -> None:
    """A turn of an agent has hundreds of kilobytes, and its reply can take minutes."""
    turns = [{"role": "user", "content": f"{number} " * 2000} for number in range(40)]
    tracemalloc.start()
    try:
        exchange = open_session(messages=turns)
        exchange.encode_request()
        held, _ = tracemalloc.get_traced_memory()
        stream = exchange.stream()
        gc.collect()
        remaining, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stream.feed(BODY)
    assert held - remaining > sum(len(turn["content"]) for turn in turns)


def test_the_text_of_a_long_reply_is_not_kept() -> None:
    """The text of a turn is stored because it might be silent, but a turn with a megabyte of text is not."""
    stream = open_session().stream()
    frame = chat.make_text_chunks("word " * 800)[0]
    stream.feed(BODY[: len(BODY) // 2])
    tracemalloc.start()
    try:
        for _ in range(2_000):
            stream.feed(frame)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


def test_a_call_that_was_not_read_is_looked_for_at_the_end_of_a_stream() -> None:
    """All other streams wait during the search."""
    works = []
    for words in (4_000, 16_000):
        exchange = open_session(tools=[chat.tool("read", filePath="string")])
        body = b"".join(chat.make_stream(*["word "] * words, '@@read(filePath="a")'))
        assert exchange.stream().feed(body)
        works.append(count_calls(partial(exchange.report_unread_call, lambda body=body: body)))
        assert exchange.report.unread["tool"] == "read"
    assert works[1] < 1.2 * works[0]


@pytest.mark.parametrize("rest", [-10, 0, 30])
@pytest.mark.parametrize(("client", "server"), [*((api, api) for api in pairs.NAMES), *pairs.CROSSED[:2]])
def test_a_call_that_is_given_up_is_sent_in_parts(client: str, server: str, rest: int) -> None:
    """It is a megabyte in thousands of frames, and all other streams would wait while these are sent at once."""
    text = '<tool_call>\n{"name": "read", "arguments": {"filePath": "' + "x" * (1 << 20) + "y" * 200 * rest
    exchange = open_bridge(client, server, stream=True)
    stream = exchange.stream()
    body = pairs.make_stream(server, [text[at : at + 200] for at in range(0, len(text), 200)])
    chunks = [body[at : at + 400] for at in range(0, len(body), 400)]
    out = [b"".join(stream.feed(chunk)) for chunk in chunks]
    assert pairs.read(client, b"".join([*out, *stream.finish()]), stream=True).text == text
    assert not rest or max(map(len, out)) < 0.8 * sum(map(len, out))


def offer_tool(**schema: Any) -> Any:
    function = {"name": "read", "description": "Reads.", "parameters": {"type": "object", **schema}}
    exchange = open_session(tools=[{"type": "function", "function": function}])
    return exchange.plan.offered[0], exchange.stream()


def test_streams_that_are_open_hold_equal_tools_once() -> None:
    """The schemas of forty tools are larger than the rest of a stream's state."""
    (tool, stream), (same, _), (other, _) = offer_tool(), offer_tool(), offer_tool(default=None)
    (no_number, _), (again, _) = offer_tool(default=float("nan")), offer_tool(default=float("nan"))
    assert same is tool
    assert len({id(one) for one in (tool, other, no_number, again)}) == 4
    gone = weakref.ref(tool)
    del tool, same, stream, _
    gc.collect()
    assert gone() is None


SETTINGS = st.sampled_from([{}, {"lenient": "off"}, {"model": "qwen3"}, {"model": "qwen2.5"}])


@example(["```\n", "Hello, ", "a < b", "\n", "```\n", "Hello, ", "\n", "</tool_call>"], [], {}, True)
@example(["Hello, ", "\n", "</tool_call>"], [], {}, True)
@example(["Hello, ", "\n", "</tool_call>"], [], {}, False)
@example(["</tool_call>"], [], {}, True)
@example(["<read>\n<filePath>/a\n\nb</filePath>\n</read>", "<tool_call>", "  "], [], {}, False)
@given(texts=REPLY_PIECES, cuts=st.lists(st.integers(0, 2000), max_size=6), settings=SETTINGS, finish=st.booleans())
def test_any_reply_in_any_cut_equals_the_whole_reply(
    texts: list[str], cuts: list[int], settings: dict[str, str], finish: bool
) -> None:
    """Arguments are JSON and ids differ (`chat.read`)."""
    reason = "stop" if finish else "length"
    body = b"".join(chat.make_stream(*texts, finish=reason))
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    streamed = chat.read(
        feed_stream(open_session(settings=settings).stream(), *(body[a:b] for a, b in pairwise(places) if a < b))
    )
    text = "".join(texts)
    exchange = open_session(settings=settings)
    whole = chat.read(exchange.whole.rewrite(chat.encode_json(chat.completion(text, reason))))
    assert streamed == whole or reveals_reasoning_late(exchange, text)
    if not whole.calls and "think" not in text and "thought" not in text:
        assert is_text_preserved([text], whole.content, repaired=finish and settings.get("lenient") != "off")


@given(pieces=st.lists(st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", b"[DONE]", b"{}", chat.STOP])))
def test_any_bytes_pass(pieces: list[bytes]) -> None:
    """No exception is raised, no byte is lost, and no empty bytes, which would end the body, are returned."""
    stream = open_session().stream()
    out = [stream.feed(piece) for piece in pieces]
    out += [stream.finish(), stream.finish()]
    assert all(len(one) <= 1 and b"" not in one for one in out)
    assert b"".join(piece for one in out for piece in one) == b"".join(pieces)


@given(st.binary(max_size=100))
def test_any_body_passes(body: bytes) -> None:
    assert open_session().whole.rewrite(body) == body


def test_a_body_of_events_is_read_as_one() -> None:
    """The content type does not matter; a whole stream is processed like a stream that is fed once."""
    assert open_session().whole.rewrite(BODY) == feed_stream(open_session().stream(), BODY)
    assert open_session().whole.rewrite(b"\r\n: hi\n\n" + BODY).startswith(b"\r\n: hi\n\n")


def test_output_is_sent_in_one_piece() -> None:
    """Each returned piece costs mitmproxy a write."""
    stream = open_session().stream()
    assert stream.feed(chat.ROLE + b"".join(chat.make_text_chunks("a", "b"))) == [
        chat.ROLE + b"".join(chat.make_text_chunks("a", "b"))
    ]
    assert stream.feed(b"") == []
    assert stream.feed(chat.make_text_chunks("<rea")[0]) == []


def test_an_unknown_coding_is_refused() -> None:
    with pytest.raises(UnsupportedEncoding, match="'x-secret' is not supported"):
        open_session().stream("x-secret")


def test_broken_content_coding_is_reported_once_and_nothing_raises(caplog: pytest.LogCaptureFixture) -> None:
    exchange = open_session()
    stream = exchange.stream("gzip")
    assert feed_stream(stream, b"\x1f\x8b\xff\xff", b"\xff" * 10, b"") == b""
    assert [error.partition(":")[0] for error in exchange.report.errors] == ["the server broke off"]
    assert exchange.report.failures == []
    assert not caplog.records  # a fault of the server has no traceback


# White space is buffered until more text arrives


def test_buffered_white_space_is_not_sent_before_a_call() -> None:
    frames = [chat.ROLE, *chat.make_text_chunks("It", " works", "\n\n", TEXT.partition("\n\n")[2])]
    read = chat.read(feed_stream(open_session().stream(), *frames, chat.STOP, chat.DONE))
    assert (read.content, len(read.calls)) == ("It works", 1)


@pytest.mark.parametrize(
    "end",
    [
        [],
        [chat.STOP, chat.DONE],
        [b"data: {"],
        [chat.make_text_chunks(" word")[0][:-1]],
        [chat.make_text_chunks("\n")[0][:-1]],
    ],
)
def test_white_space_that_waits_is_not_lost(end: list[bytes]) -> None:
    frames = [chat.ROLE, *chat.make_text_chunks("It", " works", "\n", "\n"), *end]
    assert feed_stream(open_session().stream(), *frames) == b"".join(frames)


CLINE = (Path(__file__).parents[2] / "cases" / "prompts" / "cline.md").read_text("utf-8")
READ = "<read>\n<filePath>x</filePath>\n</read>"
DELTAS = st.lists(
    st.sampled_from(
        [
            *(
                "word",
                " word",
                ".",
                '"',
                "\\",
                "é",
                "\u2028",
                ">",
                "> ",
                "\n>",
                "\n",
                "\n\n",
                " \n",
                "  ",
                "\t",
                "\r\n",
            ),
            *(
                "`",
                " `",
                "``",
                "```",
                "```py",
                "\n```\n",
                "~~~",
                "<",
                " <b>",
                "</",
                "<think>",
                "</think>",
                "|",
                "[",
                "{",
            ),
            *(
                READ,
                "<read>",
                "<filePath>x</filePath>",
                "\n</read>",
                "<tool_call>\n",
                '{"name": "read", "arguments": {',
            ),
            *('"filePath": "x"}}', "\n</tool_call>", "<read_file>\n<path>x</path>\n</read_file>"),
        ]
    ),
    max_size=16,
)
CLIENTS: dict[str, dict[str, Any]] = {
    "a native client": {},
    "a text client": {
        "messages": [{"role": "system", "content": CLINE}, {"role": "user", "content": "Go."}],
        "tools": None,
    },
}


@pytest.mark.parametrize("client", CLIENTS)
@given(
    deltas=DELTAS,
    model=st.sampled_from(["qwen2.5", "qwen3", "lab-model"]),
    cut_off=st.booleans(),
    cuts=st.lists(st.integers(-60, 200), min_size=1, max_size=6),
)
@example(deltas=["\n>", "```", "\n", READ, "\n```\n"], model="lab-model", cut_off=False, cuts=[-1])
@example(deltas=["\n", "```", "\n", READ, "\n```\n"], model="lab-model", cut_off=False, cuts=[0, -2])
@example(deltas=["\n", "a", "```", "\n", READ, "\n```\n"], model="lab-model", cut_off=False, cuts=[1, 150])
def test_a_frame_that_nobody_reads_changes_nothing(
    client: str, deltas: list[str], model: str, cut_off: bool, cuts: list[int]
) -> None:
    """A frame that is forwarded unread in one or two pieces is parsed if it arrives in three."""
    frames = [chat.ROLE, *chat.make_text_chunks("It", " works", *deltas), *([] if cut_off else [chat.STOP]), chat.DONE]
    ways = [
        frames,
        [piece for frame, cut in zip(frames, cycle(cuts)) for piece in (frame[:cut], frame[cut:])],
        [piece for frame in frames for piece in (frame[:9], frame[9:12], frame[12:])],
    ]
    exchanges = [open_session(model=model, **CLIENTS[client]) for _ in ways]
    out = [feed_stream(exchange.stream(), *chunks) for exchange, chunks in zip(exchanges, ways, strict=True)]
    assert out[0] == out[1] == out[2]
    reports = [exchange.report.as_dict() for exchange in exchanges]
    assert reports[0] == reports[1] == reports[2]
