"""The value of a parameter, and the closers that may end it.

<parameter=command>ls</parameter>     state VALUE: a closer, which may also be content of the value
</parameter>                          state CLOSING: one more closer, which counts as the same one
<parameter=timeout>5…                 state CLOSING: another parameter begins, so the value has ended
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from vtc.dialects.reading.call import ENDS_INSIDE_REASON, NO_PARAMETER_REASON, InCall
from vtc.dialects.reading.call_end import (
    Damaged,
    Ended,
    abandon_call,
    buffer_call_text,
)
from vtc.dialects.reading.context import Context, TokenMatch, Unread, Verdict
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.syntax.forms import is_self_closing
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

    __slots__ = ("_next_call_follows", "_open", "_parameters", "balance", "calls", "paired", "parameter_followed")

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
        self.paired = False
        """True if the last parameter closer pairs with an opener in the value, so that it may be content."""

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

    def close_parameter(self) -> None:
        """Pair a parameter's closer with an opener in the value, if one is open."""
        self.balance -= 1
        self.paired = self._parameters > 0
        if not self.paired:
            return
        while self._open.pop() != OPEN_PARAMETER:
            self.calls -= 1
        self._parameters -= 1

    def close_call(self) -> int | None:
        """Pair a call's closer with an opener in the value; return the kind of the opener, None if no call is open."""
        if not self.calls:
            return None
        while (kind := self._open.pop()) == OPEN_PARAMETER:
            self._parameters -= 1
        self.calls -= 1
        return kind


MAX_UNDECLARED_PARAMETERS = 32
"""Maximum undeclared parameters of one call if each has a separate closing tag, because each needs an expression."""
MAX_GUESS_CHARACTERS = 1000
"""Maximum characters of a value that may not be the value of a parameter."""
SWALLOWED_REASON = "a parameter may have swallowed another call, as its closing tag is missing"


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


@dataclass(slots=True)
class OpenValue:
    """The value that is being parsed, and its parameter."""

    call: OpenCall
    pattern: int
    """The number of the parameter's pattern among those of the dialect."""
    key: str
    """The parameter's name if its closing tag contains the name; otherwise empty."""
    is_guess: bool
    """True if it may not be a parameter, because the dialect uses bare tags and no declared one was read yet."""
    only: str | None
    """The tool's only parameter, to which the value belongs if no other parameter follows; None if it has several."""
    nesting: ValueNesting = field(default_factory=ValueNesting)
    open_ends: list[OpenEnd] = field(default_factory=list)
    """Positions at which a call of a dialect without required closers may have ended."""
    opener_followed: bool = False
    """True if a parameter's opener followed a paired closer: if they do not pair, the value ended there."""


type OpenedValue = tuple[None, OpenValue] | tuple[Literal[Verdict.GUESS], OpenValue] | Unread
type Closing = tuple[None, OpenValue]


def open_value(context: Context, call: OpenCall, token: TokenMatch) -> OpenedValue:
    """Begin a parameter. The verdict is GUESS if its tag may be text, UNREAD if it cannot be a parameter."""
    # Step 1: Decide if the tag is a parameter of the call.
    name, groups = token.lastgroup or "", token.groupdict()
    key, param = call.syntax.dialect.unescape_key(groups[f"key_{name}"]), get_token_number(name)
    guess = call.parameters.is_guess(key)
    element = call.syntax.parameters.is_element(param)
    unknown = element and key not in call.named.declared
    if (guess and not call.named.declared) or (unknown and not call.only_parameter):
        return abandon_call(context, call, NO_PARAMETER_REASON)
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
    opened = OpenValue(call, param, key if closer_names_key else "", guess, only)
    return (Verdict.GUESS, opened) if guess else (None, opened)


class InValue(InCall):
    """The value of a parameter, up to a closing tag that may end it."""

    __slots__ = ("value",)

    def __init__(self, context: Context, value: OpenValue) -> None:
        # One call less than `super().__init__`, for each parameter and each of its closers.
        self.context, self.call, self.value = context, value.call, value

    def scan(self) -> Scan:
        call, value = self.call, self.value
        return self.context.grammar.scan_value(call.syntax, call.name_in_markup, value.pattern, value.key)

    def feed_plain(self, text: str) -> list[Event]:
        call = self.call
        buffer_call_text(self.context, call, text, value=True)
        if call.pieces is None and not call.text.spilled:
            return []
        self.emit_piece()
        return self.context.output.take()

    def buffer_text(self, end: int) -> None:
        if text := self.context.cursor.consume(end):
            buffer_call_text(self.context, self.call, text, value=True)
        self.emit_piece()

    def skip_quoted_parameter(self, token: TokenMatch) -> None:
        """Skip a parameter's opener inside the value; unless self-closing, it pairs with a later closer."""
        self.call.stop_pieces()
        if self.context.cursor.is_blank_to(token.start()):
            self._note_opener(token[0])
        if not is_self_closing(token[0]):
            self.value.nesting.open_parameter()
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
            self.value.nesting.open_call()
        self.context.cursor.seek = token.end()

    def handle_call_closer(self, token: TokenMatch) -> Damaged | Unread | None:
        """Handle a closer of the call. It never ends the value, because only a parameter's closer does."""
        kind = self.value.nesting.close_call()
        if kind is None and self.value.open_ends:
            # The call has a closer, so its end before that is ambiguous.
            self.value.open_ends.append(self.value.open_ends[0])
        return self._close_call(kind, token.end())

    def handle_closer_and_call(self, token: TokenMatch) -> Damaged | Unread | None:
        """Handle a closer of the call with another call directly after it."""
        kind, end = self.value.nesting.close_call(), token.start(f"next_{token.lastgroup}")
        if kind is None:
            self.value.nesting.note_next_call()
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
        if self.value.opener_followed:
            self.call.note_possible_end(end - self.context.cursor.at)
        if kind != OPEN_NEXT_CALL:
            self.context.cursor.seek = end
            return None
        buffer_call_text(self.context, self.call, self.context.cursor.consume(end))
        if not self.context.lenient or self.call.text.spilled:
            return self.abandon(SWALLOWED_REASON)
        self.call.ends.swallowed = self.call.ends.offset_after()
        return self.mark_damaged(SWALLOWED_REASON)

    def begin_closing(self, token: TokenMatch) -> Closing:
        """Handle a closer of the parameter; the next token decides whether it ends the value."""
        self.buffer_text(token.start())
        self.value.nesting.close_parameter()
        self.context.cursor.seek = token.end()
        return None, self.value

    def end_reply(self) -> Damaged | Ended:
        """Handle the end of the reply: end a call that needs no closer, or try to repair the call."""
        ends, spilled = self.value.open_ends, self.call.text.spilled
        if len(ends) == 1 and self.context.complete and not spilled:
            return self._end_at(ends[0])
        if self.context.may_repair_end and not spilled:
            return self.mark_damaged(ENDS_INSIDE_REASON)
        return self.abandon_unfinished()

    def _end_at(self, end: OpenEnd) -> Ended:
        """End the call at `end`; the rest is text."""
        call, body = self.call, self.call.text.body
        call.text.replace_body(body[: end.body])
        call.parameters.truncate_value(end.value)
        call.parameters.balance += end.balance
        call.end_parameter(doubled=end.doubled)
        self.context.cursor.push_back(body[end.body :])
        return self.end_call(None)


class InGuess(InValue):
    """The value of a possible parameter: it is short and has no tags."""

    __slots__ = ("_size",)

    def __init__(self, context: Context, value: OpenValue) -> None:
        super().__init__(context, value)
        self._size = 0
        """Number of characters of the value."""

    def scan(self) -> Scan:
        return self.context.grammar.scan_guessed_value(self.call.syntax, self.value.pattern, self.value.key)

    def buffer_guess(self, end: int) -> Unread | None:
        """Buffer text of a possible value; abandon the call if it is too long."""
        end = min(end, self.context.cursor.at + MAX_GUESS_CHARACTERS - self._size)
        self._size += end - self.context.cursor.at
        self.buffer_text(end)
        return self.abandon_without_parameters() if self._size == MAX_GUESS_CHARACTERS else None

    def abandon_guess(self, token: TokenMatch) -> Unread:
        """Abandon the call, because the possible value contains a tag."""
        return self.buffer_guess(token.start()) or self.abandon_without_parameters()

    def begin_closing_guess(self, token: TokenMatch) -> Closing | Unread:
        """Handle a closer of the parameter, if the value is short enough."""
        return self.buffer_guess(token.start()) or self.begin_closing(token)
