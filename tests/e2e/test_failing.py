"""Internal faults: a planted exception passes the reply through, in order and once, and is reported once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Start
from tests.e2e.upstream import JSON, Reply
from vtc.apis.openai_chat import ChatRequestWriter
from vtc.dialects import Reader

ASK = chat.request(stream=True)
BEFORE = chat.DIALECTS["invoke"]("read", {"filePath": "/a"})
TEXT = "~] two <read><filePath>/b</filePath></read> three ]~ <read><filePath>/c</filePath></read> ~~"


class PlantedError(Exception):
    pass


@pytest.fixture
def fail_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes the reader raise as soon as the last character of a word is fed to it."""

    def plant(word: str) -> None:
        real, seen = Reader.feed, [""]

        def feed(self: Reader, text: str) -> Any:
            seen[0] = (seen[0] + text)[-len(word) - len(text) :]
            if word in seen[0]:
                seen[0] = ""
                raise PlantedError("planted")
            return real(self, text)

        monkeypatch.setattr(Reader, "feed", feed)

    return plant


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("word", ["~]", "<read><filePath>/b", "~ ", "~~"])
async def test_stream_continues(
    word: str, size: int, fail_on: Callable[[str], None], start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """In each state of the reader, everything that was not delivered as a call arrives as its original text."""
    fail_on(word)
    lab = await start(chat.make_stream(*[TEXT[i : i + size] for i in range(0, len(TEXT), size)]))
    body = (await lab.post(ASK)).body
    content = "".join(delta.get("content") or "" for delta in chat.deltas(body))
    expected = TEXT
    for delta in chat.deltas(body):
        for call in delta.get("tool_calls") or ():
            if arguments := call["function"]["arguments"]:
                # White space before a call is removed together with it.
                path = json.loads(arguments)["filePath"]
                expected = expected.replace(f" <read><filePath>{path}</filePath></read>", "")
    assert content == expected
    assert chat.events(body)[-1] == "[DONE]"
    assert len(faults(caplog)) == 1
    flow = await lab.flow()
    assert flow.metadata["vtc"]["failures"] == ["PlantedError: planted"]
    assert "error in VTC: PlantedError: planted" in flow.comment


async def test_buffered_frames_keep_their_bytes(fail_on: Callable[[str], None], start: Start) -> None:
    fail_on("three")
    frames = [b": hi\n\n", *chat.make_stream("a", *"<read><filePath>", "x", "three", "</read>")]
    lab = await start([frames[0] + frames[1], *frames[2:-1], frames[-1]])
    assert (await lab.post(ASK)).body == b"".join(frames)


@pytest.mark.parametrize("first", [0, 1])
async def test_all_choices_go_on(first: int, fail_on: Callable[[str], None], start: Start) -> None:
    """One of two choices in a chunk fails, before or after the other."""
    fail_on("BOOM")
    texts = ["a <read>", "b BOOM <read>"] if first else ["b BOOM <read>", "a <read>"]
    order = [{"index": index, "delta": {"content": text}, "finish_reason": None} for index, text in enumerate(texts)]
    frames = [
        *(chat.chunk({"content": "x <rea"}, index=index) for index in (0, 1)),
        chat.frame({**chat.HEAD, "choices": order}),
        chat.DONE,
    ]
    lab = await start(frames)
    body = (await lab.post({**ASK, "n": 2})).body
    assert [chat.read(body, index).content for index in (0, 1)] == ["x <rea" + text for text in texts]


@pytest.mark.parametrize("end", ["finish", "release"])
async def test_a_fault_at_the_end(end: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Reader, **_: Any) -> Any:
        raise PlantedError("planted")

    monkeypatch.setattr(Reader, end, broken)
    native = chat.chunk({"tool_calls": [chat.native(0, id="a", name="read", arguments="{}")]})
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("a", *" <read><filePath>b"),
        *[native] * (end == "release"),
        chat.STOP,
        chat.DONE,
    ]
    lab = await start(frames)
    assert (await lab.post(ASK)).body == b"".join(frames)
    assert (await lab.report())["failures"] == ["PlantedError: planted"]


async def test_whole_reply_continues(
    fail_on: Callable[[str], None], start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds also if another choice was read before."""
    fail_on("]~")
    body = chat.completion(BEFORE)
    body["choices"].append({**body["choices"][0], "index": 1, "message": {"role": "assistant", "content": TEXT}})
    lab = await start(Reply([chat.encode_json(body)], JSON, framing="length"))
    assert (await lab.post(chat.request(n=2))).body == chat.encode_json(body)
    assert len(faults(caplog)) == 1
    report = await lab.report()
    assert (report["failures"], report["calls"]) == (["PlantedError: planted"], [])


async def test_request_continues(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: ChatRequestWriter, *_: Any) -> bytes:
        raise PlantedError("planted")

    monkeypatch.setattr(ChatRequestWriter, "apply_changes", broken)
    frames = chat.make_stream(*TEXT)
    lab = await start(frames, vtc_tools="prompt")
    assert (await lab.post(ASK)).body == b"".join(frames)
    assert lab.upstream.seen[0].json == ASK
    assert len(faults(caplog)) == 1
    assert (await lab.report())["notes"] == ["left alone: PlantedError: planted"]


async def test_the_next_flow_is_read_again(fail_on: Callable[[str], None], start: Start) -> None:
    """A fault affects only its own flow."""
    fail_on("BOOM")
    replies = iter([chat.make_stream("BOOM"), chat.make_stream(*BEFORE)])
    lab = await start(lambda _: Reply(next(replies)))
    assert not (await lab.post(ASK)).message.calls
    assert (await lab.post(ASK)).message.calls == [("read", {"filePath": "/a"})]
