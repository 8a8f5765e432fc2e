"""Calls wherever they stand in a text: on a line with words, in code, in quotation marks, in a file that is shown.

It is the reader of replies that reads them, from each place on where one may begin, with dialects in which nothing
quotes a call and nothing has to stand around one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge

from msgspec.structs import replace

from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description, Envelope
from vtc.dialects.syntax.grammar import Grammar, compiled
from vtc.dialects.syntax.parts import Lit
from vtc.dialects.syntax.prefilter import beginnings
from vtc.dialects.syntax.scan import Token
from vtc.events import Call, Refusal, Text, Tool, ToolCall

MARK = "\0"
"""Stands before a call that begins with the name of its tool, so that it begins with a text as all others do."""
AT_ONCE = 64
"""Characters that are read before it is asked whether they are a call."""
PER_READING = 512
"""Characters that beginning a call counts for."""


class CallsInText:
    """Reads the calls of one request's tools in some dialects."""

    def __init__(self, dialects: Sequence[Description], tools: Callable[[], Mapping[str, Tool]]) -> None:
        self._grammar, self._beginnings = _reading(tuple(dialects))
        self._tools = tools
        self._begin_with_name = any(_is_named(head.token) for head in self._grammar.heads.values())

    def places(self, text: str, name: str) -> Iterator[int]:
        """Find where a call of a tool may begin, in order."""
        return merge(
            (found.start() for found in self._beginnings.finditer(text)),
            (found.start() for found in re.finditer(rf"(?<!\w){re.escape(name)}", text) if self._begin_with_name),
        )

    def read(self, text: str, name: str) -> tuple[list[ToolCall], int]:
        """Read what a text begins with as a call, also with the `name` of a tool; tell how much reading that took."""
        text = MARK + text if text.startswith(name) else text
        reader = Reader(self._grammar, self._tools(), unknown_tools="allow", think="keep")
        for at in range(0, len(text) + AT_ONCE, AT_ONCE):
            events = reader.feed(text[at : at + AT_ONCE]) if at < len(text) else reader.finish()
            calls = [event.call for event in events if isinstance(event, Call)]
            if calls or any(isinstance(event, Refusal) for event in events):
                return calls, at + PER_READING
            if any(isinstance(event, Text) for event in events):
                return [], at + AT_ONCE
        return [], len(text) + PER_READING


@lru_cache(maxsize=8)
def _reading(dialects: tuple[Description, ...]) -> tuple[Grammar, re.Pattern[str]]:
    """Compile dialects for reading results, and what calls begin with in them."""
    parts = [part for dialect in dialects for part in _parts(dialect)]
    keys = [dialect.json for dialect in dialects if _bare(dialect)]
    if keys:
        parts.append(_json(keys))
    grammar = compiled(tuple(parts))
    tokens = [head.token for head in grammar.heads.values() if not _is_named(head.token)]
    texts = {text for token in tokens for text, _ in beginnings(token)} - {""}
    shortest = [text for text in texts if not any(text.startswith(other) for other in texts - {text})]
    return grammar, re.compile("|".join(map(re.escape, sorted(shortest))) or "(?!)")


def _is_named(token: Token) -> bool:
    """True if a call begins with the name of its tool."""
    first = token.parts[0]
    return isinstance(first, Lit) and first.text.startswith(MARK)


def _bare(dialect: Description) -> tuple[str, ...]:
    """The calls of a dialect that are JSON and nothing else."""
    return tuple(text for text in dialect.calls if text.startswith("{json}"))


def _parts(dialect: Description) -> Iterator[Description]:
    """Take of a dialect the calls that markers of their own or names begin."""
    bare = _bare(dialect)
    calls = (MARK + text if text.startswith("{name}") else text for text in dialect.calls if text not in bare)
    if some := tuple(calls):
        around = replace(dialect, section=(), section_required=False, section_anchor="anywhere", prompted="")
        yield replace(around, call=some, anchor="anywhere", ends_reply=False, in_code="call", fenced=False)


def _json(keys: Sequence[Envelope]) -> Description:
    """Make the one dialect of calls that are JSON and nothing else, with the keys of all that have such calls."""
    names, arguments = (
        tuple(dict.fromkeys(key for one in keys for key in getattr(one, what))) for what in ("name", "arguments")
    )
    envelope = Envelope(name=names, arguments=arguments)
    return Description(kind="dialect", name="json", call="{json}", names="declared", json=envelope, in_code="call")
