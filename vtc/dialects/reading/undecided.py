"""The text after calls that are examples if words follow them: on their line, or at all.

I run <tool_call>…</tool_call>.          punctuation, closing tags and special tokens are no words
I run <tool_call>…</tool_call> now.      words: it is an example, and with it all calls of this line
"""

from __future__ import annotations

from typing import Literal

from vtc.dialects.reading.after_call import AfterCall, Made
from vtc.dialects.reading.context import Verdict
from vtc.dialects.reading.cursor import WHITE, Found
from vtc.dialects.syntax.scan import Scan

MOST_AFTER = 256
"""Characters after a call that are no words, up to the end of its line."""
QUOTED = "text follows it: it is quoted"

type Decided = Literal[Verdict.ENDS, Verdict.INDENTED]
"""The doubt ends: text goes on, or all of the line is quoted."""


class Undecided(AfterCall):
    """The text after calls that are examples if words follow them: on their line, or at all."""

    __slots__ = ()

    @property
    def scan(self) -> Scan:
        return self.context.grammar.undecided(self.syntax)

    def closes(self, found: Found) -> Decided | None:
        """Read a closer that the call could do without."""
        if self.context.cursor.seek > self.context.cursor.at:
            return self.no_word(found)
        self._add(self.context.cursor.take(found.end()))
        return None

    def no_word(self, found: Found) -> Decided | None:
        """Pass over punctuation, a closing tag or a special token: words may still follow."""
        cursor = self.context.cursor
        name = found[0].strip(" \t\r\n</>")
        if name in self.context.grammar.quoting or found.end() - cursor.at > MOST_AFTER:
            return self._words()
        cursor.seek = found.end()
        return None

    def mark(self, found: Found) -> Decided:
        """Read a quotation mark: it ends what began directly before the call, or a word follows."""
        if found[0].strip() == self.made.mark and self.context.cursor.seek == self.context.cursor.at:
            return self._quoted()
        return self._words()

    def goes_on(self) -> Decided:
        """Go on with words, or with the end of the reply."""
        if self.context.cursor.final and self.context.cursor.is_blank(self.context.cursor.seek):
            return self._called()
        return self._words()

    def keep(self, end: int) -> None:
        """Keep what stands before the next call."""
        if text := self.context.cursor.take(end):
            self.waiting.append(text)

    def decided(self, _: Found) -> tuple[None, Made]:
        """Deliver the calls: the line ends, or a call outside the section follows, or a marker of the model's."""
        self.whole()
        return None, self.made._replace(calls=[])

    def _words(self) -> Decided:
        return self._called() if self.made.sure else self._quoted()

    def _called(self) -> Literal[Verdict.ENDS]:
        self.whole()
        return Verdict.ENDS

    def _quoted(self) -> Decided:
        """Give the calls back; the rest of their line is quoted with them."""
        cursor = self.context.cursor
        rest = cursor.text[cursor.at :]
        self._refuse(QUOTED)
        cursor.seek = cursor.at
        return Verdict.ENDS if "\n" in rest[: len(rest) - len(rest.lstrip(WHITE))] else Verdict.INDENTED
