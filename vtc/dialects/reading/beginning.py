"""The opening tag of a call, wherever it stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from vtc.dialects.reading.after_call import AfterCall, Made, Undecided, hold, in_pieces, listed
from vtc.dialects.reading.call import MORE_ON_LINE, BeginsJson, InCall, open_json
from vtc.dialects.reading.context import Context, Verdict
from vtc.dialects.reading.cursor import Found, place
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.repair import Repair
from vtc.dialects.syntax.forms import CallSyntax
from vtc.dialects.syntax.grammar import Head

type BeginsNext = tuple[None, OpenCall] | BeginsJson
type BeginsWithAttributes = tuple[Literal[Verdict.ATTRIBUTES], OpenCall] | Literal[Verdict.CONTENT]
"""Content is an opening tag whose attributes fit no tool."""
type BeginsClosed = tuple[Literal[Verdict.CLOSED], OpenCall]
type Begun = BeginsNext | BeginsWithAttributes | BeginsClosed


class HasContext(Protocol):
    @property
    def context(self) -> Context: ...


def begin_call(inside: HasContext, found: Found, *, indented: bool = False) -> Begun:
    """Begin a call, `indented` if it stands in indented code; without a verdict its parameters follow."""
    context = inside.context
    assert found.lastgroup is not None
    context.speech.say(context.cursor.take(found.start()))
    head = context.grammar.heads[found.lastgroup]
    syntax = replace(head.syntax, is_indented=True) if indented else head.syntax
    if head.closed:
        return _open_closed(context, found, syntax)
    if not head.attributes:
        return _open(context, found, syntax)
    return _open_with_attributes(context, found, head)


def next_call(after: AfterCall, found: Found) -> BeginsNext:
    """Begin the next call of a section; without a verdict its parameters follow."""
    return _open(after.context, found, after.syntax, after.made)


def next_listed(inside: InCall, found: Found) -> BeginsJson:
    """Begin another call after one with a comma at the end of its line: all calls of such a list are carried out, or
    none, as each may count on those before it.
    """
    context, call = inside.context, inside.call
    call.repairs[Repair.SEVERAL_OBJECTS] = None
    calls, fault = listed(context, call)
    begun, opened = _open(context, found, call.syntax, Made(call.syntax, calls, call.text.size))
    assert begun is not None
    opened.repairs[Repair.SEVERAL_OBJECTS] = None
    opened.is_listed, opened.list_fault = True, fault if context.lenient else MORE_ON_LINE
    return begun, opened


def next_in_line(after: Undecided, found: Found) -> BeginsNext | tuple[Literal[Verdict.CONTENT], Made]:
    """Begin another call after one that may be quoted: they share one fate, unless what follows is seldom a call."""
    assert found.lastgroup is not None
    head = after.context.grammar.heads[found.lastgroup]
    if head.attributes or head.closed:
        return Verdict.CONTENT, after.decided(found)[1]
    after.keep(found.start())
    return _open(after.context, found, replace(head.syntax, is_indented=after.syntax.is_indented), after.made)


def _open(context: Context, found: Found, syntax: CallSyntax, after: Made | None = None) -> BeginsNext:
    call, groups = _opened(context, found, syntax, after), found.groupdict()
    if syntax.body == "params":
        hold(context, call, context.cursor.take(found.end()))
        call.begin_body(in_pieces(context, call))
        return None, call
    if syntax.body == "kwargs":
        return open_json(context, call, found.end())
    if groups.get(f"json_{found.lastgroup}"):
        return open_json(context, call, found.start(f"json_{found.lastgroup}"))
    return open_json(context, call, context.cursor.text.index("{", found.start()))


def _open_with_attributes(context: Context, found: Found, head: Head) -> BeginsWithAttributes:
    call = _opened(context, found, head.syntax)
    if not context.lenient or call.syntax.dialect.unescaped(found[f"key_{found.lastgroup}"]) not in call.named.declared:
        context.speech.say(call.text.raw)  # the white space that it took
        context.cursor.seek = found.start() + 1
        return Verdict.CONTENT
    hold(context, call, context.cursor.take(found.start(f"attribute_{found.lastgroup}")))
    call.begin_body()
    return Verdict.ATTRIBUTES, call


def next_closed(after: AfterCall, found: Found) -> BeginsClosed | Literal[Verdict.CONTENT]:
    """Begin the next call of a section, whose tag closes itself."""
    return _open_closed(after.context, found, after.syntax, after.made)


def _open_closed(
    context: Context, found: Found, syntax: CallSyntax, after: Made | None = None
) -> BeginsClosed | Literal[Verdict.CONTENT]:
    if not context.lenient:
        context.cursor.seek = found.end()
        return Verdict.CONTENT
    call = _opened(context, found, syntax, after)
    hold(context, call, context.cursor.take(found.end()))
    call.begin_body()
    call.repairs[Repair.SELF_CLOSING] = None
    return Verdict.CLOSED, call


def _opened(context: Context, found: Found, syntax: CallSyntax, after: Made | None = None) -> OpenCall:
    groups, token = found.groupdict(), found.lastgroup
    written, id_ = groups.get(f"name_{token}") or "", groups.get(f"id_{token}")
    index = groups.get(f"index_{token}") or ""
    call = OpenCall(syntax, written, id_, context.tools, index=index, lenient=context.lenient)
    if after:
        call.earlier, call.text.size = after.calls, after.size
    speech = context.speech
    at = found.start()
    call.place = place(context.cursor.text, at, in_line=speech.in_line, follows_call=speech.has_called_here)
    call.hold(context.speech.take_space())
    call.before = len(call.text.raw)
    return call
