"""A value without the line breaks that only set it off from its tags."""

from __future__ import annotations

import pytest

from vtc.dialects.arguments.parameter import unclosed, unframed

NEWLINES = "<p={key}>\n{value}\n</p>"
NONE = "<p={key}>{value}</p>"


@pytest.mark.parametrize(
    ("text", "frame", "param", "value"),
    [
        # One newline on either side, and only where the dialect writes one
        ("\na\n", "pattern", NEWLINES, "a"),
        ("\n\na\n\n", "pattern", NEWLINES, "\na\n"),
        ("a", "pattern", NEWLINES, "a"),
        ("a\n", "pattern", NEWLINES, "a"),
        ("\r\na\r\n", "pattern", NEWLINES, "a"),
        (" \na\n ", "pattern", NEWLINES, " \na\n "),
        ("\n", "pattern", NEWLINES, ""),
        ("\n\n", "pattern", NEWLINES, ""),
        ("\na\n", "pattern", NONE, "\na\n"),
        ("\na\n", "pattern", "<p={key}>\n{value}</p>", "a\n"),
        ("\na\n", "pattern", "<p={key}>{value}\n</p>", "\na"),
        # On lines of its own: both newlines or neither
        ("\na\n", "multiline", NONE, "a"),
        ("\n\na\n\n", "multiline", NONE, "\na\n"),
        ("a\n", "multiline", NONE, "a\n"),
        ("\na", "multiline", NONE, "a"),
        ("\r\na\r\n", "multiline", NONE, "a"),
        ("\n", "multiline", NONE, ""),
        ("\n\n", "multiline", NONE, ""),
        ("", "multiline", NONE, ""),
    ],
)
def test_the_frame_of_a_value(text: str, frame: str, param: str, value: str) -> None:
    assert unframed(text, frame, param) == value


@pytest.mark.parametrize(
    ("text", "frame", "param", "more", "value"),
    [
        # One newline, and only where the dialect writes the next tag on a line of its own
        ("a\n", "pattern", f"{NONE}\n", "", "a"),
        ("a\n\n", "pattern", f"{NONE}\n", "", "a\n"),
        ("a\r\n", "pattern", f"{NONE}\n", "", "a"),
        ("a ", "pattern", f"{NONE}\n", "", "a "),
        ("a\n", "pattern", NONE, "", "a\n"),
        ("a\n", "pattern", NONE, "\n", "a"),
        # That of the frame, which is taken off later
        ("\na\n", "pattern", NEWLINES, "", "\na\n"),
        ("\na\n", "multiline", f"{NONE}\n", "", "\na\n"),
        ("a\n", "multiline", f"{NONE}\n", "", "a"),
        # What is left of a line of its own, or a line of the value
        ("\na\n\n", "pattern", NEWLINES, "", "\na\n\n"),
        ("\na\n\n", "pattern", f"{NEWLINES}\n", "", None),
        ("\na\n\n", "multiline", f"{NONE}\n", "", None),
        ("\na\r\n\r\n", "multiline", f"{NONE}\n", "", None),
        # Indentation of the tag, or of the value
        ("a\n  ", "pattern", f"{NONE}\n", "", None),
        ("a\n  ", "pattern", NONE, "", "a\n  "),
    ],
)
def test_a_value_without_closing_tag(text: str, frame: str, param: str, more: str, value: str | None) -> None:
    assert unclosed(text, frame, param, more) == value
