"""The text that is read: forward only, with no more of it kept than a token may need.

Everything before `at` is consumed. From there to the end the text is held back, and that is only what the expression of
the current state says may still become a token.
"""

from __future__ import annotations

import re

from vtc.dialects.syntax.partial import INDENT

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
