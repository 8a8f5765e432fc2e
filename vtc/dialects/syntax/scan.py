"""Finds what a state of the reader looks for: tokens, and the text that may still become one.

What the text so far ends in is held back if it is a proper beginning of a token (`Partial`). Nothing else is; that
is what makes the result independent of how the text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from vtc.dialects.bounded_cache import PER_CHARACTER
from vtc.dialects.syntax.pattern import (
    MOST_SPACE,
    SPACE,
    AnyOf,
    Chars,
    Group,
    Lit,
    Maybe,
    OneOf,
    Part,
    Space,
    atoms,
    holds,
    whole_of,
)

# Tells whether the text so far ends in a proper beginning of markup, so that it may still become some.
#
#     <tool      and it goes on with   _call>\n{"name": …
#
# An expression for all beginnings would take a group for each letter, which is several times as much to compile as the
# one for the whole; here they are a trie. Dozens of dialects begin alike (`<tool_call>`, `<|`): what is alike at the
# beginning of some tokens is there once.


PER_ATOM = 360
"""Bytes that a trie takes for each character or other part, at most."""
HELD = re.compile(r"(?P<hold>(?s:.*))")
"""Matches all the text that is held back."""

MOST_KEPT = 16
"""Characters for which a place in the trie keeps what they may begin."""
INDENT = 8
"""Deepest indentation at which a line still counts as starting with its markup."""

_SPACE = re.compile(SPACE)
_LINE_START = re.compile(rf"^[ \t>]{{0,{INDENT}}}\Z", re.MULTILINE)


class _TrieNode(msgspec.Struct, eq=False, gc=False):
    """A place in the trie: what may follow there. White space is apart, as it stands between all that is loose.

    There are ten thousands of them, of which none leads back: Python's collector need not go through them.
    """

    literals: dict[str, _TrieNode] = {}
    parts: tuple[tuple[Part, _TrieNode], ...] = ()
    space: _TrieNode | None = None
    known: dict[str, tuple[_Step, ...]] = {}

    def add(self, parts: Iterable[Part]) -> None:
        """Add a sequence that may follow here."""
        node, last = self, None
        for part in _without_groups(parts):
            if isinstance(part, Lit):
                for character in part.text:
                    node = node.literals.setdefault(character, _TrieNode())
            elif not isinstance(part, Space):
                node = node._behind(part)
            elif part != last:  # white space behind white space is one
                node.space = node.space or _TrieNode()
                node = node.space
            last = part

    def _behind(self, part: Part) -> _TrieNode:
        node = next((node for known, node in self.parts if known == part), None)
        if node is None:
            node = _TrieNode()
            self.parts = (*self.parts, (part, node))
        return node

    def steps(self, character: str) -> tuple[_Step, ...]:
        """Find the steps that a character may begin, and keep them for the next time: most begin none."""
        steps = tuple(self._beginning_with(character))
        if len(self.known) < MOST_KEPT:
            self.known[character] = steps
        return steps

    def _beginning_with(self, character: str) -> Iterator[_Step]:
        if following := self.literals.get(character):
            yield None, following
        if self.space:
            if _begins_space(character):
                yield Space(), self.space
            else:
                yield from self.space._beginning_with(character)
        for part, behind in self.parts:
            if _can_begin((part.parts if isinstance(part, Maybe) else (part,)), character):
                yield part, behind
            elif isinstance(part, Maybe):
                yield from behind._beginning_with(character)


type _Step = tuple[Part | None, _TrieNode]
"""A part that may follow, and the place behind it; None stands for the character that the step was found by."""


class Partial:
    """Finds where some tokens may begin that the text does not yet have to the end.

    Each is a sequence of parts; those of `line_start` count only as the first of their line.
    """

    def __init__(self, anywhere: Sequence[Sequence[Part]], line_start: Sequence[Sequence[Part]] = ()) -> None:
        self._anywhere, self._line_start = anywhere, line_start

    def size(self) -> int:
        """Measure it, made, in bytes."""
        parts = [part for sequence in (*self._anywhere, *self._line_start) for part in sequence]
        return PER_ATOM * sum(len(part.text) if isinstance(part, Lit) else 1 for part in parts)

    @cached_property
    def longest(self) -> int:
        """The most characters that a beginning has."""
        return max((_longest(sequence) for sequence in (*self._anywhere, *self._line_start)), default=0)

    def begins(self, text: str, at: int) -> bool:
        """Tell whether a token may have begun at `at`: more text could make one of it, and some is missing."""
        end = len(text)
        if not 0 < end - at <= self.longest:
            return False
        anywhere, line_start = self._tries
        places = [(anywhere, at)]
        if text[at] in line_start.literals and _LINE_START.search(text[max(0, at - INDENT - 1) : at]):
            places.append((line_start, at))
        while places:
            node, at = places.pop()
            if at == end:
                if node.literals or node.parts or node.space:
                    return True
                continue
            character, known = text[at], node.known
            ends: Collection[int] | None
            for part, following in known[character] if character in known else node.steps(character):
                if part is None:
                    places.append((following, at + 1))
                    continue
                if type(part) is Space:
                    space = _SPACE.match(text, at)
                    after = space.end() if space else at
                    ends = None if after == end or text[after:] == "\\" else (after,)
                else:
                    ends = _ends_of(part, text, at)
                if ends is None:
                    return True
                places += [(following, after) for after in ends]
        return False

    @cached_property
    def _tries(self) -> tuple[_TrieNode, _TrieNode]:
        tries = _TrieNode(), _TrieNode()
        for trie, sequences in zip(tries, (self._anywhere, self._line_start), strict=True):
            for sequence in sequences:
                trie.add(sequence)
        return tries


def _without_groups(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        match part:
            case Group(inner, _):
                yield from _without_groups(inner)
            case Chars(allowed, most, _):
                yield Chars(allowed, most)
            case OneOf(words, _, any_case):
                yield OneOf(words, any_case=any_case)
            case _:
                yield part


def _longest(parts: Iterable[Part]) -> int:
    return sum(map(_longest_of, parts))


def _longest_of(part: Part) -> int:
    match part:
        case Lit(text):
            return len(text)
        case Space():
            return 2 * MOST_SPACE + 1  # of two characters each; half of one may follow
        case Chars(_, most, _):
            return most
        case OneOf(words, _, _):
            return max(map(len, words))
        case Maybe(parts) | Group(parts, _):
            return _longest(parts)
        case AnyOf(choices):
            return max(map(_longest, choices))


def _begins_space(character: str) -> bool:
    return character.isspace() or character == "\\"


def _can_begin(parts: Iterable[Part], character: str) -> bool:
    """Tell whether a sequence can begin with a character, or be empty."""
    for part in parts:
        match part:
            case Lit(text):
                return text[0] == character
            case Space():
                if _begins_space(character):
                    return True
            case Chars(allowed, _, _):
                return bool(_run(allowed, 1).match(character))
            case OneOf(words, _, any_case):
                firsts = {word[:1].lower() if any_case else word[:1] for word in words}
                return "" in firsts or (character.lower() if any_case else character) in firsts
            case Maybe(inner):
                if _can_begin(inner, character):
                    return True
            case AnyOf(choices):
                return any(_can_begin(choice, character) for choice in choices)
            case Group(inner, _):
                return _can_begin(inner, character)
    return True


def _ends(part: Part, text: str, starts: set[int]) -> set[int] | None:
    """Find where a part that begins at one of some places may end; None if the text ends within it."""
    ends: set[int] = set()
    for at in starts:
        found = _ends_of(part, text, at)
        if found is None:
            return None
        ends |= found
    return ends


def _ends_of(part: Part, text: str, at: int) -> set[int] | None:
    """Find where a part that begins at `at` may end; None if the text ends within it."""
    rest = len(text) - at
    match part:
        case Lit(literal):
            if text.startswith(literal, at):
                return {at + len(literal)}
            return None if rest < len(literal) and literal.startswith(text[at:]) else set()
        case Space():
            end = _after_space(text, at)
            return None if end is None else {end}
        case Chars(allowed, most, _):
            run = _run(allowed, most).match(text, at)
            if run is None:
                return set()
            return None if run.end() == rest + at else set(range(at + 1, run.end() + 1))
        case OneOf(words, _, any_case):
            longest = max(map(len, words))
            here = text[at : at + longest].lower() if any_case else text[at : at + longest]
            known = [word.lower() for word in words] if any_case else words
            if rest < longest and any(len(word) > rest and word.startswith(here) for word in known):
                return None
            return {at + len(word) for word in known if here.startswith(word)}
        case Maybe(parts):
            ends = _behind(parts, text, at)
            return None if ends is None else {at, *ends}
        case AnyOf(choices):
            found = [_behind(parts, text, at) for parts in choices]
            return None if None in found else {end for ends in found if ends for end in ends}
        case Group(parts, _):
            return _behind(parts, text, at)


def _after_space(text: str, at: int) -> int | None:
    """Find the end of the white space that may stand at `at`; None if the text ends within it."""
    if not _begins_space(text[at]):
        return at
    space = _SPACE.match(text, at)
    end = space.end() if space else at
    return None if end == len(text) or text[end:] == "\\" else end


def _behind(parts: Sequence[Part], text: str, at: int) -> set[int] | None:
    """Find where a sequence that begins at `at` may end; None if the text ends within it."""
    places: set[int] | None = {at}
    for part in parts:
        if not places:
            return places
        if len(text) in places:
            return None
        places = _ends(part, text, places)
    return places


@lru_cache(maxsize=64)
def _run(allowed: str, most: int) -> re.Pattern[str]:
    return re.compile(f"[{allowed}]{{1,{most}}}")


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
            _Searched(found, partial, self.first)
            if self._before is None
            else _ExpectedFinder(found, partial, self._before)
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


class _ExpectedFinder(_Match):
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
