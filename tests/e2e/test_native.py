"""Native tool calls of the server pass unchanged to a client that reads `tool_calls`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Start, by_turn
from tests.e2e.upstream import JSON, Reply

ASK = chat.request(stream=True)
CALL = chat.DIALECTS["tag"]("read", {"filePath": "/a"})


def make_calls_chunk(*calls: Any, **others: Any) -> bytes:
    """Return a chunk with entries of `tool_calls`."""
    return chat.chunk({**others, "tool_calls": list(calls)})


STREAMS = {
    "in pieces": [
        chat.ROLE,
        make_calls_chunk(chat.native(0, id="a", name="read", arguments="")),
        *(make_calls_chunk(chat.native(0, arguments=piece)) for piece in '{"filePath": "/a"}'),
        chat.chunk({}, "tool_calls"),
        chat.USED,
        chat.DONE,
    ],
    "interleaved": [
        make_calls_chunk(chat.native(0, id="a", name="read", arguments="{"), role="assistant", content=None),
        make_calls_chunk(chat.native(1, id="b", name="list_files", arguments="{")),
        make_calls_chunk(
            chat.native(1, arguments='"path": "."}'), chat.native(0, arguments='"filePath": "\\n\\u00e9"}')
        ),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "with text": [
        chat.ROLE,
        *chat.make_text_chunks("I look", "."),
        make_calls_chunk(chat.native(0, id="a", name="read", arguments="{}"), content=" Now."),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "then a call as text": [
        make_calls_chunk(chat.native(0, id="a", name="read", arguments="{}")),
        *chat.make_text_chunks(*CALL),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "after half a call as text": [
        chat.ROLE,
        *chat.make_text_chunks("Go", *CALL[:20]),
        make_calls_chunk(chat.native(0, id="a", name="read", arguments="{}")),
        *chat.make_text_chunks(*CALL[20:]),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "as text and structured in one chunk": [
        chat.ROLE,
        make_calls_chunk(chat.native(0, id="a", name="read", arguments="{}"), content=CALL),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ],
    "the older form": [
        chat.chunk({"role": "assistant", "function_call": {"name": "read", "arguments": ""}}),
        chat.chunk({"function_call": {"arguments": "{}"}}),
        chat.chunk({}, "function_call"),
        chat.DONE,
    ],
    "no end": [make_calls_chunk(chat.native(0, id="a", name="read", arguments='{"filePath')), chat.DONE],
}


@pytest.mark.parametrize("name", STREAMS)
async def test_calls_keep_their_bytes(name: str, start: Start) -> None:
    """A stream is identical byte for byte; its text is no longer read."""
    lab = await start(STREAMS[name])
    assert (await lab.post(ASK)).body == b"".join(STREAMS[name])
    assert (await lab.report())["calls"] == []


def entry(name: str = "read", arguments: Any = '{"filePath": "/a"}', **fields: Any) -> chat.Json:
    """Return one entry of `tool_calls`; None omits a field."""
    made = {"index": 0, "id": "a", "type": "function", "function": {"name": name, "arguments": arguments}, **fields}
    return {key: value for key, value in made.items() if value is not None}


A, B = '{"filePath": "/a"}', '{"filePath": "/b"}'
ONE, TWO = [("read", {"filePath": "/a"})], [("read", {"filePath": "/a"}), ("read", {"filePath": "/b"})]
TROUBLED = {
    "every call has number 0": ([[entry()], [entry(arguments=B, id="b")]], TWO),
    "calls have no number": ([[entry(index=None), entry(index=None, arguments=B, id="b")]], TWO),
    "numbers begin at 1": ([[entry(index=1)]], ONE),
    "name comes with every piece": (
        [[entry(arguments=A[:5])], [entry(arguments=A[5:12])], [entry(arguments=A[12:])]],
        ONE,
    ),
    "another id with every piece": (
        [[entry(arguments="")], [entry("", A[:5], id="b")], [entry("", A[5:], id="c")]],
        ONE,
    ),
    "no id": ([[entry(id=None)]], ONE),
    "an empty id": ([[entry(id="")]], ONE),
    "ids are equal": ([[entry()], [entry(index=1, arguments=B)]], TWO),
    "no type": ([[entry(type=None)]], ONE),
    "arguments encoded twice": ([[entry(arguments=chat.encode_json(A).decode())]], ONE),
    "arguments written twice": ([[entry(arguments=A + A)]], ONE),
    "arguments of two calls in one": ([[entry(arguments=A + B)]], TWO),
    "arguments are an object": ([[entry(arguments={"filePath": "/a"})]], ONE),
    "arguments are the one text": ([[entry(arguments='"/a"')]], ONE),
    "a raw line break": ([[entry(arguments='{"filePath": "/a\nb"}')]], [("read", {"filePath": "/a\nb"})]),
    "a trailing comma": ([[entry(arguments='{"filePath": "/a",}')]], ONE),
    "a prefix": ([[entry("functions.read")]], ONE),
    "markup behind the name": ([[entry("read<|channel|>commentary")]], ONE),
    "a doubled name": ([[entry("readread")]], ONE),
    "markup behind a parameter": ([[entry(arguments='{"filePath</arg_key>": "/a"}')]], ONE),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", TROUBLED)
async def test_troubled_calls_are_put_in_order(name: str, stream: bool, start: Start) -> None:
    """The result is parsed as by strict clients, which merge, lose or reject such calls."""
    pieces, expected = TROUBLED[name]
    if stream:
        frames = [chat.ROLE, *(chat.chunk({"tool_calls": entries}) for entries in pieces), chat.STOP, chat.DONE]
        lab = await start(frames)
    elif name in ("name comes with every piece", "another id with every piece"):
        return  # a whole reply has no pieces
    else:
        entries = [{key: value for key, value in one.items() if key != "index"} for some in pieces for one in some]
        body = chat.encode_json(chat.completion(None, "stop", message={"tool_calls": entries}))
        lab = await start(Reply([body], JSON, framing="length"))
    found = (await lab.post(chat.request(stream=stream))).message
    assert (found.calls, found.finish_reason) == (expected, "tool_calls")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_list_as_text_becomes_a_list_only_if_no_string_is_expected(stream: bool, start: Start) -> None:
    tools = [chat.tool("edit", paths={"type": "array"}, text="string")]
    arguments = '{"paths": "[\\"a\\"]", "text": "[1]"}'
    body = chat.encode_json(
        chat.completion(None, "tool_calls", message={"tool_calls": [entry("edit", arguments, index=None)]})
    )
    frames = [chat.ROLE, make_calls_chunk(entry("edit", arguments)), chat.chunk({}, "tool_calls"), chat.DONE]
    lab = await start(frames if stream else Reply([body], JSON, framing="length"))
    found = (await lab.post(chat.request(stream=stream, tools=tools))).message
    assert found.calls == [("edit", {"paths": ["a"], "text": "[1]"})]


async def test_unrepairable_call_keeps_its_bytes_and_is_reported(start: Start) -> None:
    """Only the finish reason changes, because the call is incomplete."""
    frames = [chat.ROLE, make_calls_chunk(entry(arguments='{"filePath": "/a')), chat.chunk({}, "tool_calls"), chat.DONE]
    lab = await start(frames)
    body = (await lab.post(ASK)).body
    assert body.startswith(b"".join(frames[:2]))
    assert [choice["finish_reason"] for one in chat.events(body)[2:-1] for choice in one["choices"]] == ["length"]
    assert "not a whole JSON object" in (await lab.report())["refusals"][0]["reason"]


async def test_finish_reason_depends_on_calls(start: Start) -> None:
    lab = await start(
        by_turn([chat.ROLE, make_calls_chunk(entry()), chat.STOP], [chat.ROLE, chat.chunk({}, "tool_calls")])
    )
    assert (await lab.post(ASK)).message.finish_reason == "tool_calls"
    assert (await lab.post(ASK)).message.finish_reason == "stop"


@pytest.mark.parametrize("content", [None, "", "I look.", CALL])
async def test_whole_reply_with_calls_keeps_its_bytes(content: str | None, start: Start) -> None:
    """This holds also if the text contains a call."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    body = chat.encode_json(chat.completion(content, "tool_calls", message={"tool_calls": [call]}))
    lab = await start(Reply([body], JSON, framing="length"))
    assert (await lab.post(chat.request())).body == body


@pytest.mark.parametrize("empty", [[], None])
async def test_no_calls_are_none(empty: Any, start: Start) -> None:
    """Some servers write `tool_calls: []` into every chunk; reading must continue."""
    frames = [chat.chunk({"role": "assistant", "content": "", "tool_calls": empty, "function_call": None})]
    frames += [chat.chunk({"content": piece, "tool_calls": empty}) for piece in ["I ", "look ", "at it.\n", *CALL]]
    lab = await start([*frames, chat.chunk({"tool_calls": empty}, "stop"), chat.DONE])
    found = (await lab.post(ASK)).message
    assert (found.calls, found.finish_reason) == ([("read", {"filePath": "/a"})], "tool_calls")


async def test_calls_of_both_kinds_in_one_reply(start: Start) -> None:
    """Delivered calls keep their index; the indexes of later native calls follow."""
    frames = [
        chat.ROLE,
        *chat.make_text_chunks(chat.DIALECTS["invoke"]("read", {"filePath": "/a"})),
        make_calls_chunk(chat.native(0, id="a", name="list_files", arguments="")),
        make_calls_chunk(chat.native(0, arguments='{"path": "."}')),
        make_calls_chunk(chat.native(1, id="b", name="read", arguments='{"filePath": "/b"}')),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    lab = await start(frames)
    assert (await lab.post(ASK)).message.calls == [
        ("read", {"filePath": "/a"}),
        ("list_files", {"path": "."}),
        ("read", {"filePath": "/b"}),
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("text", "content", "finish"),
    [
        ("Hello! Here it is.", "Hello! Here it is.", "stop"),
        ("So.\n</think>\n\nHello!", "Hello!", "stop"),
        ("So, the first", "", "length"),
    ],
)
async def test_reply_without_the_closer_of_prefilled_reasoning_is_sent(
    text: str, content: str, finish: str, stream: bool, start: Start
) -> None:
    """The reply did not begin inside of reasoning as guessed, unless it was cut off while the model was thinking."""
    whole = Reply([chat.encode_json(chat.completion(text, finish))], JSON, framing="length")
    lab = await start(chat.make_stream(*text, finish=finish) if stream else whole, vtc_model="deepseek-r1")
    assert (await lab.post(chat.request(stream=stream))).message.content == content
