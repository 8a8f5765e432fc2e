"""The line that a call begins on: what stands there beside it says whether it is quoted.

I run <tool_call>…</tool_call> now.      words on both sides: an example, if it is written in one line
"<tool_call>…</tool_call>"               quotation marks directly around it
| a | <tool_call>…</tool_call> |         a cell of a table
docs/a.md:12: <tool_call>…</tool_call>   a line of a file
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vtc.dialects.reading.cursor import CONTEXT, WHITE

BAR = "|"
MARKS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』", BAR: BAR}
"""Quotation marks and the bar before a cell of a table, and what ends what they begin."""
_BEGINS_LINE = "-+#|>:→[]()0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""All that the beginning of a line of a file is made of, white space and the point of a fraction aside. Small letters
are not among them, as most texts end with one."""
ENDINGS = (*WHITE, *_BEGINS_LINE, *MARKS, *(f"{digit}{point}" for digit in range(10) for point in ".,"))
"""What may stand before a call and quote it: a text that ends so must be read, and so must the one after it."""

_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[ ]?[-+]\d\d:?\d\d)?"
_STAMP = rf"[\[(]?(?:{_DATE}(?:[T \t]{{1,4}}{_TIME})?|{_TIME}|\d{{8}}T\d{{4,6}}Z?)[\])]?"
# The end of a date, whatever comes before it, and the time: `Nov 22 10:00:01`, `[22/Nov/2026:10:00:01 +0000]`.
_DATED = rf"\d[ :]{_TIME}(?:[ ]\d{{4}})?\]?[ \t]*+"
_LEVEL = r"[\[(]?[A-Z]{2,9}[\])]?:?[ \t]*+"
"""Stands in a log between the time and the message: `INFO`, `[WARN]`, `UTC`, `AM`."""
_BEGINNING = rf"(?:[-+#|>]++|\d{{1,9}}[ \t]{{0,8}}[:|→]|\d{{1,9}}\t|{_STAMP})[ \t]*+"
_OF_LOG = rf"(?:(?:^|\n)[ \t]*+{_STAMP}[ \t]*+|{_DATED})(?:{_BEGINNING}|{_LEVEL})*\Z"
_OF_FILE = re.compile(rf"(?:^|\n)[ \t]*+(?:{_BEGINNING})+\Z|\S:\d{{1,9}}:(?:\d{{1,9}}:)?[ \t]*+\Z|{_OF_LOG}")


class Place(NamedTuple):
    """Where a call begins."""

    in_line: bool = False
    """Text stands before it, on the same line."""
    follows_call: bool = False
    """A call was made on this line, so this is no example either."""
    mark: str = ""
    """What would end the quotation that begins directly before it; empty if none does."""
    of_file: bool = False
    """Nothing stands before it on the line but what lines of files, logs and diffs begin with."""


def place(text: str, at: int, *, in_line: bool, follows_call: bool) -> Place:
    """Tell where a call begins, by the text before `at`."""
    before = text[max(0, at - CONTEXT) : at]
    if not in_line:
        return Place()
    bare = before.rstrip(" \t")
    mark = MARKS.get(BAR if bare.endswith(BAR) else before[-1:], "")
    return Place(True, follows_call, mark, _OF_FILE.search(before) is not None)
