"""Newline-delimited JSON: every cut gives the same lines, and no byte is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.wire import Frame, FrameTooLong, LineReader, Lines

PIECES = st.sampled_from([b'{"a": 1}', b"\n", b"\r\n", b" ", b"", b"{", "é".encode(), b"\xff"])


def read(*chunks: bytes) -> list[Frame]:
    reader = LineReader()
    return [*(frame for chunk in chunks for frame in reader.feed(chunk)), *reader.finish()]


@given(pieces=st.lists(PIECES, max_size=12), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_gives_the_same_lines(pieces: list[bytes], cuts: list[int]) -> None:
    body = b"".join(pieces)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    whole = read(body)
    assert read(*(body[a:b] for a, b in pairwise(places))) == whole
    assert b"".join(frame.raw for frame in whole) == body


def test_line_has_its_end_and_its_data_has_not() -> None:
    assert read(b'{"a":1}\r\n\n{"b"') == [
        Frame(b'{"a":1}\r\n', b'{"a":1}'),
        Frame(b"\n", None),
        Frame(b'{"b"', b'{"b"'),
    ]


def test_endless_line_is_refused() -> None:
    reader = LineReader()
    for _ in range(17):
        reader.feed(b"x" * 2**20)
    with pytest.raises(FrameTooLong, match="16 MiB"):
        reader.feed(b"x")
    assert reader.buffered
    assert [len(frame.raw) for frame in reader.finish()] == [17 * 2**20]


@pytest.mark.parametrize(("raw", "cut"), [(b'{"a"', True), (b'{"a": 1}', False), (b'{"a"\n', False), (b" ", False)])
def test_last_line_that_is_cut_off(raw: bytes, cut: bool) -> None:
    assert Lines().is_cut_off(read(raw)[0]) == cut


@pytest.mark.parametrize(
    ("body", "matches"), [(b'{"a":1}\n{"b":2}', True), (b'{"a":1}\n', False), (b"", False), (b"x\ny", False)]
)
def test_stream_is_recognized_by_its_second_line(body: bytes, matches: bool) -> None:
    assert Lines().matches(body) == matches


def test_new_line_is_compact_json() -> None:
    assert Lines().encode([{"a": "é"}])[0] == '{"a":"é"}\n'.encode()


def test_new_line_is_one_line_to_clients_that_cut_text() -> None:
    assert Lines().encode([{"a": "\u2028\u2029\x85"}])[0] == b'{"a":"\\u2028\\u2029\\u0085"}\n'
