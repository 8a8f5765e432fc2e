"""What frames that are alike say, which of them pass unread, and that neither is ever told of another frame."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.wire.template import Template, Unread

TEMPLATE = Template(b'data: {"a": "', b'", "b": null}\n\n')


def frame(text: str, *, ascii_: bool = False) -> bytes:
    return b"data: " + json.dumps({"a": text, "b": None}, ensure_ascii=ascii_).encode() + b"\n\n"


@given(st.text(), st.booleans())
def test_a_frame_of_the_kind_says_its_text(text: str, ascii_: bool) -> None:
    try:
        made = frame(text, ascii_=ascii_)
    except UnicodeEncodeError:
        return
    if TEMPLATE.text(made) is not None:  # half a surrogate pair is left to others
        assert TEMPLATE.text(made) == text
        assert json.loads(TEMPLATE.with_text(text)[6:]) == {"a": text, "b": None}


@pytest.mark.parametrize(
    "other",
    [
        frame("x")[:-1],
        frame("x") + b"\n",
        frame("x") + frame("y"),
        b" " + frame("x"),
        b'data: {"a": "x", "c": "y", "b": null}\n\n',
        b'data: {"a": "x"y", "b": null}\n\n',
        b'data: {"a": "\xff", "b": null}\n\n',
        b'data: {"a": "\n", "b": null}\n\n',
        b'data: {"a": "\\", "b": null}\n\n',
        b'data: {"a": ", "b": null}\n\n',
        b"data: {}\n\n",
        b"",
    ],
)
def test_any_other_bytes_are_no_frame_of_the_kind(other: bytes) -> None:
    unread = Unread(TEMPLATE, "<")
    assert TEMPLATE.text(other) is None
    assert not unread.waits(other)
    if b"\xff" not in other:  # bytes that are no UTF-8 are passed on by everybody
        assert not unread.passes(other)


@given(st.text(alphabet='ab <\n\t>"\\/é`'), st.sampled_from(["<", "<`", "<\n", '<"', "<é", "<\\/ "]))
def test_what_passes_unread(text: str, watched: str) -> None:
    """What holds nothing that is watched for, and ends in the middle of a line."""
    made, unread = frame(text), Unread(TEMPLATE, watched)
    harmless = not set(text) & set(watched)
    assert unread.waits(made) == (harmless and bool(text) and not text.strip(" \n\t"))
    if unread.passes(made):
        assert harmless
        assert text
        assert text[-1] not in " \n\t>"
    elif harmless and text and "\\n" not in text and "\\t" not in text:
        assert text[-1] in " \n\t>"


def test_a_letter_written_as_an_escape_is_read() -> None:
    """It may be one that is watched for."""
    assert not Unread(TEMPLATE, "<").passes(TEMPLATE.before + b"a \\u003cb" + TEMPLATE.after)
