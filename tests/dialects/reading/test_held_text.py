"""The characters of a call: its head and body, and what of it has left."""

from __future__ import annotations

from vtc.dialects.reading.held_text import HeldText


def held(*pieces: str) -> HeldText:
    text = HeldText()
    for piece in pieces:
        text.add(piece)
    return text


def test_the_size_is_in_bytes() -> None:
    assert held("ab", "é\U0001f600", "\ud83d").size == 2 + 2 + 4 + 3


def test_the_body_is_what_follows_the_head() -> None:
    text = held("<a", ">")
    text.begin_body()
    text.add("x")
    assert (text.raw, text.body) == ("<a>x", "x")
    text.replace_body("yz")
    assert (text.raw, text.body) == ("<a>yz", "yz")


def test_a_text_that_is_told_is_told_once() -> None:
    text = held("ab", "c")
    assert text.tell() == "abc"
    text.add("d")
    text.add("e")
    assert text.untold == "de"
    assert text.tell() == "de"
    assert (text.told, text.untold) == (5, "")


def test_a_text_that_is_spilled_is_not_kept() -> None:
    text = held("text")
    text.spill()
    assert text.spilled
    assert text.raw == ""
