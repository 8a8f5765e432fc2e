"""The beginning of a call: its opening tag, in text, after another call, or in a list."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from vtc.dialects.reading.after_call import AfterCall, Undecided
from vtc.dialects.reading.after_opener import is_word_of_sentence
from vtc.dialects.reading.call import MORE_ON_LINE_REASON, AfterArguments, BeginsJson, open_json
from vtc.dialects.reading.call_end import CompleteCalls, buffer_call_text, choose_piece_kind, collect_list_call
from vtc.dialects.reading.context import Context, TokenMatch, Verdict, locate_call
from vtc.dialects.reading.open_call import EarlierCalls, OpenCall
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import Head

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
    if not context.lenient and token[0].startswith(head.syntax.dialect.stray_words):
        context.cursor.seek = token.start() + 1
        return Verdict.CONTENT
    syntax = replace(head.syntax, is_indented=True) if indented else head.syntax
    if syntax.dialect.anchor == "line" and syntax.whole_line and context.output.in_paragraph:
        syntax = replace(syntax, in_paragraph=True)
    if head.is_self_closing:
        return _open_closed(context, token, syntax)
    if not head.has_attributes:
        is_mentioned = syntax.body != "json" and _is_mentioned(context, token, has_json=syntax.body == "args")
        return Verdict.CONTENT if is_mentioned else _open_next(context, token, syntax)
    return _open_with_attributes(context, token, head)


def _is_mentioned(context: Context, token: TokenMatch, *, has_json: bool) -> bool:
    """Return True if words only mention the head of a call, and continue the search after it.

    A name with spaces is that of an offered tool, or words; before JSON, so may be any name in a sentence.
    """
    at, name = token.start(), f"name_{token.lastgroup}"
    written = token.groupdict().get(name) or ""
    is_mentioned = " " in written.strip() and written.strip() not in context.tools
    if has_json and written and context.output.in_line:
        gap = token.string[token.end(name) : token.start(f"json_{token.lastgroup}")]
        is_mentioned |= is_word_of_sentence(context, written, token.string[at : token.start(name)], gap)
    if is_mentioned:
        context.cursor.seek = at + 1
    return is_mentioned


def open_next_call(after: AfterCall, token: TokenMatch) -> BeginsNext:
    """Begin the next call of a section. The verdict is None if its parameters follow."""
    return _open_next(after.context, token, after.syntax, after.complete)


def open_listed_call(handler: AfterArguments, token: TokenMatch) -> BeginsJson:
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
    for word in filter(token[0].startswith, syntax.dialect.stray_words):
        call.repairs[Repair.STRAY_WORD.of(word)] = None
    speech = context.output
    at = token.start()
    call.place = locate_call(context.cursor, at, in_line=speech.in_line, shares=speech.line_fate)
    if after and (after.calls or after.is_unread):  # they are decided together, by the text before the first of them
        call.place, call.earlier.sure = call.place._replace(lead=after.place.lead), after.sure
    call.text.add(context.output.take_whitespace())
    call.text.leading = len(call.text.raw)
    return call
