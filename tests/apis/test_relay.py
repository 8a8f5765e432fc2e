"""Native calls that a pipeline checks: they are sent in their own frames or re-encoded."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.apis import chat
from tests.apis.toy import Toy
from vtc.apis import fields
from vtc.apis.anthropic_messages import Encoder as MessagesEncoder
from vtc.apis.contract import Decoded
from vtc.apis.openai_chat import Decoder, Encoder
from vtc.apis.relay import Relay
from vtc.events import CallDelta, Text
from vtc.wire import EventReader, Frame


def entry(index: int, name: str, **more: Any) -> dict[str, Any]:
    return {"index": index, "id": f"i{index}", "type": "function", "function": {"name": name, "arguments": ""}, **more}


def calls(*entries: dict[str, Any], **fields: Any) -> bytes:
    return chat.chunk({"tool_calls": [*entries]}, **fields)


PART = chat.native(0, arguments="{}")
OTHER = chat.native(1, arguments="{}")
END = chat.chunk({}, "tool_calls")


def feed(one: Relay[Toy], raw: bytes) -> list[bytes]:
    return [out for frame in EventReader().feed(raw) for out in one.feed(frame)]


def run(*frames: bytes, structured: bool = True) -> bytes:
    one = Relay(Decoder(), Encoder(), lambda: Toy(structured, guarded=True))
    out = [piece for frame in frames for piece in feed(one, frame)]
    return b"".join([*out, *one.finish()])


@pytest.mark.parametrize(
    "frames",
    [
        [calls(entry(0, "a")), calls(PART), END, chat.USED, chat.DONE],
        [chat.chunk({"role": "assistant", "content": None, "tool_calls": [entry(0, "a", sig="x")]}), calls(PART), END],
        [
            chat.ROLE,
            *chat.make_text_chunks("Hi"),
            calls(entry(0, "a"), entry(1, "b")),
            calls(PART, OTHER),
            END,
            chat.DONE,
        ],
        [calls(entry(0, "a"), PART), chat.chunk({"tool_calls": [PART]}, "tool_calls")],
        [chat.chunk({"function_call": {"name": "a", "arguments": "{"}}), chat.chunk({}, "function_call")],
    ],
)
def test_unchanged_calls_keep_their_frames(frames: list[bytes]) -> None:
    assert run(*frames) == b"".join(frames)


def test_finish_reason_goes_with_the_calls() -> None:
    assert chat.read(run(chat.ROLE, calls(entry(0, "a"), PART), chat.STOP)).finish_reason == "tool_calls"
    assert chat.read(run(chat.ROLE, *chat.make_text_chunks("Hi"), END)).finish_reason == "stop"


@pytest.mark.parametrize("end", [[], [chat.DONE], [chat.chunk({}, ""), chat.DONE]])
def test_complete_calls_get_the_missing_finish_reason(end: list[bytes]) -> None:
    frames = [chat.ROLE, calls(entry(0, "a")), calls(PART)]
    out = run(*frames, *end)
    assert out.startswith(b"".join(frames))
    assert chat.read(out).finish_reason == "tool_calls"
    cut = [chat.ROLE, calls(entry(0, "a")), calls(chat.native(0, arguments="{")), chat.DONE]
    assert run(*cut) == b"".join(cut)


def test_calls_are_sent_when_the_last_one_is_complete() -> None:
    one = Relay(Decoder(), Encoder(), lambda: Toy(guarded=True))
    assert feed(one, chat.ROLE) == [chat.ROLE]
    first, more = calls(entry(0, "a")), calls(PART)
    assert [feed(one, first), feed(one, more)] == [[], []]
    assert feed(one, END) == [first, more, END]


def test_changed_call_is_encoded_again_with_other_fields_of_its_frames() -> None:
    first = chat.chunk({"role": "assistant", "content": None, "tool_calls": [entry(0, "old", sig="x"), entry(1, "a")]})
    used = calls(PART, chat.native(1, arguments="[1]"), usage=chat.USAGE)
    body = run(first, used, END, chat.DONE)
    message = chat.read(body)
    assert (message.calls, message.ids) == ([("new", {}), ("a", [1])], ["i0", "i1"])
    assert message.finish_reason == "tool_calls"
    assert b'"sig":"x"' in body
    assert b'"total_tokens"' in body
    assert [delta.get("role") for delta in chat.deltas(body)].count("assistant") == 1


def test_denied_call_keeps_the_others_and_the_reason_is_stop_if_none_remains() -> None:
    body = run(chat.ROLE, calls(entry(0, "bad"), PART), calls(entry(1, "b")), chat.STOP)
    assert chat.read(body) == chat.Read("[bad {} i0]", calls=[("b", {})], finish_reason="tool_calls")
    body = run(chat.ROLE, calls(entry(0, "bad"), PART), END)
    assert chat.read(body) == chat.Read("[bad {} i0]", finish_reason="stop")


def test_calls_of_the_text_take_the_first_places() -> None:
    body = run(chat.ROLE, *chat.make_text_chunks("[x]"), calls(entry(0, "b"), PART), END, chat.DONE)
    assert chat.read(body).calls == [("x", {}), ("b", {})]


def test_buffered_frames_are_returned() -> None:
    """After a failure, they are released in order, and only once."""
    one = Relay(Decoder(), Encoder(), lambda: Toy(guarded=True))
    frames = [calls(entry(0, "a")), calls(PART)]
    assert [feed(one, frame) for frame in frames] == [[], []]
    assert one.release() == frames
    assert one.release() == []


def test_calls_that_are_interleaved_and_unnumbered_go_to_a_client_of_text() -> None:
    entries = [
        {"id": "p", "function": {"name": "a", "arguments": "{"}},
        {"id": "q", "function": {"name": "b", "arguments": {"x": 1}}},
        {"index": 0, "function": {"arguments": "}"}},
    ]
    frames = [chat.chunk({"tool_calls": [entry]}) for entry in entries]
    assert chat.read(run(*frames, END, structured=False)).content == '[a {} p][b {"x": 1} q]'


# Failures


class BrokenEncoder(Encoder):
    """An encoder that fails when it writes a call."""

    def write(self, *args: Any, **more: Any) -> Any:
        super().write(*args, **more)
        raise RuntimeError("planted")


def test_frame_that_cannot_be_written_changes_nothing() -> None:
    """All pending frames are sent as received, once."""
    one = Relay(Decoder(), BrokenEncoder(), Toy)
    frames = [chat.ROLE, *chat.make_text_chunks("a", "[", "x")]
    assert [feed(one, frame) for frame in frames] == [[chat.ROLE], [frames[1]], [], []]
    leaving = one.writer
    with pytest.raises(RuntimeError, match="planted"):
        feed(one, chat.make_text_chunks("]")[0])
    assert one.writer is leaving
    assert one.release() == frames[2:]
    assert one.release() == []


def test_rest_of_a_partly_sent_frame_is_returned() -> None:
    one = Relay(Decoder(), Encoder(), Toy)
    out = [*feed(one, chat.ROLE), *feed(one, chat.make_text_chunks("a[")[0]), *feed(one, chat.make_text_chunks("b")[0])]
    assert chat.read(b"".join([*out, *one.release()])).content == "a[b"


def test_choices_do_not_wait_for_each_other() -> None:
    one = Relay(Decoder(), Encoder(), Toy)
    first, other = chat.make_text_chunks("[")[0], chat.make_text_chunks("b", index=1)[0]
    assert feed(one, first) == []
    assert feed(one, other) == [other]
    assert one.release() == [first]


def test_frames_after_one_that_waits_wait_with_it() -> None:
    one = Relay(Decoder(), Encoder(), Toy)
    frames = [*chat.make_text_chunks("["), chat.chunk({"content": "", "x": "no"}), chat.chunk({"reasoning": "hm"})]
    assert [feed(one, frame) for frame in frames] == [[], [], []]
    assert one.finish() == frames


def test_comment_passes_at_once() -> None:
    one = Relay(Decoder(), Encoder(), Toy)
    assert feed(one, chat.make_text_chunks("[")[0]) == []
    assert feed(one, b": ping\n\n") == [b": ping\n\n"]


def test_long_call_is_held_without_work_that_grows() -> None:
    """Each frame is processed when it arrives and when it is sent."""
    one = Relay(Decoder(), Encoder(), Toy)
    frames = chat.make_text_chunks("[", *["x"] * 5000, "]")
    out = [piece for frame in frames for piece in feed(one, frame)]
    assert chat.read(b"".join([*out, *one.finish()])).calls == [("x" * 5000, {})]


def test_several_choices_in_one_frame_that_fails_are_given_back() -> None:
    both = [{"index": index, "delta": {"content": "["}, "finish_reason": None} for index in (0, 1)]
    one = Relay(Decoder(), Encoder(), Toy)
    out = feed(one, chat.frame({**chat.HEAD, "choices": both}))
    body = b"".join([*out, *one.release()])
    assert [chat.read(body, index).content for index in (0, 1)] == ["[", "["]


def test_entries_of_upstream_pass_as_they_are() -> None:
    text, call = Encoder().write([Text("b"), CallDelta(0, arguments="{}", source=PART)], 0)
    assert text["choices"][0]["delta"] == {"role": "assistant", "content": "b"}
    assert call["choices"][0]["delta"] == {"tool_calls": [PART]}


# The end of the reply is alone in its frame


class Joining(Decoder):
    """A faulty decoder, which returns the end of the reply together with earlier content."""

    def decode(self, frame: Frame) -> Decoded | None:
        decoded = super().decode(frame)
        assert decoded
        return msgspec.structs.replace(decoded, ends=True) if b'"stop"' in frame.raw else decoded


@pytest.mark.parametrize("strict", [False, True])
def test_an_end_that_does_not_stand_alone_is_a_fault_before_anything_changes(strict: bool) -> None:
    one = Relay(Joining(), Encoder(), lambda: Toy(guarded=True), strict=strict)
    hi, held, last = *chat.make_text_chunks("Hi", "[a"), chat.chunk({"content": "x"}, "stop")
    assert [feed(one, hi), feed(one, held)] == [[hi], []]
    with pytest.raises(ValueError, match="the end of the reply and other content"):
        feed(one, last)
    (frame,) = EventReader().feed(last)
    assert [*one.release(), *one.pass_through(frame)] == [held, last]


def test_end_after_a_fault_keeps_all_of_its_frame() -> None:
    """The end is sent in the form of the client's API."""
    one = Relay(Joining(), MessagesEncoder(), lambda: Toy(guarded=True), same_api=False)
    (frame,) = EventReader().feed(chat.chunk({"content": "x"}, "stop"))
    out = b"".join(one.pass_through(frame))
    assert b'"text":"x"' in out
    assert out.count(b"message_stop") == 2  # its name and its type


def test_nested_envelopes_are_unwrapped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level decoded and encoded anew made a frame of a megabyte in 900 envelopes take five seconds."""
    decoded, real = list[bytes](), fields.decode_json

    def count(data: bytes, *arguments: Any) -> Any:
        decoded.append(data)
        return real(data, *arguments)

    monkeypatch.setattr(fields, "decode_json", count)
    (inner,) = chat.make_text_chunks("Hi")
    body = inner.removeprefix(b"data: ").rstrip()
    wrapped = b"data: " + b'{"data": ' * 50 + body + b"}" * 50 + b"\n\n"
    out = feed(Relay(Decoder(), Encoder(), Toy), wrapped)
    assert [json.loads(piece.removeprefix(b"data: ")) for piece in out] == [json.loads(body)]
    assert len(decoded) == 3  # the decoder, the unwrapping, and the decoder again
