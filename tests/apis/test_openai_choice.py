"""Calls that upstream makes itself, where the channel looks at them: in the frames they came in, or made anew."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tests.apis import chat
from tests.apis.test_openai_stream import feed
from tests.apis.toy import Toy
from vtc.apis.base import Channel
from vtc.apis.openai_choice import Choice, Held, Mark, says
from vtc.apis.openai_stream import StreamRewriter
from vtc.events import Event, Markup, Reasoning, Rewritten, Text, ToolCall


def entry(index: int, name: str, **more: Any) -> dict[str, Any]:
    return {"index": index, "id": f"i{index}", "type": "function", "function": {"name": name, "arguments": ""}, **more}


def calls(*entries: dict[str, Any], **fields: Any) -> bytes:
    return chat.chunk({"tool_calls": [*entries]}, **fields)


PART = chat.native(0, arguments="{}")
END = chat.chunk({}, "tool_calls")


def run(*frames: bytes) -> bytes:
    one = StreamRewriter(lambda: Toy(guarded=True), legacy=False)
    out = [piece for frame in frames for piece in feed(one, frame)]
    return b"".join([*out, *one.finish()])


@pytest.mark.parametrize(
    "frames",
    [
        [calls(entry(0, "a")), calls(PART), END, chat.USED, chat.DONE],
        [chat.chunk({"role": "assistant", "content": None, "tool_calls": [entry(0, "a", sig="x")]}), calls(PART), END],
        [chat.ROLE, *chat.said("Hi"), calls(entry(0, "a"), entry(1, "b")), calls(PART), chat.STOP, chat.DONE],
        [calls(entry(0, "a"), PART), chat.chunk({"tool_calls": [PART]}, "tool_calls")],
        [chat.chunk({"function_call": {"name": "a", "arguments": "{"}}), chat.chunk({}, "function_call")],
        [calls(entry(0, "a")), calls(PART)],
        [calls(entry(0, "a")), calls(PART), chat.DONE],
    ],
)
def test_calls_of_which_nothing_changes_leave_in_their_frames(frames: list[bytes]) -> None:
    assert run(*frames) == b"".join(frames)


def test_they_leave_when_the_last_of_them_is_there() -> None:
    one = StreamRewriter(lambda: Toy(guarded=True), legacy=False)
    assert feed(one, chat.ROLE) == [chat.ROLE]
    first, more = calls(entry(0, "a")), calls(PART)
    assert [feed(one, first), feed(one, more)] == [[], []]
    assert feed(one, END) == [first, more, END]


def test_a_changed_call_is_made_anew_with_what_else_its_frames_say() -> None:
    first = chat.chunk({"role": "assistant", "content": None, "tool_calls": [entry(0, "old", sig="x"), entry(1, "a")]})
    used = calls(PART, chat.native(1, arguments="[1]"), usage=chat.USAGE)
    body = run(first, used, END, chat.DONE)
    message = chat.read(body)
    assert (message.calls, message.ids) == ([("new", {}), ("a", [1])], ["i0", "i1"])
    assert message.finish_reason == "tool_calls"
    assert b'"sig":"x"' in body
    assert b'"total_tokens"' in body
    assert [delta.get("role") for delta in chat.deltas(body)].count("assistant") == 1


def test_a_refused_call_leaves_the_others_and_the_reason_with_none_left_is_stop() -> None:
    body = run(chat.ROLE, calls(entry(0, "bad"), PART), calls(entry(1, "b")), chat.STOP)
    assert chat.read(body) == chat.Read("[bad {} i0]", calls=[("b", {})], finish_reason="tool_calls")
    body = run(chat.ROLE, calls(entry(0, "bad"), PART), END)
    assert chat.read(body) == chat.Read("[bad {} i0]", finish_reason="stop")


def test_calls_of_the_text_take_the_first_places() -> None:
    body = run(chat.ROLE, *chat.said("[x]"), calls(entry(0, "b"), PART), END, chat.DONE)
    assert chat.read(body).calls == [("x", {}), ("b", {})]


def test_what_is_kept_is_given_back() -> None:
    """After a failure, in order; and only once."""
    one = StreamRewriter(lambda: Toy(guarded=True), legacy=False)
    frames = [calls(entry(0, "a")), calls(PART)]
    assert [feed(one, frame) for frame in frames] == [[], []]
    assert one.release() == frames
    assert one.release() == []


def test_parts_arrive_in_pieces_interleaved_and_unnumbered() -> None:
    channel: Channel = Toy(structured=False)
    choice = Choice(0, channel)
    choice.gathered.add({"tool_calls": [{"id": "p", "function": {"name": "a", "arguments": "{"}}]})
    choice.gathered.add({"tool_calls": [{"id": "q", "function": {"name": "b", "arguments": {"x": 1}}}]})
    choice.gathered.add({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]})
    (first, second) = choice.end(complete=True)
    assert [getattr(event, "text", "") for event in (first, second)] == ["[a {} p]", '[b {"x": 1} q]']


def test_the_source_of_a_call_says_nothing_of_what_it_is() -> None:
    assert ToolCall("a", "{}", source={"x": 1}) == ToolCall("a", "{}")


# What fails


def piece(index: int, arguments: str, **fields: Any) -> chat.Json:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments, **fields}}]}


def holding(*texts: str) -> Choice:
    choice = Choice(0, Toy())
    choice.held.extend(Held(text, text.encode(), whole=True) for text in texts)
    choice.frames.append((b"raw", {}))
    choice.gathered.add(piece(0, '{"a"', name="read"))
    return choice


@pytest.mark.parametrize("events", [[], [Text("x")]])
def test_what_failed_is_undone(events: list[Event]) -> None:
    """Text that was taken, frames that were added, given away or told apart, and calls that were added to."""
    choice = holding("a", "b")
    mark = Mark(choice)
    choice.gathered.add(piece(0, ": 1}"))
    choice.gathered.add(piece(1, "{}", name="list"))
    mark.read(events)
    choice.held.append(Held("c", b"c", whole=False))
    if events:
        choice.held[0].text = ""
        choice.held.popleft()
    choice.frames.append((b"b", {}))
    choice.frames, choice.apart, choice.calls = [], True, 3
    mark.undo()
    assert [(held.text, held.raw) for held in choice.held] == [("a", b"a"), ("b", b"b")]
    assert (choice.frames, choice.apart, choice.calls) == ([(b"raw", {})], False, 0)
    assert [one["function"] for one in choice.gathered.entries()] == [{"name": "read", "arguments": '{"a"'}]


def test_a_long_call_is_not_copied_for_every_piece_of_it() -> None:
    choice = holding(*"abc")
    first = choice.held[0]
    mark = Mark(choice)
    mark.read([])
    mark.undo()
    assert choice.held[0] is first


def test_calls_that_were_taken_out_of_their_frames_are_given_back_as_far_as_they_came() -> None:
    one = StreamRewriter(lambda: Toy(structured=False), legacy=False)
    for delta in (piece(0, '{"a"', name="x"), piece(1, "", name="y"), piece(0, ": 1}")):
        feed(one, chat.chunk(delta))
    (body,) = one.release()
    (delta,) = chat.deltas(body)
    functions = [
        (call["index"], call["function"]["name"], call["function"]["arguments"]) for call in delta["tool_calls"]
    ]
    assert functions == [(0, "x", '{"a": 1}'), (1, "y", "")]
    assert one.release() == []


# Frames whose text waits


def held(*texts: str, whole: bool = True) -> deque[Held]:
    return deque(Held(text, text.encode(), whole) for text in texts)


@pytest.mark.parametrize(
    ("waiting", "events", "released"),
    [
        (held(), [Text("ab")], True),
        (held(), [Text("a"), Text("b")], True),
        (held(), [Text("a")], False),
        (held(), [], False),
        (held(), [Rewritten("ab", "x")], False),
        (held("\n", " "), [Text("\n ab")], True),
        (held("\n"), [Text("\n"), Text("ab")], True),
        (held("\n"), [], False),
        (held("\n"), [Text("\na")], False),
        (held("\n"), [Markup("\n"), Text("ab")], False),
        (held("\n"), [Reasoning("\nab")], False),
    ],
)
def test_what_waited_leaves_if_all_of_it_is_said(waiting: deque[Held], events: list[Event], *, released: bool) -> None:
    assert Choice(0, Toy(), waiting).is_released(events, "ab") == released


def test_for_a_client_that_reads_text_only_whole_frames_do() -> None:
    for structured, whole in ((True, True), (True, False), (False, True)):
        assert Choice(0, Toy(structured), held("\n", whole=whole)).is_released([Text("\nab")], "ab")
    assert not Choice(0, Toy(structured=False), held("\n", whole=False)).is_released([Text("\nab")], "ab")


def test_what_events_say() -> None:
    assert says([Text("a"), Markup("\n"), Rewritten("", "b")], "ab")
    assert not says([Reasoning("a")], "a")
