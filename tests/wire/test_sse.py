"""The reader of server-sent events: the definition of a frame, and that cuts of the body never matter."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.bounds import time_limit
from vtc.wire import EventReader, EventStream, Frame, FrameTooLong
from vtc.wire.framing import MAX_FRAME_BYTES
from vtc.wire.sse import select_event_lines, select_other_lines

__all__ = ["time_limit"]


def read(*chunks: bytes) -> list[Frame]:
    reader = EventReader()
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    return frames + reader.finish()


BODIES = {
    "one event": (b"data: x\n\n", [(b"data: x\n\n", b"x")]),
    "two events": (b"data: x\n\ndata: y\n\n", [(b"data: x\n\n", b"x"), (b"data: y\n\n", b"y")]),
    "no space": (b"data:x\n\n", [(b"data:x\n\n", b"x")]),
    "one space is removed": (b"data:  x \n\n", [(b"data:  x \n\n", b" x ")]),
    "no colon": (b"data\n\n", [(b"data\n\n", b"")]),
    "empty data": (b"data:\n\n", [(b"data:\n\n", b"")]),
    "several lines": (b"data: a\ndata:\ndata: b\n\n", [(b"data: a\ndata:\ndata: b\n\n", b"a\n\nb")]),
    "other fields": (b"id: 1\nevent: e\ndata: x\n\n", [(b"id: 1\nevent: e\ndata: x\n\n", b"x")]),
    "no data field": (b"event: e\nid: 1\n\n", [(b"event: e\nid: 1\n\n", None)]),
    "longer field name": (b"data2: x\n\n", [(b"data2: x\n\n", None)]),
    "space before field": (b" data: x\n\n", [(b" data: x\n\n", None)]),
    "comment": (b": ping\n\n", [(b": ping\n\n", None)]),
    "comment that looks like data": (b":data: x\n\n", [(b":data: x\n\n", None)]),
    "colon in data": (b"data: a: b\n\n", [(b"data: a: b\n\n", b"a: b")]),
    "CRLF": (b"data: x\r\n\r\ndata: y\r\n\r\n", [(b"data: x\r\n\r\n", b"x"), (b"data: y\r\n\r\n", b"y")]),
    "CR": (b"data: x\r\rdata: y\r\r", [(b"data: x\r\r", b"x"), (b"data: y\r\r", b"y")]),
    "CRLF is one line end": (b"data: a\r\ndata: b\r\n\r\n", [(b"data: a\r\ndata: b\r\n\r\n", b"a\nb")]),
    "LF CRLF": (b"data: x\n\r\ndata: y\n\n", [(b"data: x\n\r\n", b"x"), (b"data: y\n\n", b"y")]),
    "CRLF LF": (b"data: x\r\n\ndata: y\n\n", [(b"data: x\r\n\n", b"x"), (b"data: y\n\n", b"y")]),
    "CR CRLF": (b"data: x\r\r\ndata: y\n\n", [(b"data: x\r\r\n", b"x"), (b"data: y\n\n", b"y")]),
    "LF CR": (b"data: x\n\rdata: y\n\n", [(b"data: x\n\r", b"x"), (b"data: y\n\n", b"y")]),
    "stray blank lines": (b"\n\ndata: x\n\n\n",
                          [(b"\n", None), (b"\n", None), (b"data: x\n\n", b"x"), (b"\n", None)]),
    "BOM": (b"\xef\xbb\xbfdata: x\n\n", [(b"\xef\xbb\xbf", None), (b"data: x\n\n", b"x")]),
    "BOM later": (b"data: x\n\n\xef\xbb\xbfdata: y\n\n",
                  [(b"data: x\n\n", b"x"), (b"\xef\xbb\xbfdata: y\n\n", None)]),
    "half a BOM": (b"\xef\xbb", [(b"\xef\xbb", None)]),
    "not ended": (b"data: x\n\ndata: y", [(b"data: x\n\n", b"x"), (b"data: y", b"y")]),
    "ended by one LF": (b"data: x\n", [(b"data: x\n", b"x")]),
    "ended by CR CR": (b"data: x\r\r", [(b"data: x\r\r", b"x")]),
    "any bytes": (b"data: \xff\x00\n\n", [(b"data: \xff\x00\n\n", b"\xff\x00")]),
    "empty": (b"", []),
}  # fmt: skip


@pytest.mark.parametrize(("body", "frames"), BODIES.values(), ids=BODIES)
def test_frames_of_a_body_whole_and_byte_by_byte(body: bytes, frames: list[tuple[bytes, bytes | None]]) -> None:
    expected = [Frame(raw, data) for raw, data in frames]
    assert read(body) == expected
    assert read(*(body[i : i + 1] for i in range(len(body)))) == expected
    assert read(b"data: first\n\n", body)[0] == Frame(b"data: first\n\n", b"first")


LINES = st.sampled_from([b"data: x", b"data:y", b"data", b": c", b"event: e", b"id", b"", b"", b"\xef\xbb\xbf"])
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.lists(st.tuples(LINES, ENDINGS).map(b"".join), max_size=20).map(b"".join)


@given(STREAMS | st.binary(max_size=40), st.lists(st.integers(0, 200), max_size=8))
@example(b"data: x\r\n\r\ndata: y\r\n\r\n", [8, 9, 10, 11])
def test_cuts_never_matter_and_no_byte_is_lost(body: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    frames = read(*(body[start:end] for start, end in pairwise(places)))
    assert frames == read(body)
    assert b"".join(frame.raw for frame in frames) == body


@given(STREAMS)
def test_only_the_last_frame_may_lack_its_blank_line(body: bytes) -> None:
    for frame in read(body)[:-1]:
        assert frame.raw == b"\xef\xbb\xbf" or not frame.raw.splitlines()[-1]
        assert all(frame.raw.splitlines()[:-1])


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_frame_is_delivered_by_the_feed_that_brings_its_last_byte(ending: bytes) -> None:
    reader = EventReader()
    body = b"data: x" + ending + ending
    for _ in range(3):
        assert [reader.feed(body[i : i + 1]) for i in range(len(body) - 1)] == [[]] * (len(body) - 1)
        assert reader.feed(body[-1:]) == [Frame(body, b"x")]


def test_a_cr_waits_for_one_byte_because_it_may_be_half_a_crlf() -> None:
    reader = EventReader()
    assert reader.feed(b"data: x\n\r") == []
    assert reader.feed(b"\n") == [Frame(b"data: x\n\r\n", b"x")]
    assert reader.feed(b"data: y\n\r") == []
    assert reader.feed(b"d") == [Frame(b"data: y\n\r", b"y")]


def test_finish_may_be_called_again() -> None:
    reader = EventReader()
    reader.feed(b"data: x")
    assert reader.finish() == [Frame(b"data: x", b"x")]
    assert reader.finish() == []


OTHERS = {
    "none": (b"data: a\ndata: b\n\n", b"", b""),
    "all": (b"event: e\r\nid: 1\ndata:a\n: c\nretry: 5\n\n", b"event: e\r\nid: 1\n: c\nretry: 5\n", b"event: e\r\n"),
    "CR": (b"id: 1\rdata: a\r\r", b"id: 1\r", b""),
    "not ended": (b"data: a\nevent: e", b"event: e\n", b"event: e\n"),
    "without data": (b": ping\n\n", b": ping\n", b""),
}


@pytest.mark.parametrize(("raw", "others", "event"), OTHERS.values(), ids=OTHERS)
def test_other_fields_of_a_frame(raw: bytes, others: bytes, event: bytes) -> None:
    [frame] = read(raw)
    assert select_other_lines(frame.raw) == others
    assert select_event_lines(others) == event


@given(STREAMS)
def test_other_lines_and_data_make_the_same_event(body: bytes) -> None:
    for frame in read(body):
        if frame.data is not None:
            data = b"".join(b"data: " + line + b"\n" for line in frame.data.split(b"\n"))
            _, other = read(b"\n" + select_other_lines(frame.raw) + data + b"\n")
            assert (other.data, select_other_lines(other.raw)) == (frame.data, select_other_lines(frame.raw))


# Endless frames


def test_a_body_without_blank_lines_is_not_held_for_ever() -> None:
    reader = EventReader()
    assert reader.feed(b"data: x\n\n" + bytes(MAX_FRAME_BYTES + 1)) == [Frame(b"data: x\n\n", b"x")]
    with pytest.raises(FrameTooLong, match="a frame is longer than 16 MiB"):
        reader.feed(b"more")
    [rest] = reader.finish()
    assert rest.raw == bytes(MAX_FRAME_BYTES + 1)
    assert reader.finish() == []


def test_a_long_frame_is_one() -> None:
    reader = EventReader()
    long = b"data: " + b"x" * (MAX_FRAME_BYTES - 8)
    assert reader.feed(long) == []
    assert reader.feed(b"\n\n") == [Frame(long + b"\n\n", long[6:])]


def test_frame_made_in_place_of_another_has_its_other_lines_once() -> None:
    like = Frame(b"id: 1\nevent: x\n: hi\ndata: {}\n\n", b"{}")
    assert EventStream().encode([{"a": 1}], like, first=True)[0] == b'id: 1\nevent: x\n: hi\ndata: {"a":1}\n\n'
    assert EventStream().encode([{"a": 1}], like, first=False)[0] == b'event: x\ndata: {"a":1}\n\n'


def test_frame_of_an_api_that_names_events_is_named_by_its_data() -> None:
    like = Frame(b"id: 1\nevent: x\ndata: {}\n\n", b"{}")
    named = EventStream("type")
    assert named.encode([{"type": "y"}], like, first=True)[0] == b'id: 1\nevent: y\ndata: {"type":"y"}\n\n'
    assert named.encode([{"type": "y"}], like, first=False)[0] == b'event: y\ndata: {"type":"y"}\n\n'


def test_name_of_an_event_with_a_lone_surrogate_is_encoded() -> None:
    """Half an emoji cannot be encoded as UTF-8."""
    (frame,) = EventStream("type").encode([{"type": "\ud83d"}])
    assert frame == b'event: ?\ndata: {"type":"\\ud83d"}\n\n'


@pytest.mark.parametrize(
    ("body", "matches"),
    [(b"data: x", True), (b"\xef\xbb\xbf\r\n: hi", True), (b"event:x", True), (b'{"a": 1}', False), (b"", False)],
)
def test_stream_is_recognized_by_its_beginning(body: bytes, matches: bool) -> None:
    assert EventStream().matches(body) == matches


@pytest.mark.parametrize(
    ("raw", "cut"),
    [(b'data: {"a"', True), (b'data: {"a": 1}', False), (b"data: [DONE]", False), (b'data: {"a"\n\n', False)],
)
def test_frame_that_is_cut_off(raw: bytes, cut: bool) -> None:
    (frame,) = [*(reader := EventReader()).feed(raw), *reader.finish()]
    assert EventStream().is_cut_off(frame) == cut


def test_new_frame_is_one_line_to_clients_that_cut_text() -> None:
    written = EventStream().encode([{"a": "\u2028\u2029\x85"}])[0]
    assert written == b'data: {"a":"\\u2028\\u2029\\u0085"}\n\n'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_whole_data_without_blank_lines_are_frames(end: str) -> None:
    lines = ['data: {"a": 1}', ": ping", 'data: {"b": 2}', "event: x", 'data: {"c": 3}', "data: [DONE]"]
    body = end.join([*lines, "", ""]).encode()
    for size in range(1, len(body) + 1):
        reader = EventReader()
        found = [frame for at in range(0, len(body), size) for frame in reader.feed(body[at : at + size])]
        found += reader.finish()
        assert [frame.data for frame in found] == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}', b"[DONE]"]
        assert all(frame.raw.endswith(2 * end.encode()) for frame in found)


def test_data_in_several_lines_are_one_frame() -> None:
    body = b'data: {"a":\ndata: 1}\n\n'
    assert EventReader().feed(body) == [Frame(body, b'{"a":\n1}')]


def test_data_that_are_no_object_are_decoded_once() -> None:
    """This holds however many lines of data follow them in the same frame, and in however many reads."""
    long = b"data: [" + b"1, " * 500_000 + b"1]"
    reader = EventReader()
    assert reader.feed(long) == []
    assert all(reader.feed(b"\ndata:") == [] for _ in range(20_000))
    [frame] = reader.feed(b"\n\n")
    assert frame.raw == long + b"\ndata:" * 20_000 + b"\n\n"
    assert [frame.data for frame in reader.feed(b"data: {}\ndata: {}\n\n")] == [b"{}", b"{}"]
