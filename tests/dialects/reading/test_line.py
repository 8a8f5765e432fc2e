"""What stands before a call on its line."""

from __future__ import annotations

import pytest

from vtc.dialects.reading.cursor import ENDINGS, MARKS, CallPlace, place


def before(text: str) -> CallPlace:
    return place(text, len(text), in_line=True, follows_call=False)


@pytest.mark.parametrize(
    "text",
    [
        *("+", "- ", "a\n-", "\n  ## ", "12: ", "a\n 12 | ", "12→", "12\t", "12:+ ", "x.py:12:", "x.py:12:5: "),
        *(
            "10:11 ",
            "10:11:12.345 ",
            "[10:11:12] ",
            "2025-01-02 ",
            "2025-01-02T10:11:12Z ",
            "a\n2025-01-02 10:11:12,1 ",
            "Nov 22 10:00:01 ",
            "Nov  2 10:00:01 ",
            "Sun Nov 22 10:00:01 2026 ",
            "Sun, 22 Nov 2026 10:00:01 +0000 ",
            "2026/11/22 10:00:01 ",
            "22.11.2026 10:00:01 ",
            "11/22/26 10:00 ",
            "[22/Nov/2026:10:00:01 +0000] ",
            "20261122T100001Z ",
            "(10:00:01) ",
        ),
    ],
)
def test_a_line_of_a_file_is_known_by_its_beginning(text: str) -> None:
    assert before(text).of_file
    assert text.rstrip(" \t").endswith(ENDINGS)  # so the reader knows of it


@pytest.mark.parametrize(
    "text",
    [
        "Look: ",
        "1. ",
        "* ",
        "a - ",
        "C#",
        "12 apples: ",
        "at 10:11 ",
        "1 + ",
        "x->",
        "a\n12 ",
        "INFO ",
        "1.2 ",
        "",
    ],
)
def test_prose_is_none(text: str) -> None:
    assert not before(text).of_file


def test_a_quotation_mark_directly_before_is_known_with_its_end() -> None:
    assert {mark: before(f"said {mark}").mark for mark in MARKS} == MARKS
    assert before('said " ').mark == ""
    assert before("| a | ").mark == before("| a |\t").mark == "|"  # a cell is set off by blanks
    assert place('"', 1, in_line=False, follows_call=False) == CallPlace()


@pytest.mark.parametrize(
    "text", ["#" * 100 + "a", "1:" * 60 + "x", "10:10:" * 20 + "x", "+ " * 60 + "x", "1/1/11 " * 9 + "x"]
)
def test_what_could_be_the_beginning_in_many_ways_is_given_up(text: str) -> None:
    assert not before(text).of_file
