"""A call, its self-delimiting arguments, the closers after them, and a call that broke.

`after_opener.py` and `value.py` have the states of arguments between tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.arguments.python import PythonBody
from vtc.dialects.reading.call_end import (
    Completed,
    Damaged,
    Ended,
    OnQuotedLine,
    Spills,
    abandon_call,
    accept_calls,
    buffer_call_text,
    choose_piece_kind,
    complete_call,
)
from vtc.dialects.reading.completion import repair_calls
from vtc.dialects.reading.context import Context, TokenMatch, Unread, Verdict
from vtc.dialects.reading.open_call import CallBody, OpenCall
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.scan import Scan, get_token_kind, make_search_scan
from vtc.dialects.syntax.tokens import TokenKind
from vtc.events import Call, Event

NEVER = make_search_scan(())
ENDS_INSIDE_REASON = "the reply ends inside it"
NO_CLOSER_REASON = "its closing tag is missing"
NO_PARAMETER_REASON = "no parameter follows the opening tag"
MORE_ON_LINE_REASON = "more text is on its line"

_PROSE = re.compile(r"[ \t\r]*\n\s*[^\W\d_]")  # used with match
"""Words on the line after a call without a closer."""
_BREAK_OFF_POINT = re.compile(r"[}\]][ \t\r]{0,256}\n\s{0,256}\Z")
"""The end of broken JSON at which another call may begin: a bracket and a line break. The end of a string does not
count, because its quotes may not be escaped."""
_PYTHON_OBJECT = re.compile(r"[\[{\s]+'")  # used with match
"""The beginning of an object in Python's notation instead of JSON."""

type SearchText = Callable[[str], object]
_IN_STRING: SearchText = re.compile(r'["\\\x00-\x1f]').search
"""Finds characters that are more than text in a JSON string."""
FIND_STRING_END: SearchText = re.compile(r'(?!(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+\Z)').match  # used with match
"""Matches if a text may hold more than JSON string content and complete escapes."""


type BeginsJson = tuple[Literal[Verdict.JSON], OpenCall]


class InCall:
    """A state inside a call, whose text is buffered: it is returned as text if the call is abandoned."""

    __slots__ = ("call", "context")

    def __init__(self, context: Context, call: OpenCall) -> None:
        self.context = context
        self.call = call

    def feed_plain(self, text: str) -> list[Event]:
        buffer_call_text(self.context, self.call, text)
        return self.context.output.take()

    def release(self, reason: str) -> None:
        self.abandon(reason)

    def buffer_text(self, end: int) -> None:
        if text := self.context.cursor.consume(end):
            buffer_call_text(self.context, self.call, text)
            self.call.breaks_off &= text.isspace()

    def abandon(self, reason: str) -> Unread:
        """Return the call as text."""
        return abandon_call(self.context, self.call, reason)

    def abandon_without_parameters(self) -> Unread:
        """Abandon the call because its opening tag is not followed by a parameter."""
        return self.abandon(NO_PARAMETER_REASON)

    def abandon_unfinished(self) -> Unread:
        """Abandon the call because the reply ends in it."""
        reason = ENDS_INSIDE_REASON if self.context.complete else "the reply was cut off inside it"
        return abandon_call(self.context, self.call, reason, stump=True)

    def complete_repaired(self, repair: Repair, token: TokenMatch | None) -> Ended:
        """End the call with a repair, if repairs are allowed."""
        if not self.context.lenient:
            return self.abandon(NO_CLOSER_REASON)
        self.call.repairs[repair] = None
        return self.end_call(token)

    def end_call(self, token: TokenMatch | None) -> Ended:
        """End the complete call with its closer, if it has one."""
        return complete_call(self.context, self.call, token)

    def repair_at_end(self, repair: Repair) -> bool:
        """Record a repair at the end of the reply; return False if repairs are not allowed there."""
        if self.context.may_repair_end:
            self.call.repairs[repair] = None
        return self.context.may_repair_end

    def mark_damaged(self, reason: str) -> Damaged:
        """Record that the strict parse failed; the call is repaired once its end is found."""
        self.call.fault = reason
        return Verdict.DAMAGED, self.call

    def emit_piece(self) -> None:
        """Emit the part of the call that can be sent by now."""
        call, context = self.call, self.context
        if call.pieces is None or (call.pieces.as_text and not context.cursor.is_at_end):
            return
        if piece := call.take_piece():
            context.output.add_call(piece)


def open_json(context: Context, call: OpenCall, at: int, opening: str = "") -> BeginsJson:
    """Begin self-delimiting arguments; `opening` is the part of them that was read."""
    buffer_call_text(context, call, context.cursor.consume(at))
    # Another notation than the dialect's, or a string that contains the arguments, is not sent in pieces.
    is_own = call.syntax.body != "params" and not context.cursor.text.startswith('"', context.cursor.at)
    call.json = _make_body(call.syntax, opening, lenient=context.lenient)
    call.begin_body(choose_piece_kind(context, call) if is_own else None)
    return Verdict.JSON, call


def _make_body(syntax: CallSyntax, opening: str = "", *, lenient: bool) -> CallBody:
    """Create the parser of self-delimiting arguments; their `opening` may show that they are Python, not JSON."""
    if syntax.body == "kwargs":
        return PythonBody(lenient=lenient)
    if syntax.dialect.values == "repr" and syntax.body != "params":
        return PythonBody("value", lenient=lenient)
    if lenient and _PYTHON_OBJECT.match(opening):
        return PythonBody("json", lenient=lenient)
    if syntax.dialect.codec == "gemma":
        return GemmaBody(syntax.dialect.string_token, lenient=lenient)
    return JsonBody(lenient=lenient)


class InJson(InCall):
    """Self-delimiting arguments: JSON, or the notation of Python or Gemma."""

    __slots__ = ("_body",)

    def __init__(self, context: Context, call: OpenCall) -> None:
        assert call.json is not None
        self.context = context
        self.call = call
        self._body = call.json

    @property
    def find_structure(self) -> SearchText | None:
        """Finds characters that are more than plain text; None if all text must be parsed."""
        return _IN_STRING if isinstance(self._body, JsonBody) and self._body.in_string else None

    def feed_plain(self, text: str) -> list[Event]:
        assert isinstance(self._body, JsonBody)
        self._body.write(text)
        buffer_call_text(self.context, self.call, text)
        if self.call.text.spilled:
            self._body.discard()
        elif self.call.pieces is None:
            return []
        self.emit_piece()
        return self.context.output.take()

    def read_body(self) -> tuple[None, OpenCall] | Damaged | Spills | Literal[Verdict.WAIT] | Unread:
        """Parse more of the arguments; return no verdict at their end."""
        context, cursor, call, body = self.context, self.context.cursor, self.call, self._body
        buffer_call_text(context, call, cursor.consume(body.feed(cursor.text, cursor.at, final=cursor.final)))
        if call.text.spilled:
            body.discard()
        if body.error:  # send no more pieces, because only the end of the call shows which text belongs to it
            return self._handle_broken(f"not JSON: {body.error}")
        if call.pieces:
            self.emit_piece()
        if body.done:
            return None, call
        if cursor.final and context.may_repair_end and not call.text.spilled:
            return self.mark_damaged(ENDS_INSIDE_REASON)
        return Verdict.WAIT

    def _handle_broken(self, reason: str) -> Damaged | Spills | Unread:
        """Handle arguments that the strict parse failed on: try to repair the call later, or abandon it now."""
        context, call = self.context, self.call
        if context.lenient and not call.text.spilled:
            call.breaks_off = not call.syntax.whole_reply and _BREAK_OFF_POINT.search(call.text.body) is not None
            return self.mark_damaged(reason)
        verdict = self.abandon(reason)
        if not call.text.spilled and call.syntax.whole_reply:
            return verdict
        # The text up to the closer is still part of that call, and no call begins in it.
        return Verdict.SPILLED, call


class AfterArguments(InCall):
    """The text after self-delimiting arguments or attributes: the call's closers."""

    __slots__ = ()

    def scan(self) -> Scan:
        return self.context.grammar.scan_tail(self.call.syntax, self.call.name_in_markup)

    def end_after_extra(self, token: TokenMatch) -> Ended:
        """End a call after an extra brace or a code fence, before its closers or the next call."""
        is_brace = get_token_kind(token.lastgroup) == TokenKind.EXTRA_BRACE
        return self.complete_repaired(Repair.EXTRA_BRACE if is_brace else Repair.CODE_FENCE, token)

    def note_wrong_closer(self, token: TokenMatch) -> tuple[None, OpenCall] | Unread:
        """Record a closing tag of another kind, which ends the call unless the call's own closing tag follows later."""
        if not self.context.lenient or self.call.text.spilled:
            return self.abandon(NO_CLOSER_REASON)
        self.call.ends.wrong_closer = self.call.ends.offset_after(len(token[0]))
        self.call.fault = "its end is ambiguous"
        return None, self.call

    def end_before_next_call(self, token: TokenMatch) -> Ended:
        """End a call without closers before the next call, directly or after a closing tag without its slash."""
        if token.groupdict().get(f"next_{token.lastgroup}"):
            return self.complete_repaired(Repair.CORRUPT_CLOSER, token)
        return self.complete_repaired(Repair.MISSING_CLOSER, None)

    def open_next_object(self, token: TokenMatch) -> BeginsJson | Unread:
        """Begin another object before the call's closers; each object is a call."""
        context, call = self.context, self.call
        if not context.lenient:
            return self.abandon(NO_CLOSER_REASON)
        buffer_call_text(context, call, context.cursor.consume(token.start(f"json_{token.lastgroup}")))
        call.next_object(_make_body(call.syntax, lenient=True))
        return Verdict.JSON, call

    def handle_missing_closer(self) -> Ended | Damaged:
        """Handle the end of the reply, or other text, in place of a call's closers."""
        cursor, call = self.context.cursor, self.call
        if cursor.is_blank(cursor.at) and self.repair_at_end(Repair.MISSING_CLOSER):
            return self.end_call(None)
        closed = bool(call.syntax.closers.make_tail(""))
        if self.context.lenient and closed and not call.place.in_line and _PROSE.match(cursor.text, cursor.at):
            return self.complete_repaired(Repair.MISSING_CLOSER, None)
        if closed:
            reason = NO_CLOSER_REASON
        elif call.syntax.whole_line:
            reason = MORE_ON_LINE_REASON
        else:
            reason = "a quote follows its JSON"
        if self.context.lenient and not call.text.spilled and not call.syntax.whole_line:
            return self.mark_damaged(reason)
        return abandon_call(self.context, call, reason)


class InDamagedCall(InCall):
    """A broken call, up to its end: then it is repaired."""

    __slots__ = ()

    def scan(self) -> Scan:
        if self.call.ends.swallowed:
            return NEVER
        return self.context.grammar.scan_damaged(self.call.syntax, self.call.name_in_markup)

    def handle_next_opener(self, token: TokenMatch) -> Unread | Literal[Verdict.CONTENT]:
        """Handle another call's opener: it ends the broken call if it directly follows the last bracket."""
        cursor, call = self.context.cursor, self.call
        if call.breaks_off and cursor.is_blank_to(token.start()):
            return abandon_call(self.context, call, call.fault)
        cursor.seek = token.start() + 1
        return Verdict.CONTENT

    def repair(self, token: TokenMatch | None = None) -> Completed | OnQuotedLine | Unread:
        """Repair the text up to the next call or the end of the reply."""
        context, cursor, call = self.context, self.context.cursor, self.call
        end = token.start(f"next_{token.lastgroup}") if token else len(cursor.text)
        buffer_call_text(context, call, cursor.consume(end))
        events: list[Call] = []
        rest = ""
        if context.complete and not call.text.spilled:
            events, rest = repair_calls(context, call)
        if not events:
            cursor.push_back(call.ends.cut_swallowed())
            return abandon_call(context, call, call.fault, stump=call.fault == ENDS_INSIDE_REASON)
        cursor.push_back(rest[max(0, call.text.sent - len(events[0].raw)) :])
        return accept_calls(context, call, events)
