"""Replies that repeat one block of text without end, and texts that only look like it."""

from __future__ import annotations

import random
import re
import time
from itertools import count
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.conversations import BY_NAME
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchange.replying.repetitions import MIN_CHARACTERS, STEP_CHARACTERS, find_repetition
from tests.exchanges import planner
from vtc.exchange import Session, Stream
from vtc.profiles import Facts


def describe(size: int, times: int) -> list[str]:
    return [f"the reply repeats one block of {size} characters at least {times} times in a row"]


WORDS = "so the file is read and then the next one is opened because a test names it but no other does".split()  # noqa: SIM905
RANDOM = random.Random(1)
PROSE = " ".join(RANDOM.choice(WORDS) for _ in range(3000))
REPEATED = {
    "a line": ("Let me check the file.\n" * 1500, 23),
    "a word": ("The " * 1000, 20),
    "a letter": ("A" * 3000, 20),
    "a paragraph": (f"{PROSE[:1000]}\n" * 20, 1001),
    "a long block": (PROSE[:3500] * 20, 3500),
    "another script": ("让我再检查一下这个文件的内容，然后继续下一步的工作。" * 200, 26),
    "a list": ("- Read `a.py` and fix it\n" * 200, 25),
    "after prose": (PROSE + "I will now read it again.\n" * 200, 26),
    "after code": (f"{PROSE}\n```py\nx = 1\n```\n" + "I will now read it again.\n" * 200, 26),
    "between code": ("Wait, I read it again:\n```\nx\n```\n" * 200, 33),
    "with tildes": ("~~~\ncode ```\n~~~\n" + "I will now read it again.\n" * 200, 26),
}
ROWS = [f"| {number} | {RANDOM.choice(WORDS)} | {'x' * (number % 9)} | no |" for number in range(300)]
INNOCENT = {
    "prose": PROSE,
    "seven times": f"{PROSE[:400]}\n" * 7 + PROSE,
    "few characters": PROSE + "a short line of text\n" * 80 + PROSE[::-1],
    "a table": "| a | b | c | d |\n|---|---|---|---|\n" + "\n".join(ROWS),
    "a wide table": f"| a | b |\n|{'-' * 4000}|{'-' * 4000}|\n| x | y |",
    "rows of numbers": "| 0 | 0.0 | 0 | 0 |\n" * 300,
    "a hex dump": "\n".join(f"{at:08x}  {'00 ' * 16} |{'.' * 16}|" for at in range(0, 16 * 400, 16)),
    "zeros": "00 00 00 00 00 00 00 00\n" * 300,
    "a log": "\n".join(f"2026-11-28 16:{at // 60:02}:{at % 60:02} INFO worker: request done" for at in range(900)),
    "ASCII art": ("+----------+          +----------+\n|          |--------->|          |\n" * 3 + "=" * 60 + "\n")
    * 40,
    "a ruler": "=" * 5000,
    "spaces": " " * 5000,
    "progress": "\n".join(f"[{'=' * done}{' ' * (99 - done)}] {done} %" for done in range(99)),
    "a code block": f"Here:\n```\n{'    return None\n    pass\n' * 300}```\nDone.",
    "a code block in a list": f"1. Here:\n\n   ```\n{'   return None, None, None\n' * 300}   ```\n",
    "a longer fence": f"````md\n```py\n{'return None, None, None\n' * 300}```\n````\n",
    "indented code": "Here:\n\n" + "    return None, None, None\n" * 300,
    "an open code block": "```\n" + "I will now read it again.\n" * 300,
    "JSON": "[" + ", ".join(f'{{"id": {number}, "name": "row", "done": false}}' for number in range(300)) + "]",
    "almost the same": "".join(f"Let me check the file number {number}.\n" for number in range(1500)),
}


@pytest.mark.every
@pytest.mark.parametrize("what", REPEATED)
@pytest.mark.parametrize("cut", [0, 1, 7, 1000], ids=str)
def test_repeated_block_is_found_in_every_cut(what: str, cut: int) -> None:
    text, size = REPEATED[what]
    (note,) = find_repetition(text, cut)
    assert note.startswith(f"the reply repeats one block of {size} characters at least ")
    assert [note] == find_repetition(text, 64)


@pytest.mark.every
@pytest.mark.parametrize("what", INNOCENT)
def test_other_text_is_no_repetition(what: str) -> None:
    assert find_repetition(INNOCENT[what]) == find_repetition(INNOCENT[what], 1) == []


def test_limits() -> None:
    """The block is found at the first place at which it fills the limits."""
    line = "Let me look at the file again, please.\n\n"
    times = (MIN_CHARACTERS + STEP_CHARACTERS) // len(line)
    assert find_repetition(line * times) == describe(len(line), MIN_CHARACTERS // len(line))
    assert find_repetition(line * (MIN_CHARACTERS // len(line) - 1) + PROSE) == []


@pytest.mark.parametrize("size", [1, 31, 32, 33, 250, 4096, 8000])
def test_time_grows_with_the_text_alone(size: int) -> None:
    """The last characters of each piece occur everywhere before it, but no period does."""
    text = ("a" * size + "b") * (1_000_000 // (size + 1))
    text = "".join(f"{text[at : at + 3000]}{at}" for at in range(0, len(text), 3000))
    started = time.thread_time()
    find_repetition(text)
    assert time.thread_time() - started < 3


# Replies

LINE = "Let me check the file again.\n"
ENDED = "(VTC ended this reply, because it repeats one block of 29 characters at least "
FOUND = "the reply repeats one block of 29 characters at least "


def open_reply(client: str, server: str, *, stream: bool = True, choices: int = 1, **settings: Any) -> Session:
    plans = planner(**({} if client == server else {"upstream_api": (server,)}), **settings)
    facts = Facts(user_agent="agent", path=SHAPES[client].build_path(stream=stream))
    body = make_request_body(client, stream=stream, **({"n": choices} if choices > 1 else {}))
    session = Session.open(BY_NAME[client], body, facts, plans, "s")
    session.encode_request()
    return session


def make_body(server: str, kind: str) -> bytes:
    texts = ["I look.\n\n", *[LINE] * 400]
    if kind == "text":
        return pairs.make_stream(server, texts)
    # The helper makes one frame of the reasoning, which is repeated.
    body = pairs.make_stream(server, ["So."], reasoning=LINE)
    frames = body.splitlines(keepends=True) if server == "ollama-chat" else re.findall(rb"(?s).*?\n\n", body)
    thought = next(number for number, frame in enumerate(frames) if LINE.strip().encode() in frame)
    body = b"".join([*frames[:thought], *frames[thought : thought + 1] * 400, *frames[thought + 1 :]])
    numbers = count()
    return re.sub(rb'(?<="sequence_number": )\d+', lambda _: b"%d" % next(numbers), body)


def feed_until_stopped(session: Session, body: bytes, size: int) -> tuple[Stream, bytes, bytes]:
    """Return the stream, the bytes for the client, and those that the server did not have to send."""
    stream, out = session.stream(), b""
    for at in range(0, len(body), size):
        out += b"".join(stream.feed(body[at : at + size]))
        if stream.has_stopped:
            return stream, out + b"".join(stream.finish()), body[at + size :]
    return stream, out + b"".join(stream.finish()), b""


@pytest.mark.every
@pytest.mark.parametrize(("client", "server"), pairs.PAIRS)
@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_reply_that_repeats_itself_is_ended(client: str, server: str, kind: str) -> None:
    """The client is told why, in text at the end of a reply that is complete in its API."""
    body = make_body(server, kind)
    for size in (1, 100, 5000):
        session = open_reply(client, server, stop_repeats="on")
        stream, out, rest = feed_until_stopped(session, body, size)
        read = pairs.read(client, out, stream=True)
        assert stream.has_stopped
        assert rest
        text, _, message = read.text.partition("\n\n(VTC ")
        assert "Let me check" in text or kind == "reasoning"  # which not each client is shown
        assert f"(VTC {message}".startswith(ENDED)
        assert read.end == "stop"
        assert stream.feed(rest) == stream.finish() == []
        (found, ended) = session.report.notes
        assert found.startswith(FOUND)
        assert ended == "VTC ended the reply there (vtc_stop_repeats)"


@pytest.mark.every
@pytest.mark.parametrize(("client", "server"), pairs.PAIRS)
@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_repetition_is_only_reported_without_the_setting(client: str, server: str, kind: str) -> None:
    body = make_body(server, kind)
    outs = []
    for size in (7, 100, len(body)):
        session = open_reply(client, server)
        stream, out, rest = feed_until_stopped(session, body, size)
        outs.append(out)
        assert (stream.has_stopped, rest) == (False, b"")
        (note,) = session.report.notes
        assert note.startswith(FOUND)
        assert note.endswith("; vtc_stop_repeats=on ends such streams")
    if client == server and kind == "text":
        assert {*outs} == {body}


@pytest.mark.parametrize("server", SHAPES)
def test_short_reply_is_ended_in_every_cut_or_in_none(server: str) -> None:
    """The repetition fills the limits shortly before or after the reply ends by itself."""
    for times in range(MIN_CHARACTERS // len(LINE), (MIN_CHARACTERS + 2 * STEP_CHARACTERS) // len(LINE), 3):
        body = pairs.make_stream(server, [LINE] * times)
        found = set()
        for size in (50, 1000, len(body)):
            session = open_reply(server, server, stop_repeats="on")
            stream, _, _ = feed_until_stopped(session, body, size)
            found.add((stream.has_stopped, *session.report.notes))
        assert len(found) == 1, times


CUT = "\n\n(VTC left out the rest of this text, because it repeats one block of 29 characters at least "
LEFT_OUT = "VTC left out the rest of the text (vtc_stop_repeats)"


def check_cut(text: str) -> None:
    """Check that the text was cut after the first repetitions, and that the client is told why."""
    kept, _, why = text.partition(CUT)
    assert kept in f"I look.\n\n{LINE * 400}"
    assert MIN_CHARACTERS <= len(kept) <= MIN_CHARACTERS + 2 * STEP_CHARACTERS
    assert why.endswith(" times in a row.)")


@pytest.mark.every
@pytest.mark.parametrize(("client", "server"), pairs.PAIRS)
@pytest.mark.parametrize("calls", [(), pairs.READ], ids=["text", "call"])
def test_whole_reply_that_repeats_itself_is_cut(client: str, server: str, calls: pairs.Calls) -> None:
    """The client also gets the calls of the reply."""
    session = open_reply(client, server, stream=False, stop_repeats="on")
    body = pairs.make_whole_reply(server, f"I look.\n\n{LINE * 400}", calls)
    read = pairs.read(client, session.whole.rewrite(body), stream=False)
    check_cut(read.text)
    assert read == pairs.make_content(read.text, calls)
    found, left_out = session.report.notes
    assert found.startswith(FOUND)
    assert left_out == LEFT_OUT


@pytest.mark.every
@pytest.mark.parametrize("server", SHAPES)
def test_whole_reply_is_only_reported_without_the_setting(server: str) -> None:
    session = open_reply(server, server, stream=False)
    body = pairs.make_whole_reply(server, LINE * 400, ())
    assert session.whole.rewrite(body) == body
    (note,) = session.report.notes
    assert note.startswith(FOUND)


@pytest.mark.parametrize("stops", [True, False])
def test_text_before_a_text_call_is_searched(*, stops: bool) -> None:
    """The call is delivered; until its end it is part of the buffered text."""
    session = open_reply("openai-chat", "openai-chat", stream=False, **({"stop_repeats": "on"} if stops else {}))
    call = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
    body = pairs.make_whole_reply("openai-chat", f"{LINE * 100}{call}")
    read = pairs.read("openai-chat", session.whole.rewrite(body), stream=False)
    assert session.report.notes[0].startswith(FOUND)
    assert read == pairs.make_content(read.text, pairs.READ)
    if stops:
        check_cut(read.text)
    else:
        assert read.text.strip() == (LINE * 100).strip()


def test_whole_reply_that_ends_at_the_limit_is_not_cut() -> None:
    """Nothing is left out, so that the client needs no message."""
    session = open_reply("openai-chat", "openai-chat", stream=False, stop_repeats="on")
    body = pairs.make_whole_reply("openai-chat", (LINE * 400)[:MIN_CHARACTERS])
    assert session.whole.rewrite(body) == body
    assert len(session.report.notes) == 1


@pytest.mark.every
@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_each_choice_is_searched(*, stream: bool, stops: bool) -> None:
    """The second choice repeats itself; the first one is delivered whole."""
    settings = {"stop_repeats": "on"} if stops else {}
    session = open_reply("openai-chat", "openai-chat", stream=stream, choices=2, **settings)
    texts = [f"{number}\n" for number in range(400)], [LINE] * 400
    if stream:
        chunks = [chat.make_text_chunks(*pieces, index=index) for index, pieces in enumerate(texts)]
        ends = [chat.chunk({}, "stop", index=index) for index in (0, 1)]
        body = b"".join([*(one for both in zip(*chunks, strict=True) for one in both), *ends, chat.DONE])
        _, out, rest = feed_until_stopped(session, body, 100)
        assert not rest
    else:
        choices = [
            {"index": index, "message": {"role": "assistant", "content": "".join(pieces)}, "finish_reason": "stop"}
            for index, pieces in enumerate(texts)
        ]
        body = chat.encode_json({**chat.completion(""), "choices": choices})
        out = session.whole.rewrite(body)
    first, second = (chat.read(out, index) for index in (0, 1))
    assert first.content == "".join(texts[0])
    assert second.finish_reason == "stop"
    assert session.report.notes[0].startswith(FOUND)
    if stops:
        check_cut(second.content or "")
        assert session.report.notes[1:] == [LEFT_OUT]
    else:
        assert second.content == "".join(texts[1])


def test_repetition_in_a_call_is_none() -> None:
    """The arguments of a call are data."""
    session = open_reply("openai-chat", "openai-chat", stop_repeats="on")
    call = chat.DIALECTS["tag"]("read", {"filePath": LINE * 400})
    body = pairs.make_stream("openai-chat", [call[at : at + 50] for at in range(0, len(call), 50)])
    stream, out, _ = feed_until_stopped(session, body, 100)
    assert not stream.has_stopped
    assert session.report.notes == []
    assert pairs.read("openai-chat", out, stream=True).calls
