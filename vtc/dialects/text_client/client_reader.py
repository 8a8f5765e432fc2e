"""Read calls as a text client does: by simpler rules than the reader's, which makes sense of what such a client cannot.

    <tool>          any known tool opens
      <parameter>   inside of it any known parameter opens, also one of another tool
      </parameter>  its first closer ends the value; the last value of a parameter wins
    </tool>

What lies between is skipped and nothing is balanced. For `to_last_closer` of the dialect all between the first opener
and the last closer in the call is the value in the end. White space at the ends of a value does not count. Versions of
a client differ in when they look for that closer: only what all of them read alike is a call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import dumped, members, written
from vtc.dialects.syntax.description import Description
from vtc.events import ToolCall

SPACE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
"""The characters that JavaScript's `trim` takes away: `str.strip` knows others."""


MOST_MARKS = 10_000
"""Of `<`, outside of values, beyond which a text is not looked through: it is no call that anybody means."""


class _TooManyError(Exception):
    pass


class _Tag(NamedTuple):
    """How a tool or a parameter begins and ends."""

    name: str
    opener: str
    closer: str


class ClientReader:
    """Reads the calls of some tools, with these parameters, in the first patterns of a dialect that `is_tagged`."""

    def __init__(self, dialect: Description, tools: Iterable[str], parameters: Iterable[str]) -> None:
        self._dialect = dialect
        self._left = MOST_MARKS
        self._tools = {name: _tag(dialect.calls[0], "{params}", "{name}", name) for name in tools}
        self._parameters = {name: _tag(dialect.params[0], "{value}", "{key}", name) for name in parameters}

    def is_one_call(self, text: str, call: ToolCall) -> bool:
        """Tell if the client finds this very call in a text and no other; none, if it does not know the tool."""
        try:
            # Two are enough to know that there is not one.
            return all(self._is_one([*islice(self.calls(text, as_it_comes=early), 2)], call) for early in (False, True))
        except _TooManyError:
            return False

    def calls(self, text: str, *, as_it_comes: bool = False) -> Iterator[tuple[str, dict[str, str]]]:
        """Give the name and the parameters of each call, also of one that has no end.

        A client looks for the last closer of a value in a call that has ended. Older ones look as closers come
        (`as_it_comes`), and so not at one that ends a parameter.
        """
        self._left = MOST_MARKS
        at = 0
        while opened := self._first(text, at, self._tools.values()):
            start, tool = opened
            given, at = self._given(text, start, tool, as_it_comes)
            yield tool.name, {key: text[begin:end].strip(SPACE) for key, (begin, end) in given.items()}

    def _is_one(self, found: list[tuple[str, dict[str, str]]], call: ToolCall) -> bool:
        if call.name not in self._tools:
            return not found
        arguments = json.loads(call.arguments).items()
        meant = {key: value for key, value in arguments if value is not None and key in self._parameters}
        if len(found) != 1 or found[0][0] != call.name or found[0][1].keys() != meant.keys():
            return False
        return all(self._means(found[0][1][key], value) for key, value in meant.items())

    def _given(self, text: str, start: int, tool: _Tag, as_it_comes: bool) -> tuple[dict[str, tuple[int, int]], int]:
        """Find where the parameters of a call stand from `start` on; also return where it ends."""
        given: dict[str, tuple[int, int]] = {}
        long = [self._parameters[key] for key in {*self._parameters} & {*_to_last_closer(self._dialect, tool.name)}]
        firsts = {name: text.find(opener, start) + len(opener) for name, opener, _ in long}
        tags = [_Tag("", tool.closer, ""), *self._parameters.values()]
        if as_it_comes:
            tags += [_Tag(name, closer, "") for name, _, closer in long]
        at = start
        while opened := self._first(text, at, tags):
            at, (name, mark, closer) = opened
            if not name:
                break
            if not closer:
                given[name] = firsts[name], at - len(mark)
                continue
            begin, end = at, text.find(closer, at)
            given[name] = begin, end if end >= 0 else len(text)
            if end < 0:
                return given, len(text)
            at = end + len(closer)
        if not opened:
            return given, len(text)
        for name, _, closer in () if as_it_comes else long:
            if start < firsts[name] <= (last := text.rfind(closer, start, at)):
                given[name] = firsts[name], last
        return given, at

    def _first(self, text: str, at: int, tags: Collection[_Tag]) -> tuple[int, _Tag] | None:
        """Find the first opener, and the place after it; no expression, as it would be kept with the names of tools."""
        marks = tuple(tag.opener for tag in tags)
        while (at := text.find("<", at)) >= 0:
            self._left -= 1
            if self._left < 0:
                raise _TooManyError
            if text.startswith(marks, at):
                tag = max((tag for tag in tags if text.startswith(tag.opener, at)), key=lambda tag: len(tag.opener))
                return at + len(tag.opener), tag
            at += 1
        return None

    def _means(self, said: str, value: Any) -> bool:
        """Tell if the text of a parameter says this value."""
        if isinstance(value, str) or self._dialect.values != "json":
            return said == values.write(value, self._dialect.values).strip(SPACE)
        try:
            return json.dumps(json.loads(said)) == json.dumps(value)
        except (ValueError, RecursionError):
            return False


def is_tagged(dialect: Description) -> bool:
    """Tell if a call of the dialect begins with a tag of its tool's name, and its parameters with one of theirs."""
    return dialect.calls[0].startswith("<{name}") and any(one.startswith("<{key}") for one in dialect.params[:1])


def trimmed(call: ToolCall, dialect: Description) -> ToolCall:
    """Take the white space from both ends of texts among the arguments, as the client does before it uses them.

    What reaches to the last closer is content, of which some clients keep it. Arguments that are no object stay.
    """
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    keeps = _to_last_closer(dialect, call.name)
    texts = {key: value for key, value in _items(arguments) if isinstance(value, str) and key not in keeps}
    bare = {key: dumped(value.strip(SPACE)) for key, value in texts.items() if value != value.strip(SPACE)}
    return replace(call, arguments=written({**members(call.arguments), **bare})) if bare else call


def _items(arguments: Any) -> Iterable[tuple[str, Any]]:
    return arguments.items() if isinstance(arguments, dict) else ()


def _to_last_closer(dialect: Description, tool: str) -> list[str]:
    """Return the parameters of a tool that end where they are closed last."""
    named = (one.rpartition(".") for one in dialect.to_last_closer)
    return [key for name, _, key in named if name == tool]


def _tag(pattern: str, hole: str, slot: str, name: str) -> _Tag:
    """Fill a pattern of a dialect with a name, and part it at the hole for what it holds."""
    opener, _, closer = pattern.replace(slot, name).partition(hole)
    return _Tag(name, opener.rstrip(), closer.strip())
