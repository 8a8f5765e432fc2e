"""The text that is read: forward only, with no more of it kept than a token may need.

Everything before `at` is consumed. From there to the end the text is held back, and that is only what the expression of
the current state says may still become a token.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vtc.dialects.syntax.scan import INDENT

CONTEXT = 48
"""Characters that are kept of what was consumed, for a token that must start its line, and for what quotes a call."""
WHITE = " \t\r\n"

_QUOTED = re.compile(rf"^(?=[ \t>]{{1,{INDENT}}}\Z)[ \t]{{0,3}}>", re.MULTILINE)
_BLANK = re.compile(rf"[{WHITE}]*+\Z")

type Found = re.Match[str]


class Cursor:
    """A text and the place in it up to which it was read."""

    __slots__ = ("at", "final", "seek", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.seek = 0
        """Where the search for the next token goes on."""
        self.final = False
        """No more text comes."""

    def add(self, text: str) -> None:
        """Append text, and forget what no token can need any more."""
        keep = self.at - CONTEXT
        if keep > 0:
            self.text = self.text[keep:] + text
            self.at -= keep
            self.seek -= keep
        else:
            self.text += text

    def take(self, end: int) -> str:
        """Consume the text up to `end`."""
        text = self.text[self.at : end]
        self.at = self.seek = end
        return text

    def take_all(self) -> str:
        return self.take(len(self.text))

    def again(self, text: str) -> None:
        """Put text that was consumed before the rest, to be read in another state."""
        self.text, self.at, self.seek = text + self.text[self.at :], 0, 0

    @property
    def is_quoted(self) -> bool:
        """True if nothing but the `>` of a quotation stands before on the line."""
        return _QUOTED.search(self.text[max(0, self.at - CONTEXT) : self.at]) is not None

    @property
    def is_at_end(self) -> bool:
        """True if all text that came is consumed."""
        return self.at == len(self.text)

    def is_blank_to(self, end: int) -> bool:
        """True if only white space stands before `end`."""
        return not self.text[self.at : end].strip(WHITE)

    def is_blank(self, start: int) -> bool:
        """True if only white space follows `start`."""
        return _BLANK.match(self.text, start) is not None


# The line that a call begins on: what stands there beside it says whether it is quoted.
#
# I run <tool_call>…</tool_call> now.      words on both sides: an example, if it is written in one line
# "<tool_call>…</tool_call>"               quotation marks directly around it
# | a | <tool_call>…</tool_call> |         a cell of a table
# docs/a.md:12: <tool_call>…</tool_call>   a line of a file


BAR = "|"
MARKS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』", BAR: BAR}
"""Quotation marks and the bar before a cell of a table, and what ends what they begin."""

_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[ ]?[-+]\d\d:?\d\d)?"
_STAMP = rf"[\[(]?(?:{_DATE}(?:[T \t]{{1,4}}{_TIME})?|{_TIME}|\d{{8}}T\d{{4,6}}Z?)[\])]?"
# The end of a date, whatever comes before it, and the time: `Nov 22 10:00:01`, `[22/Nov/2026:10:00:01 +0000]`.
_DATED = rf"\d[ :]{_TIME}(?:[ ]\d{{4}})?\]?[ \t]*+"
_LEVEL = r"[\[(]?[A-Z]{2,9}[\])]?:?[ \t]*+"
"""Stands in a log between the time and the message: `INFO`, `[WARN]`, `UTC`, `AM`."""
_BEGINNING = rf"(?:[-+#|>]++|\d{{1,9}}[ \t]{{0,8}}[:|→]|\d{{1,9}}\t|{_STAMP})[ \t]*+"
_OF_LOG = rf"(?:(?:^|\n)[ \t]*+{_STAMP}[ \t]*+|{_DATED})(?:{_BEGINNING}|{_LEVEL})*\Z"
_OF_FILE = re.compile(rf"(?:^|\n)[ \t]*+(?:{_BEGINNING})+\Z|\S:\d{{1,9}}:(?:\d{{1,9}}:)?[ \t]*+\Z|{_OF_LOG}")


class CallPlace(NamedTuple):
    """Where a call begins."""

    in_line: bool = False
    """Text stands before it, on the same line."""
    follows_call: bool = False
    """A call was made on this line, so this is no example either."""
    mark: str = ""
    """What would end the quotation that begins directly before it; empty if none does."""
    of_file: bool = False
    """Nothing stands before it on the line but what lines of files, logs and diffs begin with."""


def place(text: str, at: int, *, in_line: bool, follows_call: bool) -> CallPlace:
    """Tell where a call begins, by the text before `at`."""
    before = text[max(0, at - CONTEXT) : at]
    if not in_line:
        return CallPlace()
    bare = before.rstrip(" \t")
    mark = MARKS.get(BAR if bare.endswith(BAR) else before[-1:], "")
    return CallPlace(True, follows_call, mark, _OF_FILE.search(before) is not None)
