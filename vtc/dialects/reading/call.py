"""The states inside a call, from its opening tag to its end, except the values of parameters (`value.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol

from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.arguments.python import PythonBody
from vtc.dialects.reading.after_call import (
    NEVER,
    AfterCall,
    CompleteCalls,
    Completed,
    Damaged,
    Ended,
    OnQuotedLine,
    Spills,
    Undecided,
    abandon_call,
    accept_calls,
    buffer_call_text,
    choose_piece_kind,
    collect_list_call,
    complete_call,
    emit_piece,
    mark_damaged,
    repair_at_end,
)
from vtc.dialects.reading.context import Context, TokenMatch, Unread, Verdict, locate_call
from vtc.dialects.reading.open_call import EarlierCalls, OpenCall
from vtc.dialects.reading.value import (
    MAX_GUESS_CHARACTERS,
    InValue,
    OpenedParam,
    abandon_without_parameters,
    open_value,
)
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import ATTRIBUTES_END, Head
from vtc.dialects.syntax.scan import Scan, get_token_kind
from vtc.dialects.syntax.tokens import TokenKind
from vtc.events import Call, Event

ENDS_INSIDE_REASON = "the reply ends inside it"
NO_CLOSER_REASON = "its closing tag is missing"
SEVERAL_LINES_REASON = "lines without tags may be several parameters of its tool"
MORE_ON_LINE_REASON = "more text is on its line"
MAX_TAG_ENDS = 16
"""Maximum positions at which an opening tag with attributes is tried as complete."""

_PROSE = re.compile(r"[ \t\r]*\n\s*[^\W\d_]")  # used with match
"""Words on the line after a call without a closer."""
_BREAK_OFF_POINT = re.compile(r"[}\]][ \t\r]{0,256}\n\s{0,256}\Z")
"""The end of broken JSON at which another call may begin: a bracket and a line break. The end of a string does not
count, because its quotes may not be escaped."""
_PYTHON_OBJECT = re.compile(r"[\[{\s]+'")  # used with match
"""The beginning of an object in Python's notation instead of JSON."""
_BEGINS_JSON = re.compile(r'[{"]')

type CallBody = JsonBody | PythonBody | GemmaBody
type SearchText = Callable[[str], object]
_IN_STRING: SearchText = re.compile(r'["\\\x00-\x1f]').search
"""Finds characters that are more than text in a JSON string."""
FIND_STRING_END: SearchText = re.compile(r'(?!(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+\Z)').match  # used with match
"""Matches if a text may hold more than JSON string content and complete escapes."""


type BeginsJson = tuple[Literal[Verdict.JSON], OpenCall]


def end_reply_in_value(handler: InValue) -> Damaged | Ended:
    """Handle the end of the reply in a value: end a call that needs no closer, or try to repair the call."""
    if (end := handler.open_end) and handler.context.complete and not handler.call.text.spilled:
        return handler.end_open_at(end)
    if handler.context.may_repair_end and not handler.call.text.spilled:
        return mark_damaged(handler.call, ENDS_INSIDE_REASON)
    return abandon_unfinished(handler)


def abandon_unfinished(handler: InValue | InCall | InJson) -> Unread:
    """Abandon a call in which the reply ends."""
    reason = ENDS_INSIDE_REASON if handler.context.complete else "the reply was cut off inside it"
    return abandon_call(handler.context, handler.call, reason, stump=True)


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


class InCall:
    """A call after its opening tag, after its arguments, or after a syntax error in it."""

    __slots__ = ("_end_count", "call", "context")

    def __init__(self, context: Context, call: OpenCall) -> None:
        self.context = context
        self.call = call
        self._end_count = 0
        """Number of possible ends of an opening tag with attributes that were tried."""

    def scan_arguments(self) -> Scan:
        return self.context.grammar.scan_arguments(self.call.syntax, self.call.name_in_markup)

    def scan_attributes(self) -> Scan:
        return ATTRIBUTES_END

    def scan_tail(self) -> Scan:
        return self.context.grammar.scan_tail(self.call.syntax, self.call.name_in_markup)

    def scan_damaged(self) -> Scan:
        if self.call.ends.swallowed:
            return NEVER
        return self.context.grammar.scan_damaged(self.call.syntax, self.call.name_in_markup)

    def feed_plain(self, text: str) -> list[Event]:
        buffer_call_text(self.context, self.call, text)
        return self.context.output.take()

    def release(self, reason: str) -> None:
        abandon_call(self.context, self.call, reason)

    def buffer_text(self, end: int) -> None:
        if text := self.context.cursor.consume(end):
            buffer_call_text(self.context, self.call, text)
            self.call.breaks_off &= text.isspace()

    # After the opening tag

    def open_parameter(self, token: TokenMatch) -> OpenedParam | Literal[Verdict.WRAPPED]:
        """Begin the first parameter, or skip an element that wraps all parameters."""
        key = self.call.syntax.dialect.unescape_key(token[f"key_{token.lastgroup}"])
        is_bare_tag = token[0].strip() == f"<{key}>"
        if not (self.context.lenient and is_bare_tag and self.call.parameters.is_wrapper(key)):
            return open_value(self.context, self.call, token)
        self.call.repairs[Repair.ARGUMENTS_KEY] = None
        self.buffer_text(token.end())
        return Verdict.WRAPPED

    def end_empty_call(self, token: TokenMatch) -> Ended:
        """End a call without parameters."""
        return self.end_call(token) if self.call.may_be_empty else self.abandon_without_parameters()

    def abandon_without_parameters(self) -> Unread:
        return abandon_without_parameters(self.context, self.call)

    def skip_orphan_closer(self, token: TokenMatch) -> Unread | None:
        """Skip a parameter's closer that nothing opened."""
        if not self.context.lenient:
            return self.abandon_without_parameters()
        self.call.repairs[Repair.ORPHAN_CLOSER] = None
        self.buffer_text(token.end())
        return None

    def scan_sole(self) -> Scan:
        return self.context.grammar.scan_sole_value(self.call.syntax, self.call.name_in_markup)

    def buffer_sole_value(self, end: int) -> Unread | None:
        """Buffer the possible value of the only parameter that the tool requires."""
        if text := self.context.cursor.consume(end):
            buffer_call_text(self.context, self.call, text, value=True)
        if self.call.syntax.names_the_tag and self.call.text.size > MAX_GUESS_CHARACTERS:
            return self.abandon_without_parameters()
        return None

    def end_sole_value(self, token: TokenMatch) -> Ended:
        """End a call whose only parameter has no tags."""
        if verdict := self.buffer_sole_value(token.start()):
            return verdict
        several = self.call.syntax.names_the_tag and len(self.call.named.declared) > 1
        if several and "\n" in self.call.text.body.strip():
            return abandon_call(self.context, self.call, SEVERAL_LINES_REASON)
        self.call.end_parameter()
        self.call.repairs[Repair.SOLE_PARAMETER] = None
        return complete_call(self.context, self.call, token)

    def handle_tag_in_sole_value(self, token: TokenMatch) -> Unread | Literal[Verdict.CONTENT]:
        """Handle a tag in a possible value: it is content if text precedes it and the tool does not declare it."""
        key, cursor = token.groupdict().get(f"key_{token.lastgroup}"), self.context.cursor
        text = self.call.text.body + cursor.text[cursor.at : token.start()]
        if key and key not in self.call.named.declared and text.strip():
            cursor.seek = token.end()
            return Verdict.CONTENT
        return self.buffer_sole_value(token.start()) or self.abandon_without_parameters()

    def handle_missing_parameters(self) -> Ended | Literal[Verdict.CONTENT, Verdict.SOLE]:
        """Handle the end of the reply or other text in place of parameters."""
        # Step 1: Split the tool's name if the name of a parameter was written into it.
        if self.context.lenient and (key := self.call.split_name()):
            self.context.cursor.push_back(key)
            return Verdict.CONTENT
        # Step 2: Parse text as the value of the only parameter, unless it is inside an element around the parameters.
        sole = self.call.sole_parameter if Repair.ARGUMENTS_KEY not in self.call.repairs else None
        if self.context.lenient and sole and not self.context.cursor.is_blank(self.context.cursor.at):
            self.call.parameters.begin(sole, 0)
            return Verdict.SOLE
        # Step 3: At the end of the reply, complete a call that needs no parameters.
        cursor, call = self.context.cursor, self.call
        closed = Repair.ORPHAN_CLOSER in call.repairs and call.may_be_empty
        ended = cursor.is_blank(cursor.at) and (closed or (call.takes_nothing and not call.place.in_line))
        if not ended or not repair_at_end(self.context, call, Repair.MISSING_CLOSER):
            return self.abandon_without_parameters()
        return complete_call(self.context, call, None)

    def end_at_outer_closer(self, token: TokenMatch) -> Ended:
        """End a call without parameters and closing tag, since the closing tag of its wrapper follows."""
        return self._end_without_closer(token)

    def end_at_next_call(self, _: TokenMatch) -> Ended:
        """End a call without parameters and closing tag, since the next call follows."""
        return self._end_without_closer(None)

    def _end_without_closer(self, token: TokenMatch | None) -> Ended:
        if not self.call.needs_nothing:
            return self.abandon_without_parameters()
        return self._complete_repaired(Repair.MISSING_CLOSER, token)

    def end_at_wrong_closer(self, token: TokenMatch) -> Ended:
        """End a call without parameters that has a sibling's closing tag instead of its wrapper's."""
        if not self.call.may_be_empty:
            return self.abandon_without_parameters()
        return self._complete_repaired(Repair.WRONG_CLOSER, token)

    def end_self_closing(self) -> Ended:
        """End a call whose opening tag is self-closing."""
        if not self.call.may_be_empty:
            return self.abandon_without_parameters()
        return complete_call(self.context, self.call, None)

    def open_json_arguments(self, token: TokenMatch) -> BeginsJson | Unread:
        """Begin JSON in place of parameters, unless the tag before it is a word of a sentence."""
        begins, call = _BEGINS_JSON.search(self.context.cursor.text, token.start()), self.call
        assert begins is not None
        head, gap = call.text.raw.removesuffix(call.written), token.string[token.start() : begins.start()]
        if call.place.in_line and _is_word_of_sentence(self.context, call.written, head, gap):
            return self.abandon_without_parameters()
        return open_json(self.context, self.call, begins.start(), token.string[begins.start() : token.end()])

    def end_attributes(self, token: TokenMatch) -> Ended | Literal[Verdict.CONTENT, Verdict.CLOSERS]:
        """End an opening tag with attributes, unless the token is inside an attribute."""
        cursor, call = self.context.cursor, self.call
        text = call.text.body + cursor.text[cursor.at : token.end()]
        self._end_count += 1
        if self._end_count > MAX_TAG_ENDS:
            return abandon_call(self.context, call, f"its opening tag has more than {MAX_TAG_ENDS} ends")
        if not call.parameters.read_attributes(text):
            cursor.seek = token.start() + 1
            return Verdict.CONTENT
        if text.endswith("/>"):
            return self.end_call(token)
        self.buffer_text(token.end())
        return Verdict.CLOSERS

    # After the arguments

    def end_call(self, token: TokenMatch) -> Ended:
        return complete_call(self.context, self.call, token)

    def end_after_extra(self, token: TokenMatch) -> Ended:
        """End a call after an extra brace or a code fence, before its closers or the next call."""
        is_brace = get_token_kind(token.lastgroup) == TokenKind.EXTRA_BRACE
        return self._complete_repaired(Repair.EXTRA_BRACE if is_brace else Repair.CODE_FENCE, token)

    def note_wrong_closer(self, token: TokenMatch) -> tuple[None, OpenCall] | Unread:
        """Record a closing tag of another kind, which ends the call unless the call's own closing tag follows later."""
        if not self.context.lenient or self.call.text.spilled:
            return abandon_call(self.context, self.call, NO_CLOSER_REASON)
        self.call.ends.wrong_closer = self.call.ends.offset_after(len(token[0]))
        self.call.fault = "its end is ambiguous"
        return None, self.call

    def end_before_next_call(self, token: TokenMatch) -> Ended:
        """End a call without closers before the next call, directly or after a closing tag without its slash."""
        if token.groupdict().get(f"next_{token.lastgroup}"):
            return self._complete_repaired(Repair.CORRUPT_CLOSER, token)
        return self._complete_repaired(Repair.MISSING_CLOSER, None)

    def open_next_object(self, token: TokenMatch) -> BeginsJson | Unread:
        """Begin another object before the call's closers; each object is a call."""
        context, call = self.context, self.call
        if not context.lenient:
            return abandon_call(context, call, NO_CLOSER_REASON)
        buffer_call_text(context, call, context.cursor.consume(token.start(f"json_{token.lastgroup}")))
        call.next_object(_make_body(call.syntax, lenient=True))
        return Verdict.JSON, call

    def _complete_repaired(self, repair: Repair, token: TokenMatch | None) -> Ended:
        if not self.context.lenient:
            return abandon_call(self.context, self.call, NO_CLOSER_REASON)
        self.call.repairs[repair] = None
        return complete_call(self.context, self.call, token)

    def handle_missing_closer(self) -> Ended | Damaged:
        """Handle the end of the reply, or other text, in place of a call's closers."""
        cursor, call = self.context.cursor, self.call
        if cursor.is_blank(cursor.at) and repair_at_end(self.context, call, Repair.MISSING_CLOSER):
            return complete_call(self.context, call, None)
        closed = bool(call.syntax.make_tail(""))
        if self.context.lenient and closed and not call.place.in_line and _PROSE.match(cursor.text, cursor.at):
            return self._complete_repaired(Repair.MISSING_CLOSER, None)
        if closed:
            reason = NO_CLOSER_REASON
        elif call.syntax.whole_line:
            reason = MORE_ON_LINE_REASON
        else:
            reason = "a quote follows its JSON"
        if self.context.lenient and not call.text.spilled and not call.syntax.whole_line:
            return mark_damaged(call, reason)
        return abandon_call(self.context, call, reason)

    # In a call that broke

    def handle_next_opener(self, token: TokenMatch) -> Unread | Literal[Verdict.CONTENT]:
        """Handle another call's opener: it ends the broken call if it directly follows the last bracket."""
        cursor, call = self.context.cursor, self.call
        if call.breaks_off and cursor.is_blank_to(token.start()):
            return abandon_call(self.context, call, call.fault)
        cursor.seek = token.start() + 1
        return Verdict.CONTENT

    def repair_damaged(self, token: TokenMatch | None = None) -> Completed | OnQuotedLine | Unread:
        """Repair the text up to the next call or the end of the reply."""
        context, cursor, call = self.context, self.context.cursor, self.call
        end = token.start(f"next_{token.lastgroup}") if token else len(cursor.text)
        buffer_call_text(context, call, cursor.consume(end))
        events: list[Call] = []
        rest = ""
        if context.complete and not call.text.spilled:
            events, rest = call.repair(context.unknown_tools)
        if not events:
            cursor.push_back(call.ends.cut_swallowed())
            return abandon_call(context, call, call.fault, stump=call.fault == ENDS_INSIDE_REASON)
        cursor.push_back(rest[max(0, call.text.sent - len(events[0].raw)) :])
        return accept_calls(context, call, events)


class InJson:
    """Self-delimiting arguments: JSON, or the notation of Python or Gemma."""

    __slots__ = ("_body", "call", "context")

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
        emit_piece(self.context, self.call)
        return self.context.output.take()

    def release(self, reason: str) -> None:
        abandon_call(self.context, self.call, reason)

    def read_body(self) -> tuple[None, OpenCall] | Damaged | Spills | Literal[Verdict.WAIT] | Unread:
        """Parse more of the arguments; return no verdict at their end."""
        context, cursor, call, body = self.context, self.context.cursor, self.call, self._body
        buffer_call_text(context, call, cursor.consume(body.feed(cursor.text, cursor.at, final=cursor.final)))
        if call.text.spilled:
            body.discard()
        if body.error:  # send no more pieces, because only the end of the call shows which text belongs to it
            return self._handle_broken(f"not JSON: {body.error}")
        if call.pieces:
            emit_piece(context, call)
        if body.done:
            return None, call
        if cursor.final and context.may_repair_end and not call.text.spilled:
            return mark_damaged(call, ENDS_INSIDE_REASON)
        return Verdict.WAIT

    def _handle_broken(self, reason: str) -> Damaged | Spills | Unread:
        """Handle arguments that the strict parse failed on: try to repair the call later, or abandon it now."""
        context, call = self.context, self.call
        if context.lenient and not call.text.spilled:
            call.breaks_off = not call.syntax.whole_reply and _BREAK_OFF_POINT.search(call.text.body) is not None
            return mark_damaged(call, reason)
        verdict = abandon_call(context, call, reason)
        if not call.text.spilled and call.syntax.whole_reply:
            return verdict
        # The text up to the closer is still part of that call, and no call begins in it.
        return Verdict.SPILLED, call


type BeginsNext = tuple[None, OpenCall] | BeginsJson
type BeginsWithAttributes = tuple[Literal[Verdict.ATTRIBUTES], OpenCall] | Literal[Verdict.CONTENT]
"""CONTENT if the attributes of the opening tag fit no tool."""
type BeginsClosed = tuple[Literal[Verdict.CLOSED], OpenCall]
type CallBeginning = BeginsNext | BeginsWithAttributes | BeginsClosed


class HasContext(Protocol):
    """A handler of any state in which a call can begin."""

    @property
    def context(self) -> Context: ...


def begin_call(handler: HasContext, token: TokenMatch, *, indented: bool = False) -> CallBeginning:
    """Begin a call, `indented` if it is in indented code. The verdict is None if its parameters follow."""
    context = handler.context
    assert token.lastgroup is not None
    context.output.add_text(context.cursor.consume(token.start()))
    head = context.grammar.heads[token.lastgroup]
    syntax = replace(head.syntax, is_indented=True) if indented else head.syntax
    if syntax.dialect.anchor == "line" and syntax.whole_line and context.output.in_paragraph:
        syntax = replace(syntax, in_paragraph=True)
    if head.is_self_closing:
        return _open_closed(context, token, syntax)
    if not head.has_attributes:
        is_spoken_of = syntax.body == "args" and _is_mentioned(context, token)
        return Verdict.CONTENT if is_spoken_of else _open_next(context, token, syntax)
    return _open_with_attributes(context, token, head)


def _is_mentioned(context: Context, token: TokenMatch) -> bool:
    """Return True if words only mention the head of a call with JSON after it, and continue the search after it."""
    at, name, groups = token.start(), f"name_{token.lastgroup}", token.groupdict()
    if not (groups.get(name) and context.output.in_line):
        return False
    gap = token.string[token.end(name) : token.start(f"json_{token.lastgroup}")]
    if not _is_word_of_sentence(context, token[name], token.string[at : token.start(name)], gap):
        return False
    context.cursor.seek = at + 1
    return True


def _is_word_of_sentence(context: Context, written: str, head: str, gap: str) -> bool:
    """True if the `written` name after a tag is a word of the sentence: `I write a <tool_call> now.`.

    The `gap` before the JSON contains a line break, no tool of that name is offered, and either no tool can have that
    name or a blank separates it from the tag.
    """
    if "\n" not in gap or not context.tools or tool_names.resolve(written, context.tools):
        return False
    return head[-1:] in " \t" or tool_names.resolve_unoffered(written) is None


def open_next_call(after: AfterCall, token: TokenMatch) -> BeginsNext:
    """Begin the next call of a section. The verdict is None if its parameters follow."""
    return _open_next(after.context, token, after.syntax, after.complete)


def open_listed_call(handler: InCall, token: TokenMatch) -> BeginsJson:
    """Begin another call after a call and a comma at the end of its line.

    All calls of such a list are accepted or none, because each may depend on the earlier ones.
    """
    context, call = handler.context, handler.call
    call.repairs[Repair.SEVERAL_OBJECTS] = None
    calls, fault = collect_list_call(context, call)
    begun, opened = _open_next(context, token, call.syntax, CompleteCalls(call.syntax, calls, call.text.size))
    assert begun is not None
    opened.repairs[Repair.SEVERAL_OBJECTS] = None
    opened.earlier.in_list, opened.earlier.fault = True, fault if context.lenient else MORE_ON_LINE_REASON
    return begun, opened


def open_call_in_line(
    after: Undecided, token: TokenMatch
) -> BeginsNext | tuple[Literal[Verdict.CONTENT], CompleteCalls]:
    """Begin another call on the line of one that may be quoted; both are decided together.

    If parameters are attributes, or if the tag is self-closing, the text may be no call. Then the call before it is
    delivered, as at the end of the line.
    """
    assert token.lastgroup is not None
    head = after.context.grammar.heads[token.lastgroup]
    if head.has_attributes or head.is_self_closing:
        return Verdict.CONTENT, after.deliver_at_line_end(token)[1]
    after.add_text_between(token.start())
    shared = after.syntax
    syntax = replace(head.syntax, is_indented=shared.is_indented, in_paragraph=shared.in_paragraph)
    return _open_next(after.context, token, syntax, after.complete)


def _open_next(
    context: Context, token: TokenMatch, syntax: CallSyntax, after: CompleteCalls | None = None
) -> BeginsNext:
    call, groups = _open_call(context, token, syntax, after), token.groupdict()
    if syntax.body == "params":
        buffer_call_text(context, call, context.cursor.consume(token.end()))
        call.begin_body(choose_piece_kind(context, call))
        return None, call
    if syntax.body == "kwargs":
        return open_json(context, call, token.end())
    in_group = groups.get(f"json_{token.lastgroup}")
    at = token.start(f"json_{token.lastgroup}") if in_group else token.string.index("{", token.start())
    return open_json(context, call, at, token.string[at : token.end()])


def _open_with_attributes(context: Context, token: TokenMatch, head: Head) -> BeginsWithAttributes:
    call = _open_call(context, token, head.syntax)
    if (
        not context.lenient
        or call.syntax.dialect.unescape_key(token[f"key_{token.lastgroup}"]) not in call.named.declared
    ):
        context.output.add_text(call.text.raw)  # the white space that `_open_call` moved into the call
        context.cursor.seek = token.start() + 1
        return Verdict.CONTENT
    buffer_call_text(context, call, context.cursor.consume(token.start(f"attribute_{token.lastgroup}")))
    call.begin_body()
    return Verdict.ATTRIBUTES, call


def open_next_closed(after: AfterCall, token: TokenMatch) -> BeginsClosed | Literal[Verdict.CONTENT]:
    """Begin the next call of a section, whose opening tag is self-closing."""
    return _open_closed(after.context, token, after.syntax, after.complete)


def _open_closed(
    context: Context, token: TokenMatch, syntax: CallSyntax, after: CompleteCalls | None = None
) -> BeginsClosed | Literal[Verdict.CONTENT]:
    if not context.lenient:
        context.cursor.seek = token.end()
        return Verdict.CONTENT
    call = _open_call(context, token, syntax, after)
    buffer_call_text(context, call, context.cursor.consume(token.end()))
    call.begin_body()
    call.repairs[Repair.SELF_CLOSING] = None
    return Verdict.CLOSED, call


def _open_call(context: Context, token: TokenMatch, syntax: CallSyntax, after: CompleteCalls | None = None) -> OpenCall:
    """Create a call from the groups of its opener; the white space before it becomes part of its text."""
    groups, name = token.groupdict(), token.lastgroup
    written, id_ = groups.get(f"name_{name}") or "", groups.get(f"id_{name}")
    index = groups.get(f"index_{name}") or ""
    call = OpenCall(syntax, written, id_, context.tools, index=index, lenient=context.lenient)
    if after:
        call.earlier, call.text.size = EarlierCalls(after.calls), after.size
    speech = context.output
    at = token.start()
    call.place = locate_call(context.cursor, at, in_line=speech.in_line, shares=speech.line_fate)
    if after and after.calls:  # they are decided together, by the text before the first of them
        call.place, call.earlier.sure = call.place._replace(lead=after.place.lead), after.sure
    call.text.add(context.output.take_whitespace())
    call.text.leading = len(call.text.raw)
    return call
