"""Markup that is none of the message where a call follows it, or the end of the reply.

<tool_calls>        a wrapper that the call's own dialect does not have
</parameter>        a closing tag on a line of its own that closes nothing
<|im_end|>          the end of the turn, where a server shows special tokens
"""

from __future__ import annotations

from typing import Literal

from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.reading.beginning import Begun, begin_call
from vtc.dialects.reading.code import QuotedLine, open_line
from vtc.dialects.reading.context import Context, SaysText, Verdict
from vtc.dialects.reading.cursor import CONTEXT, WHITE, Found
from vtc.dialects.reading.line import MARKS
from vtc.dialects.reading.speech import Last
from vtc.dialects.reading.text import InText
from vtc.dialects.syntax.doubtful import SPECIAL
from vtc.dialects.syntax.scan import Scan
from vtc.events import Markup, Refusal


def doubt(inside: InText, found: Found) -> tuple[None, Found] | QuotedLine:
    """Keep such markup until it shows what it is."""
    context = inside.context
    if verdict := open_line(inside, found.start()):
        return verdict
    context.cursor.seek = found.end()
    return None, found


MOST = 4096
"""Characters of such markup that are held. More of it is text."""

SENTENCE_ENDS = (".", "!", "。", "！")
"""End a sentence that no special token belongs to; one after a question may be its answer."""


class InDoubt(SaysText):
    """Markup that is none of the message where a call follows it, which is held until that shows."""

    __slots__ = ("_bare", "_closed", "_closes", "_opens")

    def __init__(self, context: Context, found: Found) -> None:
        super().__init__(context)
        self._opens = self._closes = self._bare = self._closed = False
        self._note(found)

    @property
    def scan(self) -> Scan:
        return self.context.grammar.doubtful

    def _note(self, found: Found) -> None:
        kind = (found.lastgroup or "").rstrip("0123456789")
        self._opens |= kind == "wrapper"
        self._closes |= kind == "orphan"
        self._bare |= kind == "bare"
        self._closed = kind == "orphan"

    def more(self, found: Found) -> Literal[Verdict.UNBOUNDED] | None:
        """Keep more of it, up to the limit."""
        self._note(found)
        self.context.cursor.seek = found.end()
        if found.end() - self.context.cursor.at <= MOST:
            return None
        self.say(found.end())
        return Verdict.UNBOUNDED

    def call(self, found: Found) -> Begun:
        """Begin a call: it shares the call's fate."""
        self.context.speech.space.append(self.context.cursor.take(found.start()))
        return begin_call(self, found)

    def _is_alone(self) -> bool:
        """True for special tokens, of which no words speak.

        They are quoted in quotation marks. Behind a blank on their line they are spoken of, but at the end of the reply
        after the end of a sentence.
        """
        context, cursor = self.context, self.context.cursor
        if not SPECIAL.fullmatch(cursor.text, cursor.at, cursor.seek):
            return not context.speech.in_line
        before = cursor.text[max(0, cursor.at - CONTEXT) : cursor.at]
        mark = MARKS.get(before[-1:], "")
        quoted = bool(mark) and cursor.text.startswith(mark, cursor.seek)
        ends = cursor.is_blank(cursor.seek) and before.rstrip(WHITE).endswith(SENTENCE_ENDS)
        return not context.speech.in_line or not (quoted or (context.speech.space and not ends))

    def _is_empty(self) -> bool:
        """True for the beginning of a call or a section of which no more is there.

        Of special tokens, if no words speak of them; of a tag, where it ends the reply and follows a call.
        """
        context, cursor = self.context, self.context.cursor
        if self._opens and not context.speech.is_after_call:
            return False
        ends = context.may_mend and cursor.is_blank(cursor.seek)
        return ends if self._opens else (ends or self._closed) and self._is_alone()

    def decided(self) -> None:
        """Leave it out at the end of the reply; where text follows it is text, and so is what opens something."""
        context, cursor = self.context, self.context.cursor
        if (self._bare or self._opens) and self._is_empty():
            excerpt = cursor.text[cursor.at : cursor.seek][:EXCERPT]
            context.speech.refuse(Refusal("no call follows it", "", "", excerpt, malformed=False, left_out=True))
            context.speech.mark(Markup(cursor.take(cursor.seek)))
            return
        # Closing tags may be those of what was not read as a call, and alone they are all that the model said.
        closes = self._closes and (
            context.speech.tagged
            or context.speech.last is Last.NOTHING
            or (SPECIAL.fullmatch(cursor.text, cursor.at, cursor.seek) and not self._is_alone())
        )
        if self._opens or self._bare or closes or not context.may_mend or not cursor.is_blank(cursor.seek):
            self.say(cursor.seek)
            return
        if self._closes:
            excerpt = cursor.text[cursor.at :][:EXCERPT]
            context.speech.refuse(Refusal("it closes nothing", "", "", excerpt, malformed=False, left_out=True))
        context.speech.mark(Markup(cursor.take_all()))
