"""Streamed replies: what is sent, when, in which chunks, and that cuts of the input make no difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE, Start, by_turn
from tests.e2e.upstream import JSON, Reply, Seen

ASK = chat.request(stream=True)
REPLY = "Let me look.\n\n<read>\n<filePath>/a</filePath>\n</read>"
CALLED = chat.Read("Let me look.", "", [("read", {"filePath": "/a"})], [], "tool_calls")


def script_of(seen: Seen, text: str, finish: str = "stop") -> Reply:
    """Return the text as a stream of characters or as a whole reply, as the request asks."""
    if seen.json["stream"]:
        return Reply(chat.make_stream(*text, finish=finish))
    return Reply([chat.encode_json(chat.completion(text, finish))], JSON, framing="length")


async def test_the_chunks_of_a_call_have_the_shape_that_every_client_takes(start: Start) -> None:
    """Chunks: role; text; index, id, type and name with empty arguments; arguments; finish reason; usage."""
    lab = await start(chat.make_stream(*REPLY))
    answer = await lab.post(ASK)
    assert answer.headers["content-type"] == "text/event-stream"
    *chunks, usage, done = chat.events(answer.body)
    assert all({key: one[key] for key in chat.HEAD} == chat.HEAD for one in [*chunks, usage])
    assert all(set(one) == {*chat.HEAD, "choices"} for one in chunks)
    text = [chunk for chunk in chunks[1:-3] if chunk["choices"][0]["delta"].get("content")]
    assert len(text) == len(chunks) - 4 > 5, "text flows on while the markup has not begun"
    head = chunks[-3]["choices"][0]["delta"]["tool_calls"][0]
    assert head.pop("id").startswith("call_")
    assert head == {"index": 0, "type": "function", "function": {"name": "read", "arguments": ""}}
    ending = [chunks[0], *chunks[-2:]]
    assert [chunk["choices"] for chunk in ending] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        [{"index": 0, "delta": {"tool_calls": [call(0, arguments='{"filePath":"/a"}')]}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    ]
    assert (usage["choices"], usage["usage"], done) == ([], chat.USAGE, "[DONE]")


def call(index: int, **function: str) -> Any:
    return {"index": index, "function": function}


@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_markup_may_be_cut_anywhere(dialect: str, start: Start, some: Any) -> None:
    """Each position at which the text can be cut in two, and all of them at once, give the same message."""
    text = "Let me look.\n\n" + chat.DIALECTS[dialect]("read", {"filePath": "/a"})
    cuts = [*some(range(1, len(text)), 6)]
    replies = [chat.make_stream(text[:cut], text[cut:]) for cut in cuts]
    lab = await start(by_turn(*replies, chat.make_stream(*text)), vtc_dialect=dialect)
    for cut in [*cuts, len(text)]:
        answer = await lab.post(ASK)
        assert answer.message == CALLED, f"cut at {cut}: {text[:cut]!r}"
        assert "<" not in answer.message.content


async def test_bytes_may_be_cut_anywhere(start: Start, some: Any) -> None:
    """Cuts can be inside of frames and of multi-byte characters."""
    body = b"".join(chat.make_stream("Schön: é\n\n", REPLY))
    body = body.replace(rb"\u00f6", "ö".encode()).replace(rb"\u00e9", "é".encode())
    cuts = [*some(range(1, len(body), 5), 3)]
    replies = [[body[:cut], body[cut:]] for cut in cuts]
    lab = await start(by_turn([body], *replies, [body[i : i + 1] for i in range(len(body))]))
    first, *others = [(await lab.post(ASK)).message for _ in range(len(cuts) + 2)]
    assert first == chat.Read("Schön: é\n\nLet me look.", "", CALLED.calls, [], "tool_calls")
    assert others == [first] * len(others)


REPLIES = {
    "nothing": "",
    "white space": " \n ",
    "text": "Hello, *world* < 3 > `x`\n",
    "one call": "<read>\n<filePath>/a</filePath>\n</read>",
    "text before": REPLY,
    "text after": "<read><filePath>/a</filePath></read>\n\nThat is it.",
    "text between": "one <read><filePath>/a</filePath></read> two <read><filePath>/b</filePath></read> three",
    "two calls": "<read><filePath>/a</filePath></read>\n<list_files><path>.</path></list_files>\n",
    "several lines": '<write><filePath>/a</filePath><content>\n{\n  "x": 1\n}\n</content></write>',
    "two dialects": '<tool_call>{"name": "read", "arguments": {}}</tool_call><read><filePath>b</filePath></read>',
    "cut off": "Look: <read><filePath>/a",
    "never closed": "Look: <read><filePath>/a</filePath>",
    "not JSON": "Look: <tool_call>{no}</tool_call> so",
    "not offered": '<tool_call>{"name": "sh.rm", "arguments": {}}</tool_call>',
    "unknown tag": "a <div><p>x</p></div> b",
    "fence": "Write:\n```xml\n<read><filePath>/a</filePath></read>\n```\nlike that.",
    "code span": "Write `<read><filePath>/a</filePath></read>` for that.",
    "unicode": "é😀 <read><filePath>/é😀\u2028</filePath></read>",
    "CRLF": "a\r\n\r\n<read>\r\n<filePath>/a</filePath>\r\n</read>\r\n",
    "almost": "a <rea b </read> <tool_calls> <function_call>",
}


@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_streamed_and_whole_replies_are_equal(finish: str, start: Start) -> None:
    """This holds for a reply of every kind; no text is added or lost."""
    texts = iter([text for text in REPLIES.values() for _ in range(2)])
    lab = await start(lambda seen: script_of(seen, next(texts), finish))
    for name, text in REPLIES.items():
        streamed = (await lab.post(ASK)).message
        whole = (await lab.post(chat.request())).message
        assert streamed == whole, name
        assert streamed.calls or streamed.content == text, name


WITHOUT_CALLS = ["nothing", "white space", "text", "cut off", "never closed", "not JSON", "not offered", "unknown tag"]


@pytest.mark.parametrize("name", [*WITHOUT_CALLS, "fence", "code span", "almost"])
async def test_a_reply_without_calls_is_byte_identical(name: str, start: Start) -> None:
    """This holds for streamed and whole replies; buffered text is sent in its original frames."""
    pieces = chat.make_stream(*REPLIES[name], finish="length")
    lab = await start(by_turn(pieces, Reply([chat.encode_json(chat.completion(REPLIES[name], "length"))], JSON)))
    assert (await lab.post(ASK)).body == b"".join(pieces)
    assert (await lab.post(chat.request())).body == chat.encode_json(chat.completion(REPLIES[name], "length"))


async def test_text_is_sent_before_more_is_received(start: Start) -> None:
    """The server continues only when the client has received everything, so no decided text is buffered."""
    gated = [chat.ROLE, *chat.make_text_chunks("Let", " me", " look", " at <b>bold</b>", " and `code`,", " then:")]
    rest = [*chat.make_text_chunks("\n\n<re", "ad><filePath>/a</filePath></read>"), chat.STOP, chat.DONE]
    arrived = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        for piece in gated:
            yield piece
            async with asyncio.timeout(PATIENCE):
                await arrived.wait()
            arrived.clear()
        for piece in rest:
            yield piece

    lab = await start(Reply(pieces()))
    received = []
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        async for piece in response.aiter_raw():
            received.append(piece)
            arrived.set()
    assert received[: len(gated)] == gated
    assert chat.read(b"".join(received)).calls == CALLED.calls


@pytest.mark.parametrize("dialect", ["hermes", "tools-tag", "invoke"])
async def test_call_is_sent_before_more_is_received(dialect: str, start: Start) -> None:
    """A complete call does not wait for the text after it."""
    call = chat.DIALECTS[dialect]("read", {"filePath": "/a"})
    arrived = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        for piece in [chat.ROLE, *chat.make_text_chunks("Let me look.\n\n" + call)]:
            yield piece
        async with asyncio.timeout(PATIENCE):
            await arrived.wait()
        yield chat.STOP
        yield chat.DONE

    lab = await start(Reply(pieces()))
    body = b""
    async with lab.client.stream("POST", PATH, json=ASK) as response:
        async for piece in response.aiter_raw():
            body += piece
            if b'"arguments":"{' in body:
                arrived.set()
    assert chat.read(body) == CALLED


# Other content of a chunk


async def test_a_long_call_that_is_cut_is_sent_in_parts_up_to_its_end(start: Start) -> None:
    """Thousands of frames wait for the rest of a call, and no later frame triggers their sending."""
    text = '<tool_call>\n{"name": "read", "arguments": {"filePath": "' + "x" * 40_000
    frames = chat.make_stream(*(text[at : at + 4] for at in range(0, len(text), 4)), finish="length")
    lab = await start([b"".join(frames[at : at + 100]) for at in range(0, len(frames), 100)])
    found = chat.read((await lab.post(ASK)).body)
    assert (found.content, found.finish_reason) == (text, "length")


async def test_choices_are_read_apart(start: Start) -> None:
    """There are two choices, interleaved and in one chunk: one calls, the other talks."""
    talk = "No <b>need</b>."
    frames = [chat.chunk({"role": "assistant", "content": ""}, index=index) for index in (0, 1)]
    for at in range(max(len(REPLY), len(talk))):
        frames += [
            *chat.make_text_chunks(*REPLY[at : at + 1], index=0),
            *chat.make_text_chunks(*talk[at : at + 1], index=1),
        ]
    ends: list[chat.Json] = [{"index": index, "delta": {}, "finish_reason": "stop"} for index in (1, 0)]
    frames += [chat.frame({**chat.HEAD, "choices": ends}), chat.DONE]
    lab = await start(frames)
    body = (await lab.post({**ASK, "n": 2})).body
    assert chat.read(body, 0) == CALLED
    assert chat.read(body, 1) == chat.Read(talk, finish_reason="stop")


async def test_content_other_than_text_passes(start: Start) -> None:
    """Usage anywhere, logprobs of text, reasoning_content, refusal and unknown fields are all kept."""
    refusal = {"refusal": "no"}  # a separate text in which no call continues
    extra = {"reasoning_content": "hm", "x_delta": {"deep": [1, None]}}
    cited = {"content": "Hi:\n", "annotations": [{"type": "url_citation"}]}
    logprobs = {"content": [{"token": "Hi:\n", "logprob": -0.1}]}
    choice = {"index": 0, "delta": {**extra, "content": "<read>"}, "finish_reason": None}
    frames = [
        chat.ROLE,
        b": keep-alive\n\n",
        chat.frame({**chat.HEAD, "choices": [{"index": 0, "delta": cited, "logprobs": logprobs}]}),
        chat.chunk(refusal),
        chat.frame({**chat.HEAD, "choices": [choice], "usage": chat.USAGE, "x_top": "é", "system_fingerprint": "fp"}),
        *chat.make_text_chunks("<filePath>/a</filePath></read>"),
        b"event: ping\ndata: {}\n\n",
        chat.chunk({}, "stop", service_tier="default", usage=chat.USAGE),
        chat.frame({"error": {"message": "late"}}),
        chat.DONE,
    ]
    lab = await start(frames)
    body = (await lab.post(ASK)).body
    assert body.startswith(b"".join(frames[:4]))
    assert frames[6] in body
    assert body.endswith(frames[-2] + frames[-1])
    written = [one for one in chat.events(body) if isinstance(one, dict) and one.get("choices")]
    entries = [one["choices"][0] for one in written]
    all_of_it = {**extra, **refusal}
    assert {key: one for entry in entries for key, one in entry["delta"].items() if key in all_of_it} == all_of_it
    for key, value in {"usage": chat.USAGE, "x_top": "é", "system_fingerprint": "fp"}.items():
        assert value in [one.get(key) for one in written]
    end = [one for one in chat.events(body) if "service_tier" in one][-1]
    assert (end["choices"][0]["finish_reason"], end["usage"]) == ("tool_calls", chat.USAGE)


async def test_text_call_and_finish_reason_in_one_chunk(start: Start) -> None:
    """Servers that only simulate streaming send everything at once."""
    lab = await start([chat.chunk({"role": "assistant", "content": REPLY}, "stop", usage=chat.USAGE), chat.DONE])
    body = (await lab.post(ASK)).body
    assert chat.read(body) == CALLED
    assert chat.deltas(body)[0]["role"] == "assistant"
    assert [one["usage"] for one in chat.events(body)[:-1] if "usage" in one] == [chat.USAGE]


async def test_text_behind_the_finish_reason_is_not_lost(start: Start) -> None:
    frames = [chat.ROLE, *chat.make_text_chunks("a"), chat.STOP, *chat.make_text_chunks(" <read>b"), chat.DONE]
    lab = await start(frames)
    assert (await lab.post(ASK)).body == b"".join(frames)
