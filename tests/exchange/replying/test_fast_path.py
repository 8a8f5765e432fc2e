"""Chunks that are forwarded unread, for every shape of frame that servers send."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.apis import chat
from tests.exchange.crossings import open_bridge
from tests.exchanges import feed_stream, open_session
from vtc.exchange import Stream

SHAPES: dict[str, Any] = {
    "plain": {},
    "usage that grows": {"usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}},
    "obfuscation": {"obfuscation": "xJ"},
    "a time in every frame": {"created": 1700000000},
    "logprobs": {"logprobs": True},
}


def make_shaped_frames(shape: str, *pieces: str, start: int = 1) -> list[bytes]:
    """Encode a frame for each piece; the other values of its shape differ from frame to frame."""
    frames = []
    for number, piece in enumerate(pieces, start):
        fields = json.loads(json.dumps(SHAPES[shape]))
        choice: dict[str, Any] = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        if fields.pop("logprobs", None):
            token = {"token": piece, "logprob": -0.25 * number, "bytes": [*piece.encode()]}
            choice["logprobs"] = {"content": [{**token, "top_logprobs": [token, {**token, "token": "x", "bytes": []}]}]}
        if "usage" in fields:
            fields["usage"].update(completion_tokens=number, total_tokens=3 + number)
        if "obfuscation" in fields:
            fields["obfuscation"] = "aZ9" * (number % 5)
        if "created" in fields:
            fields["created"] += number
        frames.append(chat.frame({**chat.HEAD, "choices": [choice], **fields}))
    return frames


class Watched:
    """A stream that counts the frames it parses."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.read = 0
        feed = stream._relay.feed

        def count_frame(frame: Any) -> list[bytes]:
            self.read += 1
            return feed(frame)

        stream._relay.feed = count_frame  # type: ignore[method-assign]

    def reads(self, *chunks: bytes) -> int:
        """Feed chunks; return how many frames were parsed."""
        before = self.read
        for chunk in chunks:
            self.stream.feed(chunk)
        return self.read - before


def begin_reply(shape: str = "plain") -> Watched:
    """Begin a reply: its role, and two words."""
    watched = Watched(open_session().stream())
    watched.reads(chat.ROLE, *make_shaped_frames(shape, "It", " works"))
    watched.read = 0
    return watched


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (" word", True),
        (", and 100 % of the others!", True),
        ('Say "a\\b" now', True),
        ("\n\n1. One\n   more", True),
        ("a > b", True),
        ("a <", False),
        ("`", True),  # it is buffered
        ("`a` or `b`,", True),
        ("~", True),
        ("\n```", False),
        ("\n  ~", False),
        ("\n>", False),
        ("\n    more", False),  # a line of code
        ("\n   ", True),  # it is buffered
        ("\n\tmore", False),
        ("\n > more", False),
        ("  more", True),
        ("> more", True),
        (" \tmore", True),
        ("a  b\tc\n\nd   e", True),
        ("\N{SNOWMAN}", False),  # an escape can denote any character
    ],
)
def test_frame_without_markup_is_not_read(text: str, passes: bool, shape: str) -> None:
    assert begin_reply(shape).reads(*make_shaped_frames(shape, text, start=7)) == (not passes)


@pytest.mark.parametrize("shape", SHAPES)
def test_text_in_which_nothing_begins_is_hardly_read(shape: str) -> None:
    pieces = [
        text[at : at + 4] for text in ["The quick brown fox jumps over\nthe lazy dog. "] * 20 for at in range(0, 46, 4)
    ]
    frames = make_shaped_frames(shape, *pieces)
    watched = Watched(open_session().stream())
    out = [piece for frame in [chat.ROLE, *frames] for piece in watched.stream.feed(frame)] + watched.stream.finish()
    assert b"".join(out) == b"".join([chat.ROLE, *frames])
    assert watched.read <= 12


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        ([" `", "load", "()`", " first"], 0),
        ([" ``a", "`", "b", "`", "`", " c", "\n", "d"], 0),
        ([" `a", "\n", "\nb` c"], 2),  # the paragraph ends before the span does
        (["\n", "```", "\n", "a"], 4),
    ],
)
def test_code_span_is_read_only_at_a_possible_end_of_its_paragraph(texts: list[str], read: int) -> None:
    assert begin_reply().reads(*chat.make_text_chunks(*texts)) == read


@pytest.mark.parametrize("count", [2, 3, 8])
def test_several_frames_in_a_chunk_are_not_read(count: int) -> None:
    watched = begin_reply()
    frames = chat.make_text_chunks(*" all of this is plain".replace(" ", "| ").split("|")[1:] * 20)
    frames = [*frames, *chat.make_text_chunks("a", "\n", "\n", "b ", "\n", "d") * 20]
    assert watched.reads(*(b"".join(frames[at : at + count]) for at in range(0, len(frames), count))) == 0


@pytest.mark.parametrize(
    "texts",
    [
        ["\n", " ", " ", " ", " x"],
        ["\n  ", " ", " x"],
        ["a\n   ", " x"],
        ["\n", "    x"],
        ["\n ", " \tx"],
        ["\n", ">", " x"],
        ["\n", " ", "> x"],
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_line_of_code_or_a_quotation_is_read_wherever_frames_end(texts: list[str], together: bool) -> None:
    watched = begin_reply()
    frames = chat.make_text_chunks(*texts)
    assert watched.reads(*([b"".join(frames)] if together else frames)) > 0


LINES = [f"{begins}{more}\n" for begins in ("", ">", "> ", "> > ", "  ", "    ") for more in ("```", "~~~", "x", "")]


@pytest.mark.parametrize("begins", ["", "It works\n"])
@given(
    texts=st.lists(st.sampled_from(LINES) | st.text("a >\t\n`~", min_size=1, max_size=4), max_size=8),
    size=st.sampled_from([0, 1, 2, 3]),
)
@example(texts=["> ```\n", "> x\n", "> ```\n"], size=1)
@example(texts=[">~~~\n", ">x\n", ">~~~\n", "x\n"], size=1)
@example(texts=["> > ```\n", ">", " ", ">", " ", "x\n", "> > ", "```\n"], size=0)
def test_calls_after_any_lines_are_those_of_a_whole_body(texts: list[str], size: int, begins: str) -> None:
    """The pieces are as drawn and of each size, so a quoted fence can be cut after its `>`."""
    text = "".join(texts)
    pieces = [text[at : at + size] for at in range(0, len(text), size)] if size else texts
    pieces = [begins, *pieces, "<tool_call><function=read>", "<parameter=filePath>a</parameter></function>"]
    streamed = feed_stream(open_session().stream(), *chat.make_stream(*filter(None, pieces)))
    whole = open_session().whole.rewrite(chat.encode_json(chat.completion("".join(pieces))))
    assert chat.read(streamed) == chat.read(whole)


@given(cuts=st.lists(st.integers(1, 400), min_size=1))
def test_frames_cut_by_the_network_are_not_read(cuts: list[int]) -> None:
    watched = begin_reply()
    body = b"".join(chat.make_text_chunks(*[" word", " more", "\n"] * 20))
    places = cycle(cuts)
    at, chunks = 0, []
    while at < len(body):
        cut = next(places)
        chunks.append(body[at : at + cut])
        at += cut
    assert watched.reads(*chunks) == 0


def test_reasoning_is_read_only_if_a_call_may_begin() -> None:
    watched = Watched(open_session().stream())
    frames = [chat.chunk({"reasoning_content": text}) for text in ["So", " it", " seems", "."] * 10]
    assert watched.reads(chat.ROLE, *frames) <= 4
    assert watched.reads(chat.chunk({"reasoning_content": " <b"})) == 1


@pytest.mark.parametrize("text", ["\n", "word\n", "word "])
def test_frame_that_ends_in_white_space_waits_whole_for_the_next(text: str) -> None:
    watched = begin_reply()
    end, more = chat.make_text_chunks(text, "more")
    assert watched.stream.feed(end) == []
    assert watched.stream.feed(more) == [end + more]
    assert watched.read == 0


@pytest.mark.parametrize(
    ("texts", "pending"),
    [
        (["a", "b", "\n"], 2),
        (["a", "b\n", "\n"], 1),
        (["a", "\n", " ", "\n"], 1),
        (["\n", " "], 0),
        (["a ", "b", "\n", "d", "\n"], 4),
    ],
)
def test_white_space_alone_waits_with_the_frames_before_it(texts: list[str], pending: int) -> None:
    watched = begin_reply()
    frames, (more,) = chat.make_text_chunks(*texts), chat.make_text_chunks("more")
    assert b"".join(watched.stream.feed(b"".join(frames))) == b"".join(frames[:pending])
    assert watched.stream.feed(more) == [b"".join([*frames[pending:], more])]
    assert watched.read == 0


@given(
    chunks=st.lists(
        st.lists(
            st.sampled_from(["a", " b", "c ", "\n", " ", "x >", ">", "<", "`d` e", "`f", "<read>\n", "> x", ">\n"]),
            min_size=1,
            max_size=4,
        )
    )
)
def test_frames_are_sent_at_the_same_time_with_and_without_it(chunks: list[list[str]]) -> None:
    fast, slow = begin_reply().stream, begin_reply().stream
    slow._fast_path = None
    for texts in chunks:
        chunk = b"".join(chat.make_text_chunks(*texts))
        assert fast.feed(chunk) == slow.feed(chunk)
    assert fast.finish() == slow.finish()


@given(texts=st.lists(st.sampled_from(["x`", "Lo", ".`", "`", "``", '"', " b", "c ", "\n", "<"]), max_size=8))
def test_frame_that_ends_in_backticks_is_sent_whole_with_and_without_it(texts: list[str]) -> None:
    fast, slow = begin_reply().stream, begin_reply().stream
    slow._fast_path = None
    frames = chat.make_text_chunks(*texts)
    outputs = [
        b"".join([*(data for frame in frames for data in one.feed(frame)), *one.finish()]) for one in (fast, slow)
    ]
    assert outputs[0] == outputs[1]
    if "<" not in texts:
        assert outputs[1] == b"".join(frames)


def test_frame_that_ends_in_white_space_is_sent_one_frame_later() -> None:
    watched = begin_reply()
    frames = chat.make_text_chunks(*["word "] * 5)
    assert [watched.stream.feed(frame) for frame in frames] == [[], *([frame] for frame in frames[:-1])]
    assert watched.stream.finish() == [frames[-1]]


def test_text_of_which_every_piece_ends_in_white_space_is_hardly_read() -> None:
    watched = Watched(open_session().stream())
    frames = [chat.ROLE, *chat.make_text_chunks(*["word ", "two ", "lines\n"] * 20)]
    assert [watched.stream.feed(frame) for frame in frames] == [[chat.ROLE], [], *([frame] for frame in frames[1:-1])]
    assert watched.read < 12
    assert watched.stream.finish() == [frames[-1]]


WHITE_BEHIND = st.lists(
    st.sampled_from(
        ["It ", "is ", "a ", "12 ", "a:12: ", "x\n", "\n", " ", "  ", "> ", '"', "b", ". ", "é ", "`d` ", "< "]
    ),
    max_size=12,
)


@given(texts=WHITE_BEHIND, call=st.booleans())
def test_frames_are_sent_at_the_same_time_if_white_space_is_buffered_from_the_start(
    texts: list[str], call: bool
) -> None:
    """No text was sent whole before the shape of such frames is known."""
    fast, slow = open_session().stream(), open_session().stream()
    slow._fast_path = None
    if call:
        texts = [*texts, *re.findall(".{1,6}", chat.DIALECTS["tag"]("read", {"filePath": "/a"}))]
    for chunk in [chat.ROLE, *chat.make_text_chunks(*texts)]:
        assert fast.feed(chunk) == slow.feed(chunk)
    assert chat.read(b"".join(fast.finish())) == chat.read(b"".join(slow.finish()))


def call_in(dialect: str, size: int, content: str = "") -> list[str]:
    """Encode a call in pieces of a size, after text if its dialect permits that."""
    call = chat.DIALECTS[dialect]("write", {"filePath": "/a", "content": content or WRITTEN})
    text = call if dialect == "bare-json" else f"I will write it.\n\n{call}"
    return [text[at : at + size] for at in range(0, len(text), size)]


WRITTEN = 'def f(x):\n    return {"a": [1, "\\n"], "b": x < 3 and x > 1, "ä": "C:\\new"}  # é\n\n' * 8


@pytest.mark.parametrize("dialect", chat.DIALECTS)
@pytest.mark.parametrize("size", [1, 4, 17])
@pytest.mark.parametrize("cut", [None, -9, -200])
def test_frames_of_a_call_are_sent_at_the_same_time_with_and_without_it(
    dialect: str, size: int, cut: int | None
) -> None:
    fast, slow = open_session().stream(), open_session().stream()
    slow._fast_path = None
    for chunk in [chat.ROLE, *chat.make_text_chunks(*call_in(dialect, size)[:cut], *[" more", "\n"] * 4)]:
        assert fast.feed(chunk) == slow.feed(chunk)
    assert fast.finish() == slow.finish()


@pytest.mark.parametrize("dialect", chat.DIALECTS)
@pytest.mark.parametrize("together", [1, 3])
def test_frames_of_a_call_that_waits_are_hardly_decoded(dialect: str, together: int) -> None:
    watched = Watched(open_session().stream())
    frames = [chat.ROLE, *chat.make_text_chunks(*call_in(dialect, 4))]
    chunks = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    out = b"".join(data for chunk in chunks for data in watched.stream.feed(chunk))
    assert watched.read < 40
    ((_, arguments),) = chat.read(out + b"".join(watched.stream.finish())).calls
    assert arguments["content"] == WRITTEN


@pytest.mark.parametrize("end", ["break_off", "lose", "give_up", "fault"])
def test_frames_of_a_call_are_returned_once_for_any_continuation(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = open_session().stream()
    frames = [chat.ROLE, *chat.make_text_chunks(*call_in("tag", 4)[:-9])]
    out = [data for frame in frames for data in stream.feed(frame)]
    assert len(out) < 10
    match end:
        case "break_off":
            out += stream.break_off("it broke")
        case "lose":
            out += stream.end_after_gap(ValueError("a gap"))
        case "give_up":
            out += stream.stop_rewriting(b"", ValueError("a fault"))
        case "fault":
            monkeypatch.setattr(stream._relay.choices.pipelines[0], "feed", raising)
            frames += chat.make_text_chunks(" <a>", "b")
            out += [data for frame in frames[-2:] for data in stream.feed(frame)] + stream.finish()
    assert b"".join(out) == b"".join(frames)


def raising(*_: object) -> None:
    raise ValueError("a fault")


@pytest.mark.parametrize("end", ["keep_alive", "break_off", "lose"])
def test_buffered_frame_is_sent_once_for_any_continuation(end: str) -> None:
    stream = open_session().stream()
    frames = [chat.ROLE, *chat.make_text_chunks("one ", "two ", "three ")]
    out = [piece for frame in frames for piece in stream.feed(frame)]
    assert out == frames[:-1]
    match end:
        case "keep_alive":
            stream.keep_alive()
            out += stream.feed(chat.make_text_chunks("four ")[0]) + stream.finish()
            frames += chat.make_text_chunks("four ")
        case "break_off":
            out += stream.break_off("it broke")
        case "lose":
            out += stream.end_after_gap(ValueError("a gap"))
    assert b"".join(out) == b"".join(frames)


@pytest.mark.parametrize("cut", range(1, len(chat.make_text_chunks(" word")[0])))
def test_frame_in_two_pieces_is_not_read(cut: int) -> None:
    watched = begin_reply()
    blank, word, more = chat.make_text_chunks("\n", " word", " more")
    assert [watched.stream.feed(one) for one in (blank, word[:cut])] == [[], []]
    assert watched.stream.feed(word[cut:]) == [blank + word]
    assert watched.stream.feed(more) == [more]
    assert watched.read == 0


def test_frame_with_a_content_coding_is_checked_as_before() -> None:
    """Encoded bytes can resemble those of another frame; after decoding, frames are parsed as rarely as others."""
    watched = Watched(open_session().stream("gzip"))
    assert watched.reads(*map(gzip.compress, [chat.ROLE, *chat.make_text_chunks("It", " works", " well")])) == 2


def test_frame_of_another_choice_is_read() -> None:
    assert begin_reply().reads(*chat.make_text_chunks(" word", index=1)) == 1


def text_of(frames: Iterable[bytes]) -> str:
    return chat.read(feed_stream(open_session().stream(), *frames)).content


@pytest.mark.parametrize("shape", SHAPES)
def test_call_after_plain_frames_is_lifted(shape: str) -> None:
    call = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
    for size in (1, 4, 9):
        text = f"It works very well.\n\n{call}"
        frames = make_shaped_frames(shape, *(text[at : at + size] for at in range(0, len(text), size)))
        body = feed_stream(open_session().stream(), chat.ROLE, *frames, chat.STOP, chat.DONE)
        assert chat.read(body).calls == [("read", {"filePath": "/a"})]


def test_frame_of_several_data_lines_is_read() -> None:
    """Its data are not contiguous, so the bytes around its text cannot be determined."""
    frames = [frame.replace(b', "', b',\ndata: "') for frame in chat.make_text_chunks(*[" word"] * 20)]
    for size in (0, 1, 7):
        watched = Watched(open_session().stream())
        body = b"".join([chat.ROLE, *frames])
        chunks = [body[at : at + size] for at in range(0, len(body), size)] if size else [chat.ROLE, *frames]
        assert b"".join(out for chunk in chunks for out in watched.stream.feed(chunk)) == body
        assert watched.read == 21


@pytest.mark.parametrize("between", [b": ping\n\n", b"event: ping\ndata: {}\n\n", b"data: no JSON\n\n"])
def test_numbers_of_events_count_on_after_a_frame_without_text(between: bytes) -> None:
    """The template of such events was learned from the last text, and has counted on since then."""
    texts = [*chat.make_text_chunks("It", " works", " well", " so", " far"), between]
    frames = [chat.ROLE, *texts, *texts, *texts, chat.STOP, chat.DONE]
    outs = []
    for cuts in ([b"".join(frames)], frames, [part for frame in frames for part in (frame[:9], frame[9:])]):
        stream = open_bridge("openai-responses", "openai-chat", stream=True).stream()
        outs.append(b"".join([*(piece for cut in cuts for piece in stream.feed(cut)), *stream.finish()]))
    numbers = [event["sequence_number"] for event in chat.events(outs[0])]
    assert numbers == [*range(len(numbers))]
    assert outs == [outs[0]] * 3


@pytest.mark.parametrize("group", [1, 2, 100])
@pytest.mark.parametrize("in_call", [False, True])
def test_bytes_that_are_no_utf8_end_no_reading(group: int, in_call: bool) -> None:
    texts = ["I ", "look ", "at ", "it.\n" if in_call else "XX "]
    call = ['<tool_call>\n{"name": "read", "arguments": {"filePath": "/a', "b ", "XX " if in_call else "c ", "d"]
    frames = chat.make_stream(*texts, *call, '"}}\n</tool_call>')
    frames = [frame.replace(b"XX", b"\xc1") for frame in frames]
    exchange = open_session()
    feed_stream(exchange.stream(), *(b"".join(frames[at : at + group]) for at in range(0, len(frames), group)))
    assert exchange.report.failures == []
    assert [entry["name"] for entry in exchange.report.calls] == ["read"]
