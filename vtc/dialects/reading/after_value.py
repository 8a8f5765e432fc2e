"""The text after a parameter's closer: structure confirms that the closer ends the value, anything else is content."""

from __future__ import annotations

from typing import Literal

from vtc.dialects.reading.call import InCall
from vtc.dialects.reading.call_end import Ended, buffer_call_text
from vtc.dialects.reading.context import Context, TokenMatch, Unread, Verdict
from vtc.dialects.reading.value import OpenedValue, OpenEnd, OpenValue, open_value
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.scan import Scan
from vtc.dialects.syntax.tokens import get_token_number

MAX_CLOSER_RUN = 16
"""Maximum consecutive closers of a parameter that count as one."""

type Resumed = tuple[Literal[Verdict.CONTENT], OpenValue] | Unread


class AfterValue(InCall):
    """The closers of a parameter and the text directly after them."""

    __slots__ = ("_closers", "_nesting", "value")

    def __init__(self, context: Context, value: OpenValue) -> None:
        # One call less than `super().__init__`, for each parameter and each of its closers.
        self.context, self.call, self.value = context, value.call, value
        self._nesting = value.nesting
        self._closers = 1
        """Number of consecutive closers up to the current position."""

    def scan(self) -> Scan:
        call, value = self.call, self.value
        return self.context.grammar.scan_after_value(call.syntax, call.name_in_markup, value.pattern, value.key)

    def count_closer(self, token: TokenMatch) -> Resumed | None:
        """Count one more closer. A run is one closer, except quotation marks, because a value may end with one."""
        if self._nesting.paired or self._closers == MAX_CLOSER_RUN or self.call.syntax.parameters.ends_with_quote:
            return self.resume_value()
        self._closers += 1
        self.context.cursor.seek = token.end()
        return None

    def resume_value(self) -> Resumed:
        """Treat the closers as content, and continue in the value; abandon the call if the parameter is a guess."""
        if self.value.is_guess:
            return self.abandon_without_parameters()
        self.call.stop_pieces()
        self._nesting.balance -= self._closers - 1
        return Verdict.CONTENT, self.value

    def handle_next_call(self, token: TokenMatch) -> Ended | Resumed:
        """Handle a call's opener after the closer.

        If calls need no closer, it is the next call. Otherwise it is content, unless the closers of both calls are
        doubled or the repair at the end of the reply finds that it was the next call.
        """
        if self.call.syntax.closers.are_optional and not (self._nesting.paired or self.value.is_guess):
            self._end_value(last=True)
            return self.end_call(None)
        after = token.groupdict().get(f"next_{token.lastgroup}")
        if after and self._closers > 1:
            return self.end_call_at_last_tag(token)
        if not self._nesting.paired:
            after = after or token[0].lstrip()
            ends = self.call.ends
            ends.next_call = ends.offset_after(token.end() - len(after) - self.context.cursor.at)
            ends.has_no_value = False
        return self.resume_value()

    def handle_garbled_opener(self, token: TokenMatch) -> Resumed:
        """Handle a garbled parameter opener: the value may have ended before it.

        A closing tag without its slash at the end of the reply can look the same.
        """
        cursor, closer = self.context.cursor, self.call.syntax.closers.unslash(self.call.written)
        at = token.end() - len(token[0].lstrip())
        ends = closer and cursor.final and cursor.text.startswith(closer, at) and cursor.is_blank(at + len(closer))
        if ends or self._nesting.paired or self._nesting.calls:
            return self.resume_value()
        return self.abandon("the opening tag of a parameter is garbled")

    def open_next_parameter(self, token: TokenMatch) -> OpenedValue | Resumed:
        """Handle a parameter's opener after the closer."""
        if self._nesting.paired:
            self.value.opener_followed = True
            self._nesting.parameter_followed |= not self._nesting.calls
            return self.resume_value()
        param = get_token_number(token.lastgroup)
        key = self.call.syntax.dialect.unescape_key(token[f"key_{token.lastgroup}"])
        undeclared = self.call.syntax.parameters.is_element(param) and key not in self.call.named.declared
        if self.value.is_guess and self.call.syntax.parameters.is_element(self.value.pattern):
            return self.abandon_without_parameters()
        if undeclared or self.call.parameters.is_content(key):
            return self.resume_value()
        self._end_value()
        return open_value(self.context, self.call, token)

    def close_call(self, token: TokenMatch) -> Ended | Resumed:
        """End the call, even if the closer pairs with an opener in the value, unless a quoted call is open."""
        if self.value.is_guess and not self.value.only:
            return self.abandon_without_parameters()
        if self._nesting.paired and self._nesting.calls:
            self.call.note_possible_end(token.end() - self.context.cursor.at)
            return self.resume_value()
        self.call.parameters.unsure |= self._nesting.paired and self._nesting.parameter_followed
        self._end_value(last=True)
        return self.end_call(token)

    def end_call_at_last_tag(self, token: TokenMatch) -> Ended | Resumed:
        """Handle another closing tag after several closers, one of which takes the place of the call's."""
        if self._closers == 1 or self.value.is_guess or not self.context.lenient:
            return self.resume_value()
        self.call.repairs[Repair.WRONG_CLOSER] = None
        self._end_value(last=True)
        return self.end_call(token)

    def end_call_at_wrong_closer(self, token: TokenMatch) -> Ended | Resumed:
        """Handle the call's closing tag with a sibling's closing tag instead of its wrapper's."""
        if self.value.is_guess or self._nesting.paired or self._nesting.calls or not self.context.lenient:
            return self.resume_value()
        self.call.repairs[Repair.WRONG_CLOSER] = None
        return self.close_call(token)

    def handle_text_or_end(self) -> Ended | Resumed:
        """Handle text after a closer, or the end of the reply, at which only closers of the call are missing."""
        cursor = self.context.cursor
        in_doubt = self._nesting.paired or self.value.is_guess or self.call.syntax.parameters.ends_with_quote
        ended = cursor.final and cursor.is_blank(cursor.seek) and not in_doubt
        is_open = self.call.syntax.closers.are_optional and not in_doubt and self.context.complete
        if not ended or not (is_open or self.repair_at_end(Repair.MISSING_CLOSER)):
            self._note_open_end(in_doubt=in_doubt)
            return self.resume_value()
        self._end_value(last=True)
        buffer_call_text(self.context, self.call, cursor.consume_all())
        return self.end_call(None)

    def _note_open_end(self, *, in_doubt: bool) -> None:
        """Record that text follows a closer. A call that needs no closer ends there if there is only one such place."""
        if self.call.syntax.closers.are_optional and not (in_doubt or self.call.text.spilled):
            size = len(self.call.text.body) + self.context.cursor.seek - self.context.cursor.at
            balance, doubled = self._nesting.balance + 1, self._closers > 1
            self.value.open_ends.append(OpenEnd(len(self.call.parameters.value), size, balance, doubled))

    def _end_value(self, *, last: bool = False) -> None:
        """End the value at the closers; `last` if no other parameter follows, so that the call ends, too."""
        if last and self.value.only:
            self.call.parameters.rename(self.value.only)
        # The closer that ends the value is not inside it.
        self.call.parameters.balance += self._nesting.balance + 1
        self.call.end_parameter(doubled=self._closers > 1)
        buffer_call_text(self.context, self.call, self.context.cursor.consume(self.context.cursor.seek))
