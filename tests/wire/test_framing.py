"""Guarantees of every framing: no byte is lost, and an end can occur twice."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.wire import EventStream, Framing, Lines

FRAMINGS: list[Framing] = [EventStream(), EventStream("type"), Lines()]
each = pytest.mark.parametrize("framing", FRAMINGS, ids=lambda one: type(one).__name__)


@each
@given(chunks=st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"\n\n", b"data: {}", b"{}"]), max_size=8))
def test_frames_joined_are_the_body(framing: Framing, chunks: list[bytes]) -> None:
    reader = framing.make_reader()
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    frames += [*reader.finish(), *reader.finish()]
    joined, body = b"".join(frame.raw for frame in frames), b"".join(chunks)
    if isinstance(framing, EventStream) and re.search(rb"[}\]]\s*[\r\n](?s:.*)data:", body):
        # Adjacent events are separated by a blank line, and lose nothing.
        joined, body = (b"\n".join(line for line in re.split(rb"[\r\n]", all_) if line) for all_ in (joined, body))
    assert joined == body
    assert not reader.buffered


@each
def test_frame_that_was_made_is_one_frame(framing: Framing) -> None:
    made = framing.encode([{"type": "x", "a": "\n"}])[0]
    reader = framing.make_reader()
    assert [frame.raw for frame in [*reader.feed(made), *reader.finish()] if frame.raw] == [made]
    assert made.endswith(framing.end)
