"""The states after a call: text, late closers, the next call, or text that shows that the call was quoted."""

from __future__ import annotations

import re
from typing import Literal

from msgspec.structs import replace

from vtc.dialects.reading import repairs
from vtc.dialects.reading.call_end import (
    MAX_EXCERPT_CHARACTERS,
    NOT_ALONE_REASON,
    QUOTED_REASON,
    CompleteCalls,
    deliver_all,
    quote_line,
    return_as_text,
)
from vtc.dialects.reading.context import WHITESPACE, Context, Lead, TextHandler, TokenMatch, Verdict
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.scan import Scan
from vtc.events import Call, Event, Markup, UnreadCall


class AfterCall:
    """The text directly after a call: late closers, and the next call of its section."""

    __slots__ = ("_section_open", "complete", "context", "pending", "syntax")

    def __init__(self, context: Context, complete: CompleteCalls) -> None:
        self.context = context
        self.complete = complete
        self.syntax = complete.syntax
        self.pending = complete.calls
        self._section_open = self.syntax.whole_reply and bool(self.syntax.closers.make_section_tail())
        """True if the closer of a section that must be the whole reply is still missing."""

    def scan(self) -> Scan:
        return self.context.grammar.scan_after_call(self.syntax, self.complete.is_unread)

    def scan_end(self) -> Scan:
        return self.context.grammar.whole_end

    def feed_plain(self, text: str) -> list[Event]:
        raise NotImplementedError  # text after a call is always scanned

    def release(self, reason: str) -> None:
        if self.pending:
            self._abandon(reason)

    def take_closer(self, token: TokenMatch) -> Literal[Verdict.WHOLE] | None:
        """Consume a closer of the section, or an optional closer of the call."""
        text = self.context.cursor.consume(token.end())
        if not self.syntax.whole_reply:
            self.context.output.emit(Markup(text))
            return None
        self._append_markup(text)
        self._section_open = False
        return Verdict.WHOLE

    def take_turn_end(self, token: TokenMatch) -> None:
        """Consume the marker that ends the model's reply."""
        self._append_markup(self.context.cursor.consume(token.end()))

    def _append_markup(self, text: str) -> None:
        """Append markup to the text of the last call."""
        last = self.pending[-1]
        self.pending[-1] = last + text if isinstance(last, str) else replace(last, raw=last.raw + text)

    def skip_invented_result(self, token: TokenMatch) -> None:
        """Drop a result that the model invented, and the text about it, because no call was executed yet."""
        context, cursor = self.context, self.context.cursor
        reason = "the model continues with an invented result"
        excerpt = cursor.text[token.start() :][:MAX_EXCERPT_CHARACTERS]
        context.output.add_unread_call(
            UnreadCall(reason, self.syntax.dialect.name, "", excerpt, malformed=False, left_out=True)
        )

    def resume_text(self) -> Literal[Verdict.WHOLE] | None:
        """Continue with text. Calls that must be the whole reply are abandoned, unless only white space follows."""
        context, cursor = self.context, self.context.cursor
        if not self.pending:
            if context.may_repair_end and not self.complete.is_unread:
                self._drop_partial_closer()
        elif cursor.is_blank(cursor.at):
            return Verdict.WHOLE
        else:
            self.abandon_pending()
        return None

    def end_reply(self, _: TokenMatch) -> None:
        """Deliver the calls of a section at the end of the reply, or abandon them if its closer is missing.

        A missing closer can be repaired; a missing closing fence cannot.
        """
        if self.syntax.fence:
            closed = not self._section_open and self.context.complete
        else:
            closed = not self._section_open or self._repair_at_end(Repair.MISSING_CLOSER)
        if closed:
            self.deliver_pending()
        else:
            self.abandon_pending()

    def deliver_pending(self) -> None:
        """Deliver the buffered calls."""
        deliver_all(self.context, self.pending)
        self.context.cursor.seek = self.context.cursor.at

    def abandon_pending(self) -> None:
        """Return a section of calls as text, because it is not the whole reply."""
        if self.syntax.fence or "```" in self.syntax.section:
            cut = self._section_open and not self.context.complete
            self._abandon("the reply was cut off inside its code block" if cut else NOT_ALONE_REASON)
        else:
            self._abandon("it is not the whole reply")

    def _abandon(self, reason: str) -> None:
        """Return the buffered calls as text; the report names the tool of the last one."""
        name = next((call.call.name for call in reversed(self.pending) if isinstance(call, Call)), "")
        return_as_text(self.context, self.syntax, name, [*self.pending], reason)

    def _repair_at_end(self, repair: Repair) -> bool:
        """Add a repair to the last call; return False if repairs are not allowed at the end of the reply."""
        last = self.pending[-1]
        if self.context.may_repair_end and isinstance(last, Call):
            self.pending[-1] = replace(last, repairs=(*last.repairs, str(repair)))
        return self.context.may_repair_end

    def _drop_partial_closer(self) -> None:
        """Drop a partial closing tag at the end of the reply."""
        cursor = self.context.cursor
        rest = cursor.text[cursor.at :]
        if rest.strip(WHITESPACE) and repairs.is_partial_closer(rest, self.syntax.closers.list_tags("")):
            self.context.output.emit(Markup(cursor.consume_all()))


class Invented(TextHandler):
    """A tool result that the model invented, up to the end of the reply."""

    __slots__ = ()

    def feed_plain(self, text: str) -> list[Event]:
        return [Markup(text)]

    def drop_text(self, end: int) -> None:
        if text := self.context.cursor.consume(end):
            self.context.output.emit(Markup(text))


class Spilled(TextHandler):
    """The rest of a broken call that was returned as text: no call begins in it, up to its closer."""

    __slots__ = ("_scan",)

    def __init__(self, context: Context, call: OpenCall) -> None:
        super().__init__(context)
        self._scan = context.grammar.scan_closer(call.syntax, call.name_in_markup)

    def scan(self) -> Scan:
        return self._scan

    def resume_text(self, token: TokenMatch) -> None:
        """Emit the closer, and continue with text."""
        self.emit_text(token.end())


MAX_WORDLESS_CHARACTERS = 256
"""Maximum characters other than words that are buffered after a call, up to the end of its line."""
_FIRST_CHARACTER = re.compile(r"\S")

type Decided = Literal[Verdict.ENDS, Verdict.INDENTED]
"""The decision: text continues, or the whole line is quoted."""


class Undecided(AfterCall):
    """The text after calls that are examples if words follow, on their line or anywhere.

    I run <tool_call>…</tool_call>.            punctuation, closing tags and special tokens are not words
    I run <tool_call>…</tool_call> now.        words of the same sentence: an example, like all calls on this line
    I look. <tool_call>…</tool_call> Then I …  a new sentence: a call
    """

    __slots__ = ()

    def scan(self) -> Scan:
        return self.context.grammar.scan_undecided(self.syntax)

    def take_late_closer(self, token: TokenMatch) -> Decided | None:
        """Consume an optional closer of the call."""
        if self.context.cursor.seek > self.context.cursor.at:
            return self.skip_wordless(token)
        self._append_markup(self.context.cursor.consume(token.end()))
        return None

    def skip_wordless(self, token: TokenMatch) -> Decided | None:
        """Skip punctuation, a closing tag or a special token, because words may still follow."""
        name = token[0].strip(" \t\r\n</>")
        if name in self.context.grammar.quoting and not self.complete.is_inside_clause:
            return self._decide_by_words()
        return self._continue_at(token.end())

    def handle_quotation_mark(self, token: TokenMatch) -> Decided | None:
        """Handle a quotation mark: it closes a quotation opened directly before the call, or it counts as a word."""
        if token[0].strip() == self.complete.place.closing_mark and self.context.cursor.seek == self.context.cursor.at:
            return self._quote_line()
        return self._continue_at(token.end()) if self.complete.is_inside_clause else self._decide_by_words()

    def handle_words_or_end(self) -> Decided | None:
        """Handle words, or the end of the reply."""
        cursor = self.context.cursor
        if cursor.final and cursor.is_blank(cursor.seek):
            return self._deliver()
        first = _FIRST_CHARACTER.search(cursor.text, cursor.seek)
        if first and self.complete.is_inside_clause and not first[0].isalnum():
            return self._continue_at(first.end())
        return self._decide_by_words(first[0] if first else "")

    def _continue_at(self, end: int) -> Decided | None:
        """Continue the search for words at `end`, up to the limit."""
        if end - self.context.cursor.at > MAX_WORDLESS_CHARACTERS:
            return self._decide_by_words()
        self.context.cursor.seek = end
        return None

    def add_text_between(self, end: int) -> None:
        """Buffer the text before the next call."""
        if text := self.context.cursor.consume(end):
            self.pending.append(text)

    def deliver_at_line_end(self, _: TokenMatch) -> tuple[None, CompleteCalls]:
        """Deliver the calls, because their line ends, or a marker of the model or an invented result follows."""
        self.deliver_pending()
        return None, self.complete._replace(calls=[])

    def _decide_by_words(self, first: str = "") -> Decided:
        """Decide if the calls are quoted, by the first character of the words after them.

        Layout or markers can make it sure that the calls are not quoted, except inside a clause that continues in lower
        case. Otherwise they are accepted only between two sentences.
        """
        calls, lead = self.complete, self.complete.place.lead
        if calls.sure and not calls.is_inside_clause:
            return self._deliver()
        if calls.sure:
            is_quoted = first.islower()
        else:
            begins_sentence = first.isalpha() and not first.islower()
            is_quoted = not (lead is Lead.SENTENCE and begins_sentence)
        return self._quote_line() if is_quoted or not self._are_offered() else self._deliver()

    def _are_offered(self) -> bool:
        """True if the tools of all calls are offered, or no tools are."""
        tools = self.context.tools
        return not tools or all(call.call.name in tools for call in self.pending if isinstance(call, Call))

    def _deliver(self) -> Literal[Verdict.ENDS]:
        self.deliver_pending()
        return Verdict.ENDS

    def _quote_line(self) -> Decided:
        """Return the calls as text; the rest of their line is quoted with them."""
        cursor = self.context.cursor
        rest = cursor.text[cursor.at :]
        self._abandon(QUOTED_REASON)
        cursor.seek = cursor.at
        is_next_line = "\n" in rest[: len(rest) - len(rest.lstrip(WHITESPACE))]
        return Verdict.ENDS if is_next_line else quote_line(self.context)
