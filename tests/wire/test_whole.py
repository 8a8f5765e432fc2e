"""A whole body is one frame, which comes at its end."""

from __future__ import annotations

from vtc.wire.framing import Frame
from vtc.wire.whole import Reader, WholeBody


def test_body_in_pieces_is_one_frame_at_its_end() -> None:
    reader = WholeBody().reader()
    assert [reader.feed(piece) for piece in (b'{"a"', b"", b": 1}")] == [[], [], []]
    assert reader.held
    assert reader.finish() == [Frame(b'{"a": 1}', b'{"a": 1}')]
    assert reader.finish() == []
    assert not reader.held


def test_empty_body_is_no_frame() -> None:
    assert Reader().finish() == []


def test_changed_body_is_compact_json() -> None:
    framing = WholeBody()
    assert framing.write({"a": [1, None]}, None, first=True) == b'{"a":[1,null]}'
    assert framing.matches(b"anything")
    assert not framing.is_cut_off(Frame(b'{"a', b'{"a'))
