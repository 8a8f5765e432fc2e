"""Finds what a state of the reader looks for: tokens, and the text that may still become one.

What the text so far ends in is held back if it is a proper beginning of a token (`partial.py`). Nothing else is; that
is what makes the result independent of how the text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from vtc.dialects.bounded_cache import PER_CHARACTER
from vtc.dialects.syntax.partial import HELD, INDENT, Partial
from vtc.dialects.syntax.parts import SPACE, Lit, Part, atoms, holds, whole_of

OFFERED = "offered"
"""The group of a name that must be an offered tool's. Names stand in no expression: compiling them would take long, and
once for every set of tools."""

LINE_START = "(?:" + "|".join(rf"(?<=^[ \t>]{{{n}}}%s)" for n in range(INDENT + 1)) + ")"
"""Says that the character just read is the first of its line, up to an indentation (or `>` quoting)."""
ON_LINE_START = "(?(1)|(?!))"
"""Says that it matched: an expression asks it once, in its first group."""


class Token(msgspec.Struct, frozen=True, gc=False):
    """Something that leaves a state, and the name it goes by, if any; what is searched for starts with a literal."""

    name: str
    parts: tuple[Part, ...]
    line_start: bool = False

    @property
    def named(self) -> bool:
        """True if it is one only with the name of an offered tool in it, in the group `OFFERED`."""
        return holds(self.parts, OFFERED)

    @property
    def first(self) -> str:
        """Its first character; empty if that may be one of many."""
        first = self.parts[0]
        return first.text[0] if isinstance(first, Lit) else ""

    @property
    def first_of_line(self) -> str:
        """Its second character, if the first is a line break; else empty."""
        first = self.parts[0]
        return first.text[1:2] if isinstance(first, Lit) and first.text[0] == "\n" else ""

    @property
    def rest(self) -> tuple[Part, ...]:
        """What follows `first`."""
        first = self.parts[0]
        if not isinstance(first, Lit):
            return self.parts
        return (Lit(first.text[1:]), *self.parts[1:]) if len(first.text) > 1 else self.parts[1:]


class Finder(Protocol):
    """What a state's expression is asked; patterns of `re` are the simplest."""

    def search(self, text: str, at: int = 0, /) -> re.Match[str] | None: ...

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None: ...


_patterns: WeakValueDictionary[str, re.Pattern[str]] = WeakValueDictionary()


def _compiled(expression: str) -> re.Pattern[str]:
    """Compile an expression, or get what another scan has of it: grammars that share a dialect share its states."""
    pattern = _patterns.get(expression)
    if pattern is None:
        pattern = _patterns[expression] = re.compile(expression, re.MULTILINE)
    return pattern


class Scan:
    """One state's tokens: how they are found, and what is held back `while_open`, as it may still become one.

    Expressions are compiled when they are first needed, as most replies never get into most states. `firsts` are the
    characters that a token begins with, if that is all there is to know about where to look for one; `lines` are those
    that a token begins with directly after a line break.
    """

    def __init__(
        self,
        while_open: str,
        at_end: str,
        firsts: str = "",
        unnamed: Callable[[], Scan] | None = None,
        lines: str = "",
        partial: Partial | None = None,
        before: str | None = None,
    ) -> None:
        self._while_open = while_open
        self._at_end = at_end
        self.firsts = firsts
        self.lines = lines
        self._unnamed = unnamed
        self._partial = partial
        """What is held back; None if a group `hold` of the expression finds that."""
        self._before = before
        """What may stand before a token that is expected; None if tokens are searched for."""

    def size(self) -> int:
        """Measure what finds its tokens, compiled, in bytes."""
        expressions = {self._while_open, self._at_end}
        return sum(map(len, expressions)) * PER_CHARACTER + (self._partial.size() if self._partial else 0)

    @cached_property
    def while_open(self) -> Finder:
        found, partial = _compiled(self._while_open), self._partial
        if partial is None:
            return found
        return (
            _Searched(found, partial, self.first) if self._before is None else _Expected(found, partial, self._before)
        )

    @cached_property
    def at_end(self) -> Finder:
        return _compiled(self._at_end)

    @cached_property
    def unnamed(self) -> Scan | None:
        """The same without the tokens that need the name of an offered tool; None if it has none of them."""
        return self._unnamed() if self._unnamed else None

    @cached_property
    def first(self) -> re.Pattern[str]:
        """Finds where a token may begin."""
        if not (self.firsts and self.lines) or "\n" in self.firsts:
            return _compiled(f"[{re.escape(self.firsts)}]" if self.firsts else "")
        # One set of characters first, which is what Python finds fast.
        return _compiled(rf"[{re.escape(self.firsts)}\n](?:(?<!\n)|(?=[{re.escape(self.lines)}])|\Z)")


class OrElse(Scan):
    """Expects a token of one scan, or else one of another."""

    def __init__(self, one: Scan, other: Scan) -> None:
        super().__init__("", "")
        self.one, self.other = one, other

    def size(self) -> int:
        return self.other.size()

    @cached_property
    def while_open(self) -> Finder:
        return _Either(self.one.while_open, self.other.while_open)

    @cached_property
    def at_end(self) -> Finder:
        return _Either(self.one.at_end, self.other.at_end)

    @cached_property
    def unnamed(self) -> Scan | None:
        """The same without the tokens of the other scan that need the name of an offered tool."""
        return OrElse(self.one, self.other.unnamed) if self.other.unnamed else None


class _Match:
    """A finder that only looks at one place."""

    def search(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        raise NotImplementedError  # what is expected stands at once


class _Either(_Match):
    def __init__(self, one: Finder, other: Finder) -> None:
        self._one, self._other = one, other

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        return self._one.match(text, at) or self._other.match(text, at)


class _Searched:
    """Finds a token, or what may still become one, whichever stands first."""

    def __init__(self, found: re.Pattern[str], partial: Partial, first: re.Pattern[str]) -> None:
        self._found, self._partial, self._first = found, partial, first

    def search(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        first = self._first.search(text, at)
        if first is None:
            return None
        at, partial = first.start(), self._partial
        if partial.begins(text, at):
            return HELD.match(text, at)
        found, end = self._found.search(text, at), len(text)
        last = found.start() if found else end - 1
        at = max(at + 1, end - partial.longest)
        while at <= last and (first := self._first.search(text, at)) and (at := first.start()) <= last:
            if partial.begins(text, at):
                return HELD.match(text, at)
            at += 1
        return found

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        if self._partial.begins(text, at):
            return HELD.match(text, at)
        return self._found.match(text, at)


class _Expected(_Match):
    """Finds a token behind white space, or what may still become that."""

    def __init__(self, found: re.Pattern[str], partial: Partial, space: str) -> None:
        self._found, self._partial = found, partial
        self._space = _compiled(space)

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        white = self._space.match(text, at)
        if white is None:
            return None
        start = white.end()
        if start == len(text) or text[start:] == "\\" or self._partial.begins(text, start):
            return HELD.match(text, at)
        return self._found.match(text, at)


def searching(tokens: Sequence[Token], at_end: Sequence[Token] = ()) -> Scan:
    """For a state in which text flows until one of `tokens`; those `at_end` count only as the last thing."""
    firsts = [token.first for token in (*tokens, *at_end) if not token.first_of_line]
    lines = [token.first_of_line for token in tokens]
    found = _search(tokens)
    return Scan(
        found,
        _search(tokens, at_end) if at_end else found,
        "".join(dict.fromkeys(firsts)) if all(firsts) else "",
        _unnamed(tokens, lambda others: searching(others, at_end)),
        "".join(dict.fromkeys(lines)),
        partial=_partial(tokens),
    )


def expecting(tokens: Sequence[Token], space: str = SPACE, end: str = "") -> Scan:
    """For a state in which, after white space, one of `tokens` must follow (used with `match`), or the end of the reply
    if that has the name `end`.
    """
    found = _search(tokens)
    final = rf"{found}|(?P<{end}>\Z)" if end else found
    unnamed = _unnamed(tokens, lambda others: expecting(others, space, end))
    return Scan(f"{space}(?:{found})", f"{space}(?:{final})", unnamed=unnamed, partial=_partial(tokens), before=space)


def _partial(tokens: Sequence[Token]) -> Partial:
    line_start = [token.parts for token in tokens if token.line_start]
    return Partial([token.parts for token in tokens if not token.line_start], line_start)


def _unnamed(tokens: Sequence[Token], make: Callable[[Sequence[Token]], Scan]) -> Callable[[], Scan] | None:
    others = [token for token in tokens if not token.named]
    return None if len(others) == len(tokens) else lambda: make(others)


def _search(tokens: Sequence[Token], at_end: Sequence[Token] = ()) -> str:
    # Grouped by first character, so that the expression starts with a character class, which
    # is what lets `re` skip through plain text at full speed.
    by_first: dict[str, list[_Sought]] = {}
    line_start = ""
    for token, end in [*((token, "") for token in tokens), *((token, r"\s*\Z") for token in at_end)]:
        start = ""
        if token.line_start:
            start = ON_LINE_START if token.first else LINE_START.replace("%s", "")
            line_start += re.escape(token.first)
        by_first.setdefault(token.first, []).append(_Sought(token.name, atoms(token.rest), start, end))
    choices: list[str] = []
    for first, group in by_first.items():
        choice = "|".join(_found(group))
        choices.append(f"(?<={re.escape(first)})(?:{choice})" if first else choice)
    if not choices:
        return r"(?!)"
    # What may begin with any of many characters is only ever expected, never searched for.
    unanchored = choices.pop(list(by_first).index("")) if "" in by_first else ""
    firsts = "".join(re.escape(first) for first in by_first if first)
    asked = f"({LINE_START.replace('%s', f'[{line_start}]')})?" if line_start else ""
    anchored = f"[{firsts}]{asked}(?:{'|'.join(choices)})" if choices else ""
    return "|".join(filter(None, (anchored, unanchored)))


class _Sought(msgspec.Struct, frozen=True, gc=False):
    """The atoms of a token after its first character; `start` and `end` are asserted there."""

    name: str
    atoms: tuple[str | Part, ...]
    start: str
    end: str

    def behind(self, count: int) -> str:
        """The expression for what follows the first `count` atoms."""
        atoms = self.atoms[count:]
        rest = "".join(re.escape(one) if isinstance(one, str) else whole_of(one, self.name) for one in atoms)
        return f"({f'?P<{self.name}>' if self.name else '?:'}{self.start}{rest}{self.end})"


def _found(group: Sequence[_Sought], depth: int = 0) -> list[str]:
    """The choices for whole tokens that are alike up to `depth`; where two would match, the first is meant to."""
    choices: list[str] = []
    run: dict[str, list[_Sought]] = {}  # by next character: only one can match, so their order does not matter
    for sought in group:
        atom = sought.atoms[depth] if depth < len(sought.atoms) else None
        if isinstance(atom, str) and not sought.start:
            run.setdefault(atom, []).append(sought)
        else:
            choices += [*_characters(run, depth), sought.behind(depth)]
            run.clear()
    return [*choices, *_characters(run, depth)]


def _characters(run: dict[str, list[_Sought]], depth: int) -> list[str]:
    choices = []
    for character, group in run.items():
        found = _found(group, depth + 1) if len(group) > 1 else [group[0].behind(depth + 1)]
        choices.append(re.escape(character) + (found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"))
    return choices
