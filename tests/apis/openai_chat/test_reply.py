"""Streamed chat completions: the frames sent for received frames, with a toy reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat
from tests.apis.toy import Toy, White
from vtc.apis.openai_chat import ChatForm, Decoder, Encoder
from vtc.apis.relay import Relay
from vtc.events import Call, Event, Reasoning, Rewritten, Text
from vtc.wire import EventReader, Frame


def relay(*, structured: bool = True) -> Relay[Toy]:
    return Relay(Decoder(), Encoder(ChatForm()), lambda: Toy(structured))


def feed(one: Relay[Toy], raw: bytes) -> list[bytes]:
    return [out for frame in EventReader().feed(raw) for out in one.feed(frame)]


def shown_text(event: Event) -> str:
    """Return the part of an event that the client sees as text."""
    return event.raw if isinstance(event, Text) else event.text if isinstance(event, Rewritten) else ""


def run(*frames: bytes, structured: bool = True) -> bytes:
    one = relay(structured=structured)
    out = [piece for frame in frames for piece in feed(one, frame)]
    return b"".join([*out, *one.finish()])


def reply(*pieces: str, reason: str = "stop") -> list[bytes]:
    return [chat.ROLE, *chat.make_text_chunks(*pieces), chat.chunk({}, reason), chat.USED, chat.DONE]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [chat.DONE],
        reply("Hello", " world"),
        reply("a", "[", "b"),
        reply("a", "(b", "c", reason="length"),
        [chat.chunk({"role": "assistant", "content": None}), chat.chunk({"content": ""}), chat.STOP],
        [chat.frame({"error": {"message": "x"}})],
        [chat.frame({"choices": [1]})],
        [
            chat.frame({"choices": [{"delta": None}, {"index": 1}]}),
            chat.frame({"choices": [{"delta": {"content": 5}}]}),
        ],
        [b"data: not json\n\n", b"data: \n\n", b"data: [DONE]x\n\n"],
        [b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'],
        [b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"x":NaN}}]}\n\n'],
    ],
)
def test_unchanged_frames_keep_their_bytes(frames: list[bytes]) -> None:
    assert run(*frames) == b"".join(frames)


def test_frames_that_clients_cannot_read_are_sent_as_they_can() -> None:
    """Content is a string, and each event an object with a list of choices."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    call = chat.native(0, id="c1", name="x", arguments="{}")
    odd = [
        chat.frame(None), chat.frame([]), chat.frame("x"), chat.frame({**chat.HEAD, "choices": None}),
        chat.chunk({"content": [thought]}), chat.chunk({"content": [{"type": "text", "text": "Hal"}]}),
        chat.chunk({"content": ["lo."]}), chat.chunk({"content": [], "tool_calls": [call]}),
        chat.frame({**chat.HEAD, "choices": None, "usage": chat.USAGE}),
    ]  # fmt: skip
    found = chat.events(run(chat.ROLE, *odd, chat.chunk({}, "tool_calls"), chat.DONE))
    assert all(isinstance(event["choices"], list) for event in found[:-1])
    assert [event["usage"] for event in found[:-1] if "usage" in event] == [chat.USAGE]
    deltas = [choice["delta"] for event in found[:-1] for choice in event["choices"]]
    assert [delta["content"] for delta in deltas if delta.get("content") is not None] == ["", "Hal", "lo."]
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["Hm."]
    assert [one["function"]["name"] for delta in deltas for one in delta.get("tool_calls", ()) if "id" in one] == ["x"]


def test_frame_is_sent_as_soon_as_it_is_decided() -> None:
    one = relay()
    for frame in [chat.ROLE, *chat.make_text_chunks("a", "b")]:
        assert feed(one, frame) == [frame]
    held = chat.make_text_chunks("[", "x", "]c")
    assert feed(one, held[0]) == feed(one, held[1]) == []
    assert chat.deltas(b"".join(feed(one, held[2])))[-1] == {"content": "c"}
    assert feed(one, chat.DONE)[-1] == chat.DONE


@pytest.mark.parametrize(
    ("frames", "deltas"),
    [
        (chat.make_text_chunks("a[", "x", "]b"), ["a", "call", "b"]),
        (chat.make_text_chunks("[x][y]"), ["call", "call"]),
        (chat.make_text_chunks("a~b"), ["a", "b"]),
        (chat.make_text_chunks("a(", "b)c"), ["a", {"reasoning_content": "("}, {"reasoning_content": "b)"}, "c"]),
        (chat.make_text_chunks("a{", "b}c"), ["a", "<b>", "c"]),
        (chat.make_text_chunks("~"), []),
    ],
)
def test_changed_text_is_sent_in_separate_chunks(frames: list[bytes], deltas: list[Any]) -> None:
    found = chat.deltas(run(chat.ROLE, *frames))[1:]
    relevant = [delta for delta in found if "tool_calls" not in delta or "id" in delta["tool_calls"][0]]
    expected = [{"content": one} if isinstance(one, str) and one != "call" else one for one in deltas]
    assert ["call" if "tool_calls" in delta else delta for delta in relevant if delta] == expected


def make_numbered_frames(*pieces: str) -> list[bytes]:
    """Make frames with an id and a type of event."""
    return [b"id: %d\nevent: e%d\n" % (i, i) + frame for i, frame in enumerate(chat.make_text_chunks(*pieces))]


def besides_data(frame: Frame) -> list[str]:
    return [line for line in frame.raw.decode().splitlines() if line and not line.startswith("data:")]


@pytest.mark.parametrize(
    ("frames", "lines"),
    [
        (make_numbered_frames("a", "b"), [["id: 0", "event: e0"], ["id: 1", "event: e1"]]),
        (make_numbered_frames("a[", "b"), [["id: 0", "event: e0"], ["event: e0"], ["id: 1", "event: e1"]]),
        (make_numbered_frames("a~b~c"), [["id: 0", "event: e0"], ["event: e0"], ["event: e0"]]),
        (make_numbered_frames("[", "x", "]"), [["id: 2", "event: e2"], ["event: e2"], ["event: e2"]]),
        (
            make_numbered_frames("a", "[x]", "b"),
            [["id: 0", "event: e0"], ["id: 1", "event: e1"], ["event: e1"], ["id: 2", "event: e2"], ["event: e2"]],
        ),
        ([b": ping\r\nretry: 5\r\n" + frame for frame in chat.make_text_chunks("a[")], [[": ping", "retry: 5"], []]),
    ],
)
def test_other_lines_of_a_frame_are_sent_once_and_its_event_type_with_each_frame(
    frames: list[bytes], lines: list[list[str]]
) -> None:
    one = relay()
    feed(one, chat.ROLE)
    out = b"".join([*(piece for raw in frames for piece in feed(one, raw)), *one.finish()])
    assert [besides_data(frame) for frame in EventReader().feed(out)] == lines


def test_a_call_is_two_chunks() -> None:
    """The first has the whole name, the second the arguments; the finish reason states calls."""
    assert [
        event["choices"] for event in chat.events(run(chat.ROLE, *chat.make_text_chunks("[x]"), chat.STOP))[1:]
    ] == [
        [
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {"index": 0, "id": "id1", "type": "function", "function": {"name": "x", "arguments": ""}}
                    ]
                },
                "finish_reason": None,
            }
        ],
        [
            {
                "index": 0,
                "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
                "finish_reason": None,
            }
        ],
        [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    ]


@pytest.mark.parametrize(
    ("reason", "expected"), [("stop", "tool_calls"), ("length", "length"), ("content_filter", "content_filter")]
)
def test_the_finish_reason(reason: str, expected: str) -> None:
    *_, last = chat.events(run(*chat.make_text_chunks("[x]"), chat.chunk({}, reason)))
    assert last["choices"][0]["finish_reason"] == expected


@pytest.mark.parametrize(
    "frames",
    [
        chat.make_text_chunks("[x]"),
        chat.make_text_chunks("~a"),
        chat.make_text_chunks("(a)"),
        chat.make_text_chunks("{a}"),
    ],
)
def test_the_first_chunk_of_a_reply_has_the_role(frames: list[bytes]) -> None:
    """This holds also if the server sent none."""
    roles = [delta.get("role") for delta in chat.deltas(run(*frames))]
    assert roles == ["assistant", *[None] * (len(roles) - 1)]


def test_role_is_sent_first_and_once() -> None:
    one = chat.chunk({"role": "assistant", "content": "a[x]b"}, "stop", usage=chat.USAGE)
    body = run(one)
    assert [delta.get("role") for delta in chat.deltas(body)] == ["assistant", None, None, None, None, None]
    assert [event.get("usage") for event in chat.events(body)] == [None] * 5 + [chat.USAGE]


def test_other_fields_of_a_chunk_are_sent_with_its_first_text() -> None:
    one = relay()
    feed(one, chat.ROLE)
    logprobs: chat.Json = {"content": []}
    choice = {"index": 0, "delta": {"content": "[", "y": "r", "x": [0]}, "finish_reason": None}
    frame = chat.frame({**chat.HEAD, "choices": [{**choice, "logprobs": logprobs}], "usage": chat.USAGE})
    assert feed(one, frame) == []
    rest = {**choice, "delta": {"y": "r", "x": [0]}}  # not those of text that changes
    first, *others = chat.events(b"".join([*feed(one, chat.make_text_chunks("x]y")[0]), *one.finish()]))
    assert first == {**chat.HEAD, "choices": [rest], "usage": chat.USAGE}
    assert [event.get("usage") for event in others] == [None] * len(others)


@pytest.mark.parametrize("text", ["a ", "a\n", " ", "a\n\n"])
def test_frame_that_ends_in_white_space_is_buffered_whole_and_sent_unchanged(text: str) -> None:
    """The frame is not split for any kind of client."""
    held, more = chat.make_text_chunks(text, "b")
    for structured in (True, False):
        one = Relay(Decoder(), Encoder(), lambda structured=structured: White(structured))
        feed(one, chat.ROLE)
        assert feed(one, held) == []
        assert feed(one, more) == [held, more]


def test_choices_share_a_chunk() -> None:
    both = [
        {"index": index, "delta": {"content": text}, "finish_reason": None} for index, text in ((0, "a"), (1, "[x]"))
    ]
    ends: list[chat.Json] = [{"index": index, "delta": {}, "finish_reason": "stop"} for index in (0, 1)]
    same = chat.frame({**chat.HEAD, "choices": [both[0], {**both[1], "delta": {"content": "b"}}]})
    frames = [same, chat.frame({**chat.HEAD, "choices": both, "usage": chat.USAGE}), chat.frame({"choices": ends})]
    body = run(*frames)
    assert body.startswith(same)
    assert chat.read(body, 0) == chat.Read("aa", finish_reason="stop")
    assert chat.read(body, 1) == chat.Read("b", calls=[("x", {})], finish_reason="tool_calls")
    assert [event["usage"] for event in chat.events(body) if event.get("usage")] == [chat.USAGE]


@pytest.mark.parametrize("index", [{}, {"a": 1}, [], [0]])
def test_chunk_whose_choice_has_no_number_passes_and_later_chunks_are_read(index: Any) -> None:
    odd = chat.chunk({"content": "[x"}).replace(b'"index": 0', b'"index": ' + chat.encode_json(index))
    body = run(chat.ROLE, odd, *chat.make_text_chunks("[x]"), chat.STOP)
    assert body.startswith(chat.ROLE + odd)
    assert chat.read(body.replace(odd, b"")).calls == [("x", {})]


# Native tool calls

OWN = chat.chunk({"tool_calls": [chat.native(0, id="a", name="n", arguments="{}")]})


def test_own_calls_switch_the_reading_off() -> None:
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("a", "[", "b"),
        OWN,
        *chat.make_text_chunks("[x]"),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    assert run(*frames) == b"".join(frames)


def test_native_calls_follow_text_calls() -> None:
    body = run(
        *chat.make_text_chunks("[x][y]"), OWN, chat.chunk({"tool_calls": [chat.native(0, arguments=" ")]}), chat.STOP
    )
    assert chat.read(body).calls == [("x", {}), ("y", {}), ("n", {})]


def test_own_calls_go_to_a_client_of_text_each_at_its_end() -> None:
    """All other content of the chunk is kept."""
    frames = [
        chat.ROLE,
        chat.chunk({"tool_calls": [{"index": 1, "function": {"name": "b", "arguments": {"x": 1}}}]}),
        chat.chunk({"content": "Hi", "tool_calls": [{"index": 0, "id": "q", "function": {"name": "a"}}]}),
        chat.chunk({"tool_calls": [chat.native(0, arguments="{"), chat.native(0, arguments="}")]}),
        chat.chunk({}, "tool_calls"),
        chat.USED,
        chat.DONE,
    ]
    body = run(*frames, structured=False)
    assert chat.read(body) == chat.Read('[b {"x": 1} None]Hi[a {} q]', finish_reason="stop")
    assert "tool_calls" not in body.decode()
    assert body.startswith(chat.ROLE)
    assert body.endswith(chat.USED + chat.DONE)


# Ends


@pytest.mark.parametrize("end", [[], [chat.DONE], [chat.STOP], [chat.STOP, chat.DONE]])
def test_however_it_ends_calls_have_a_finish_reason(end: list[bytes]) -> None:
    body = run(chat.ROLE, *chat.make_text_chunks("a[x](b"), *end)
    assert chat.read(body) == chat.Read("a(b", calls=[("x", {})], finish_reason="tool_calls")


def test_repeated_end_and_later_frames_are_accepted() -> None:
    """An empty frame of HTTP/2 looks like the end of the body."""
    one = relay()
    assert feed(one, chat.make_text_chunks("[x")[0]) == []
    assert one.finish() == chat.make_text_chunks("[x")
    assert one.finish() == []
    assert feed(one, chat.make_text_chunks("[y]")[0]) == chat.make_text_chunks("[y]")
    assert one.finish() == []


def test_buffered_frames_are_released_in_order_and_once() -> None:
    one = relay()
    held = chat.make_text_chunks("[", "x", "y")
    assert [feed(one, frame) for frame in held] == [[], [], []]
    assert one.release() == held
    assert one.release() == []


@given(st.lists(st.text("ab[]x(){}~ ", max_size=6), max_size=8), st.sampled_from(["stop", "length", None]))
def test_no_character_is_lost_in_any_cut(pieces: list[str], reason: str | None) -> None:
    """The sent text is the pipeline's result for the whole text, for any cut into chunks."""
    toy = Toy()
    events = [*toy.feed("".join(pieces)), *toy.finish(complete=True)]
    end = [chat.chunk({}, reason)] if reason else []
    found = chat.read(run(chat.ROLE, *chat.make_text_chunks(*pieces), *end))
    assert found.content == "".join(map(shown_text, events))
    assert found.reasoning == "".join(event.raw for event in events if isinstance(event, Reasoning))
    assert found.calls == [(event.call.name, {}) for event in events if isinstance(event, Call)]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_of_its_own_is_not_looked_for_in_the_text(field: str) -> None:
    toy = Toy()
    one = Relay(Decoder(), Encoder(), lambda: toy)
    frames = [chat.ROLE, chat.chunk({field: "so"})]
    assert [feed(one, frame) for frame in frames] == [[frame] for frame in frames]
    assert toy.reasoning_seen
