"""The value of a parameter, and the closers that may end it.

<parameter=command>ls</parameter>     state VALUE: a closer, which may also be content of the value
</parameter>                          state CLOSING: one more closer, which counts as the same one
<parameter=timeout>5…                 state CLOSING: another parameter begins, so the value has ended
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from vtc.dialects.reading.after_call import (
    Damaged,
    Ended,
    abandon_call,
    buffer_call_text,
    complete_call,
    emit_piece,
    mark_damaged,
    repair_at_end,
)
from vtc.dialects.reading.context import Context, TokenMatch, Unread, Verdict
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.forms import is_self_closing
from vtc.dialects.syntax.grammar import unslash_closer
from vtc.dialects.syntax.scan import Scan
from vtc.dialects.syntax.tokens import get_token_number
from vtc.events import Event

OPEN_PARAMETER = 0
OPEN_CALL = 1
OPEN_NEXT_CALL = 2
"""A call directly after a closer that nothing opened: it may be the reply's next call."""


class ValueNesting:
    """The parameters and calls that are quoted and still open inside one value.

        <parameter=content>
        Write <function=bash><parameter=command>ls</parameter></function>     opened and closed in it: content
        </parameter>                                                          nothing in it opened this: a closer

    A closer pairs with the last open opener of its kind. Openers in between were words of the text, as in "write
    <parameter=x> in it", and are discarded.
    """

    __slots__ = ("_next_call_follows", "_open", "_parameters", "balance", "calls", "parameter_followed")

    def __init__(self) -> None:
        self._open: list[int] = []
        self._parameters = 0
        self._next_call_follows = False
        self.calls = 0
        """Number of open calls."""
        self.balance = 0
        """Parameter openers minus parameter closers, whether or not they pair."""
        self.parameter_followed = False
        """True if a parameter directly followed a quoted parameter closer, outside of a quoted call."""

    def open_parameter(self) -> None:
        self._open.append(OPEN_PARAMETER)
        self._parameters += 1
        self.balance += 1

    def open_call(self) -> None:
        self._open.append(OPEN_NEXT_CALL if self._next_call_follows else OPEN_CALL)
        self._next_call_follows = False
        self.calls += 1

    def note_next_call(self) -> None:
        """Record that the next call opener directly follows a closer that nothing opened."""
        self._next_call_follows = True

    def close_parameter(self) -> bool:
        """Pair a parameter's closer with an opener in the value; return False if none is open."""
        self.balance -= 1
        if not self._parameters:
            return False
        while self._open.pop() != OPEN_PARAMETER:
            self.calls -= 1
        self._parameters -= 1
        return True

    def close_call(self) -> int | None:
        """Pair a call's closer with an opener in the value; return the kind of the opener, None if no call is open."""
        if not self.calls:
            return None
        while (kind := self._open.pop()) == OPEN_PARAMETER:
            self._parameters -= 1
        self.calls -= 1
        return kind


MAX_CLOSER_RUN = 16
"""Maximum consecutive closers of a parameter that count as one."""
MAX_UNDECLARED_PARAMETERS = 32
"""Maximum undeclared parameters of one call if each has a separate closing tag, because each needs an expression."""
MAX_GUESS_CHARACTERS = 1000
"""Maximum characters of a value that may not be the value of a parameter."""
SWALLOWED_REASON = "a parameter may have swallowed another call, as its closing tag is missing"


type OpenedParam = tuple[None, OpenParam] | tuple[Literal[Verdict.GUESS], OpenParam] | Unread
type Content = Literal[Verdict.CONTENT] | Unread


class OpenParam(NamedTuple):
    """The parameter whose value is being parsed."""

    call: OpenCall
    pattern: int
    """The number of its pattern among the dialect's patterns for parameters."""
    key: str
    """The parameter's name if its closing tag contains the name; otherwise empty."""
    guess: bool
    """True if it may not be a parameter, because the dialect uses bare tags and no declared one was read yet."""
    only: str | None
    """The tool's only parameter, to which the value belongs if no other parameter follows; None if it has several."""


def open_value(context: Context, call: OpenCall, token: TokenMatch) -> OpenedParam:
    """Begin a parameter. The verdict is GUESS if its tag may be text, UNREAD if it cannot be a parameter."""
    # Step 1: Decide if the tag is a parameter of the call.
    name, groups = token.lastgroup or "", token.groupdict()
    key, param = call.syntax.dialect.unescape_key(groups[f"key_{name}"]), get_token_number(name)
    guess = call.parameters.is_guess(key)
    element = call.syntax.parameters.is_element(param)
    unknown = element and key not in call.named.declared
    if (guess and not call.named.declared) or (unknown and not call.only_parameter):
        return abandon_without_parameters(context, call)
    # If every tag may be a parameter, an indented tag is probably part of a document.
    is_indented = token[0].lstrip("\r\n")[:1].isspace()
    only = None if guess and is_indented else call.only_parameter
    guess = guess or unknown
    # Step 2: Begin its value.
    buffer_call_text(context, call, context.cursor.consume(token.end()))
    kind = groups.get(f"string_{name}") or groups.get(f"type_{name}")
    call.parameters.begin(key, param, kind in ("true", "string", "raw") if kind else None)
    if call.parameters.undeclared > MAX_UNDECLARED_PARAMETERS and not call.syntax.parameters.shares_closer:
        return abandon_call(
            context, call, f"it has more than {MAX_UNDECLARED_PARAMETERS} parameters that its tool does not declare"
        )
    closer_names_key = element or not call.syntax.parameters.shares_closer
    opened = OpenParam(call, param, key if closer_names_key else "", guess, only)
    return (Verdict.GUESS, opened) if guess else (None, opened)


def abandon_without_parameters(context: Context, call: OpenCall) -> Unread:
    """Abandon a call because its opening tag is not followed by a parameter."""
    return abandon_call(context, call, "no parameter follows the opening tag")


class OpenEnd(NamedTuple):
    """A position at which a call may end without a closer, because text follows a parameter's closer."""

    value: int
    """Characters of the value before it."""
    body: int
    """Characters of the call's body before it."""
    balance: int
    """Parameter openers minus closers in the value before it."""
    doubled: bool
    """True if the value has several closers there."""


class InValue:
    """One parameter, from its opening tag to a closing tag with structure after it."""

    __slots__ = (
        "_closers",
        "_guess",
        "_key",
        "_nesting",
        "_only",
        "_open_ends",
        "_opener_followed",
        "_paired",
        "_param",
        "_size",
        "call",
        "context",
    )

    def __init__(self, context: Context, param: OpenParam) -> None:
        self.context = context
        self.call, self._param, self._key, self._guess, self._only = param
        self._nesting = ValueNesting()
        self._size = 0
        """Number of characters of the value, while its parameter is a guess."""
        self._closers = 0
        """Number of consecutive closers up to the current position."""
        self._paired = False
        """True if the closer pairs with an opener in the value, so that it may be content."""
        self._open_ends: list[OpenEnd] = []
        """Positions at which a call of a dialect without required closers may have ended."""
        self._opener_followed = False
        """True if a parameter's opener followed a paired closer: if they do not pair, the value ended there."""

    def scan(self) -> Scan:
        return self.context.grammar.scan_value(self.call.syntax, self.call.name_in_markup, self._param, self._key)

    def scan_guess(self) -> Scan:
        return self.context.grammar.scan_guessed_value(self.call.syntax, self._param, self._key)

    def scan_closing(self) -> Scan:
        return self.context.grammar.scan_after_value(self.call.syntax, self.call.name_in_markup, self._param, self._key)

    def feed_plain(self, text: str) -> list[Event]:
        call = self.call
        buffer_call_text(self.context, call, text, value=True)
        if call.pieces is None and not call.text.spilled:
            return []
        emit_piece(self.context, call)
        return self.context.output.take()

    def release(self, reason: str) -> None:
        abandon_call(self.context, self.call, reason)

    def buffer_text(self, end: int) -> None:
        if text := self.context.cursor.consume(end):
            buffer_call_text(self.context, self.call, text, value=True)
        emit_piece(self.context, self.call)

    def buffer_guess(self, end: int) -> Unread | None:
        """Buffer text of a possible value; abandon the call if it is too long."""
        end = min(end, self.context.cursor.at + MAX_GUESS_CHARACTERS - self._size)
        self._size += end - self.context.cursor.at
        self.buffer_text(end)
        return abandon_without_parameters(self.context, self.call) if self._size == MAX_GUESS_CHARACTERS else None

    def skip_quoted_parameter(self, token: TokenMatch) -> None:
        """Skip a parameter's opener inside the value; unless self-closing, it pairs with a later closer."""
        self.call.stop_pieces()
        if self.context.cursor.is_blank_to(token.start()):
            self._note_opener(token[0])
        if not is_self_closing(token[0]):
            self._nesting.open_parameter()
        self.context.cursor.seek = token.end()

    def _note_opener(self, opener: str) -> None:
        """Record an opening tag at the beginning of the value: it may be the parameter's own, written twice."""
        parameters = self.call.parameters
        if parameters.is_empty and self.call.text.ends_with(opener.rstrip()):
            parameters.opens_twice = True

    def skip_quoted_call(self, token: TokenMatch) -> None:
        """Skip the opener of a call inside the value."""
        self.call.parameters.quotes_calls = True
        self.skip_quoted_element(token)

    def skip_quoted_element(self, token: TokenMatch) -> None:
        """Skip an opening tag that pairs with a closer of the call, unless it is self-closing."""
        self.call.stop_pieces()
        if not is_self_closing(token[0]):
            self._nesting.open_call()
        self.context.cursor.seek = token.end()

    def handle_call_closer(self, token: TokenMatch) -> Damaged | Unread | None:
        """Handle a closer of the call. It never ends the value, because only a parameter's closer does."""
        kind = self._nesting.close_call()
        if kind is None and self._open_ends:
            self._open_ends.append(self._open_ends[0])  # the call has a closer, so its end before that is ambiguous
        return self._close_call(kind, token.end())

    def handle_closer_and_call(self, token: TokenMatch) -> Damaged | Unread | None:
        """Handle a closer of the call with another call directly after it."""
        kind, end = self._nesting.close_call(), token.start(f"next_{token.lastgroup}")
        if kind is None:
            self._nesting.note_next_call()
            ends = self.call.ends
            ends.next_call = ends.offset_after(end - self.context.cursor.at)
            ends.has_no_value = self.call.parameters.is_empty and self.context.cursor.is_blank_to(token.start())
        return self._close_call(kind, end)

    def _close_call(self, kind: int | None, end: int) -> Damaged | Unread | None:
        """Continue after a call's closer in the value, unless it closes a call that directly followed another closer.

        Then the value may have swallowed the next call. The rest of the reply decides if the value contains both, or if
        the parameter's closer is missing.
        """
        self.call.stop_pieces()
        if self._opener_followed:
            self.call.note_possible_end(end - self.context.cursor.at)
        if kind != OPEN_NEXT_CALL:
            self.context.cursor.seek = end
            return None
        buffer_call_text(self.context, self.call, self.context.cursor.consume(end))
        if not self.context.lenient or self.call.text.spilled:
            return abandon_call(self.context, self.call, SWALLOWED_REASON)
        self.call.ends.swallowed = self.call.ends.offset_after()
        return mark_damaged(self.call, SWALLOWED_REASON)

    def begin_closing(self, token: TokenMatch) -> Unread | None:
        """Handle a closer of the parameter; the next token decides whether it ends the value."""
        if self._guess and (verdict := self.buffer_guess(token.start())):
            return verdict
        self.buffer_text(token.start())
        self._paired = self._nesting.close_parameter()
        self._closers = 1
        self.context.cursor.seek = token.end()
        return None

    def count_closer(self, token: TokenMatch) -> Content | None:
        """Count one more closer. A run is one closer, except quotation marks, because a value may end with one."""
        if self._paired or self._closers == MAX_CLOSER_RUN or self.call.syntax.ends_with_quote:
            return self.resume_value()
        self._closers += 1
        self.context.cursor.seek = token.end()
        return None

    def resume_value(self) -> Content:
        """Treat the closers as content, and continue in the value; abandon the call if the parameter is a guess."""
        if self._guess:
            return abandon_without_parameters(self.context, self.call)
        self.call.stop_pieces()
        self._nesting.balance -= self._closers - 1
        return Verdict.CONTENT

    def abandon_guess(self, token: TokenMatch) -> Unread:
        """Abandon the call, because the possible value contains a tag."""
        return self.buffer_guess(token.start()) or abandon_without_parameters(self.context, self.call)

    def handle_next_call(self, token: TokenMatch) -> Ended | Content:
        """Handle a call's opener after the closer.

        If calls need no closer, it is the next call. Otherwise it is content, unless the closers of both calls are
        doubled or the repair at the end of the reply finds that it was the next call.
        """
        if self.call.syntax.may_lack_closer and not (self._paired or self._guess):
            self._end_value(last=True)
            return complete_call(self.context, self.call, None)
        after = token.groupdict().get(f"next_{token.lastgroup}")
        if after and self._closers > 1:
            return self.end_call_at_last_tag(token)
        if not self._paired:
            after = after or token[0].lstrip()
            ends = self.call.ends
            ends.next_call = ends.offset_after(token.end() - len(after) - self.context.cursor.at)
            ends.has_no_value = False
        return self.resume_value()

    def handle_garbled_opener(self, token: TokenMatch) -> Content:
        """Handle a garbled parameter opener: the value may have ended before it.

        A closing tag without its slash at the end of the reply can look the same.
        """
        cursor, closer = self.context.cursor, unslash_closer(self.call.syntax, self.call.written)
        at = token.end() - len(token[0].lstrip())
        ends = closer and cursor.final and cursor.text.startswith(closer, at) and cursor.is_blank(at + len(closer))
        if ends or self._paired or self._nesting.calls:
            return self.resume_value()
        return abandon_call(self.context, self.call, "the opening tag of a parameter is garbled")

    def open_next_parameter(self, token: TokenMatch) -> OpenedParam | Content:
        """Handle a parameter's opener after the closer."""
        if self._paired:
            self._opener_followed = True
            self._nesting.parameter_followed |= not self._nesting.calls
            return self.resume_value()
        param = get_token_number(token.lastgroup)
        key = self.call.syntax.dialect.unescape_key(token[f"key_{token.lastgroup}"])
        undeclared = self.call.syntax.parameters.is_element(param) and key not in self.call.named.declared
        if self._guess and self.call.syntax.parameters.is_element(self._param):
            return abandon_without_parameters(self.context, self.call)
        if undeclared or self.call.parameters.is_content(key):
            return self.resume_value()
        self._end_value()
        return open_value(self.context, self.call, token)

    def end_call(self, token: TokenMatch) -> Ended | Content:
        """End the call, even if the closer pairs with an opener in the value, unless a quoted call is open."""
        if self._guess and not self._only:
            return abandon_without_parameters(self.context, self.call)
        if self._paired and self._nesting.calls:
            self.call.note_possible_end(token.end() - self.context.cursor.at)
            return self.resume_value()
        self.call.parameters.unsure |= self._paired and self._nesting.parameter_followed
        self._end_value(last=True)
        return complete_call(self.context, self.call, token)

    def end_call_at_last_tag(self, token: TokenMatch) -> Ended | Content:
        """Handle another closing tag after several closers, one of which takes the place of the call's."""
        if self._closers == 1 or self._guess or not self.context.lenient:
            return self.resume_value()
        self.call.repairs[Repair.WRONG_CLOSER] = None
        self._end_value(last=True)
        return complete_call(self.context, self.call, token)

    def end_call_at_wrong_closer(self, token: TokenMatch) -> Ended | Content:
        """Handle the call's closing tag with a sibling's closing tag instead of its wrapper's."""
        if self._guess or self._paired or self._nesting.calls or not self.context.lenient:
            return self.resume_value()
        self.call.repairs[Repair.WRONG_CLOSER] = None
        return self.end_call(token)

    def handle_text_or_end(self) -> Ended | Content:
        """Handle text after a closer, or the end of the reply, at which only closers of the call are missing."""
        cursor = self.context.cursor
        in_doubt = self._paired or self._guess or self.call.syntax.ends_with_quote
        ended = cursor.final and cursor.is_blank(cursor.seek) and not in_doubt
        is_open = self.call.syntax.may_lack_closer and not in_doubt and self.context.complete
        if not ended or not (is_open or repair_at_end(self.context, self.call, Repair.MISSING_CLOSER)):
            self._note_open_end(in_doubt=in_doubt)
            return self.resume_value()
        self._end_value(last=True)
        buffer_call_text(self.context, self.call, cursor.consume_all())
        return complete_call(self.context, self.call, None)

    def _note_open_end(self, *, in_doubt: bool) -> None:
        """Record that text follows a closer. A call that needs no closer ends there if there is only one such place."""
        if self.call.syntax.may_lack_closer and not (in_doubt or self.call.text.spilled):
            size = len(self.call.text.body) + self.context.cursor.seek - self.context.cursor.at
            balance, doubled = self._nesting.balance + 1, self._closers > 1
            self._open_ends.append(OpenEnd(len(self.call.parameters.value), size, balance, doubled))

    @property
    def open_end(self) -> OpenEnd | None:
        """Return the only position at which the call may end without a closer; None if there is none or several."""
        return self._open_ends[0] if len(self._open_ends) == 1 else None

    def end_open_at(self, end: OpenEnd) -> Ended:
        """End the call at `end`; the rest is text."""
        call, body = self.call, self.call.text.body
        call.text.replace_body(body[: end.body])
        call.parameters.truncate_value(end.value)
        call.parameters.balance += end.balance
        call.end_parameter(doubled=end.doubled)
        self.context.cursor.push_back(body[end.body :])
        return complete_call(self.context, call, None)

    def _end_value(self, *, last: bool = False) -> None:
        """End the value at the closers; `last` if no other parameter follows, so that the call ends, too."""
        if last and self._only:
            self.call.parameters.rename(self._only)
        # The closer that ends the value is not inside it.
        self.call.parameters.balance += self._nesting.balance + 1
        self.call.end_parameter(doubled=self._closers > 1)
        buffer_call_text(self.context, self.call, self.context.cursor.consume(self.context.cursor.seek))
