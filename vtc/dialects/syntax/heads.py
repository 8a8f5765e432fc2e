"""The heads of calls, all that stands before their arguments: how a call may begin, the first one and the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import CallSyntax, call_syntaxes, closing_itself, variants
from vtc.dialects.syntax.markup import literal, trimmed
from vtc.dialects.syntax.parts import Chars, Group, Lit, Part, Space, whole
from vtc.dialects.syntax.pattern import body
from vtc.dialects.syntax.scan import OFFERED

type Opening = Literal["body", "attributes", "closed"]
"""What follows a head: a body, parameters as attributes, or nothing, as its tag closes itself."""


@lru_cache(maxsize=1024)
def openings(dialect: Description) -> list[tuple[CallSyntax, tuple[Part, ...], Opening]]:
    """The ways a call of a dialect may begin."""
    found: list[tuple[CallSyntax, tuple[Part, ...], Opening]] = []
    for syntax in call_syntaxes(dialect):
        heads = variants(syntax)
        if syntax.body == "params":  # a name may hold a slash, too
            found += [(syntax, closed, "closed") for parts in heads if (closed := closing_itself(parts))]
        found += [(syntax, parts, "body") for parts in heads]
        if tag := syntax.attribute_head():
            found.append((syntax, tag, "attributes"))
    # A head that ends in the name is the beginning of others: <tool_call>bash, <tool_call>bash>{
    return sorted(found, key=lambda one: one[0].body == "params" and isinstance(one[1][-1], Chars | Group))


def heads_after_unclosed(syntax: CallSyntax, name: str) -> list[tuple[Part, ...]]:
    """List how a call begins that follows one without its closing tags: with its section and its marker, or without."""
    dialect = syntax.dialect
    if dialect.names == "declared":
        return syntax.quoted_heads(name)
    calls = [call for call in dialect.calls if body(call) == "params"]
    each = [CallSyntax(dialect, call, section) for call in calls for section in ("", *dialect.sections)]
    heads = [head for one in each for head in variants(one) if isinstance(head[0], Lit)]
    return after_unslashed(syntax, name, heads)


def begins_call(syntax: CallSyntax, text: str, offered: Callable[[str], object]) -> bool:
    """Tell if the text after a call begins with another, of an `offered` tool where the name is all that marks it."""
    for parts in (*(parts for _, parts, _ in openings(syntax.dialect)), *next_heads(syntax)):
        if found := re.match(whole(parts, "head"), text.lstrip()):
            name = found.groupdict().get(f"{OFFERED}_head")
            return name is None or offered(name) is not None
    return False


def unslashed(syntax: CallSyntax, name: str) -> str:
    """The call's only closing tag, as models write it that forget the slash: `<tool_call>`; empty if it has others."""
    tags = syntax.closing_tags(name)
    return tags[0].replace("</", "<", 1) if len(tags) == 1 and tags[0].startswith("</") else ""


def closers_written(syntax: CallSyntax, name: str) -> list[str]:
    """The call's closing tags; where it has none, that of the tag it opens with, which models write all the same."""
    tag = _OPENING_TAG.match(syntax.call)
    return syntax.closing_tags(name) or ([f"</{tag[1]}>"] if tag else [])


_OPENING_TAG = re.compile(r"<([A-Za-z][\w:.-]*)>")


def after_unslashed(syntax: CallSyntax, name: str, heads: Iterable[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
    """List some heads of the next call, and the same after a closing tag without its slash: as `next`."""
    heads, closer = list(heads), unslashed(syntax, name)
    ends = trimmed(literal(closer, syntax.dialect)) if closer else ()
    return [*heads, *((*ends, Space(), Group(head, "next")) for head in heads if ends)]


def next_heads(syntax: CallSyntax) -> list[tuple[Part, ...]]:
    """List how the next call begins, in a section or where calls follow one another."""
    each = heads = variants(CallSyntax(syntax.dialect, syntax.call))
    comma = syntax.dialect.separator.strip()
    if comma:
        heads = [(Lit(comma), Space(), *parts) for parts in heads] + heads
    if syntax.lists_calls:  # each in a list of its own
        heads = heads + [(Lit("]"), Space(), Lit("["), Space(), *parts) for parts in each]
    return [parts for parts in heads if isinstance(parts[0], Lit) or not comma]
