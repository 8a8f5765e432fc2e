"""Model servers that make calls themselves: for a client that reads `tool_calls` they pass as they came."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Start
from tests.e2e.upstream import JSON, Reply

ASK = chat.request(stream=True)
CALL = chat.DIALECTS["tag"]("read", {"filePath": "/a"})


def made(*calls: Any, **others: Any) -> bytes:
    """A chunk with entries of `tool_calls`."""
    return chat.chunk({**others, "tool_calls": list(calls)})


STREAMS = {
    "in pieces": [
        chat.ROLE,
        made(chat.native(0, id="a", name="read", arguments="")),
        *(made(chat.native(0, arguments=piece)) for piece in '{"filePath": "/a"}'),
        chat.chunk({}, "tool_calls"),
        chat.USED,
        chat.DONE,
    ],
    "interleaved": [
        made(chat.native(0, id="a", name="read", arguments="{"), role="assistant", content=None),
        made(chat.native(1, id="b", name="list_files", arguments="{")),
        made(chat.native(1, arguments='"path": "."}'), chat.native(0, arguments='"filePath": "\\n\\u00e9"}')),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "without an id": [made({"index": 0, "function": {"name": "read", "arguments": "{}"}}), chat.STOP, chat.DONE],
    "with text": [
        chat.ROLE,
        *chat.said("I look", "."),
        made(chat.native(0, id="a", name="read", arguments="{}"), content=" Now."),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "then a call as text": [
        made(chat.native(0, id="a", name="read", arguments="{}")),
        *chat.said(*CALL),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "after half a call as text": [
        chat.ROLE,
        *chat.said("Go", *CALL[:20]),
        made(chat.native(0, id="a", name="read", arguments="{}")),
        *chat.said(*CALL[20:]),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "as text and structured in one chunk": [
        chat.ROLE,
        made(chat.native(0, id="a", name="read", arguments="{}"), content=CALL),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "the older form": [
        chat.chunk({"role": "assistant", "function_call": {"name": "read", "arguments": ""}}),
        chat.chunk({"function_call": {"arguments": "{}"}}),
        chat.chunk({}, "function_call"),
        chat.DONE,
    ],
    "no end": [made(chat.native(0, id="a", name="read", arguments='{"filePath')), chat.DONE],
    "nothing at all": [chat.ROLE, chat.chunk({}, "tool_calls")],
}


@pytest.mark.parametrize("name", STREAMS)
async def test_calls_pass_as_they_came(name: str, start: Start) -> None:
    """E2, E3, E4: streamed, byte for byte; text beside them is not read any more."""
    lab = await start(STREAMS[name])
    assert (await lab.post(ASK)).body == b"".join(STREAMS[name])
    assert (await lab.report())["calls"] == []


@pytest.mark.parametrize("content", [None, "", "I look.", CALL])
async def test_a_whole_reply_with_calls_passes_as_it_came(content: str | None, start: Start) -> None:
    """E4: also where the text holds one too."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    body = chat.encoded(chat.completion(content, "tool_calls", message={"tool_calls": [call]}))
    lab = await start(Reply([body], JSON, framing="length"))
    assert (await lab.post(chat.request())).body == body


@pytest.mark.parametrize("empty", [[], None])
async def test_no_calls_are_none(empty: Any, start: Start) -> None:
    """Servers write `tool_calls: []` into everything: that does not switch the reading off."""
    frames = [chat.chunk({"role": "assistant", "content": "", "tool_calls": empty, "function_call": None})]
    frames += [chat.chunk({"content": piece, "tool_calls": empty}) for piece in CALL]
    lab = await start([*frames, chat.chunk({"tool_calls": empty}, "stop"), chat.DONE])
    found = (await lab.post(ASK)).message
    assert (found.calls, found.finish_reason) == ([("read", {"filePath": "/a"})], "tool_calls")


async def test_calls_of_both_kinds_in_one_reply(start: Start) -> None:
    """What was delivered keeps its place; those that the server makes then come behind it."""
    frames = [
        chat.ROLE,
        *chat.said(chat.DIALECTS["invoke"]("read", {"filePath": "/a"})),
        made(chat.native(0, id="a", name="list_files", arguments="")),
        made(chat.native(0, arguments='{"path": "."}')),
        made(chat.native(1, id="b", name="read", arguments='{"filePath": "/b"}')),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    lab = await start(frames)
    assert (await lab.post(ASK)).message.calls == [
        ("read", {"filePath": "/a"}),
        ("list_files", {"path": "."}),
        ("read", {"filePath": "/b"}),
    ]
