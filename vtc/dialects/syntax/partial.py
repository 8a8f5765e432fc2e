"""Tells whether the text so far ends in a proper beginning of markup, so that it may still become some.

    <tool      and it goes on with   _call>\\n{"name": …

An expression for all beginnings would take a group for each letter, which is several times as much to compile as the
one for the whole; here they are a trie. Dozens of dialects begin alike (`<tool_call>`, `<|`): what is alike at the
beginning of some tokens is there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import msgspec

from vtc.dialects.syntax.parts import MOST_SPACE, SPACE, AnyOf, Chars, Group, Lit, Maybe, OneOf, Part, Space

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


class _Node(msgspec.Struct, eq=False, gc=False):
    """A place in the trie: what may follow there. White space is apart, as it stands between all that is loose.

    There are ten thousands of them, of which none leads back: Python's collector need not go through them.
    """

    literals: dict[str, _Node] = {}
    parts: tuple[tuple[Part, _Node], ...] = ()
    space: _Node | None = None
    _steps: dict[str, tuple[_Step, ...]] = {}

    def add(self, parts: Iterable[Part]) -> None:
        """Add a sequence that may follow here."""
        node, last = self, None
        for part in _without_groups(parts):
            if isinstance(part, Lit):
                for character in part.text:
                    node = node.literals.setdefault(character, _Node())
            elif not isinstance(part, Space):
                node = node._behind(part)
            elif part != last:  # white space behind white space is one
                node.space = node.space or _Node()
                node = node.space
            last = part

    def _behind(self, part: Part) -> _Node:
        node = next((node for known, node in self.parts if known == part), None)
        if node is None:
            node = _Node()
            self.parts = (*self.parts, (part, node))
        return node

    def begins(self, text: str, at: int) -> bool:
        """Tell whether more text could make the text from `at` on one of the sequences, and some is missing."""
        node, end = self, len(text)
        while at < end:
            character = text[at]
            steps = node._steps[character] if character in node._steps else node._find(character)
            if not steps:
                return False
            *others, (part, following) = steps
            for other, behind in others:
                places = (at + 1,) if other is None else _ends_of(other, text, at)
                if places is None or any(behind.begins(text, place) for place in places):
                    return True
            if part is None:
                node, at = following, at + 1
                continue
            places = _ends_of(part, text, at)
            if not places:
                return places is None
            *nearer, at = places
            for place in nearer:
                if following.begins(text, place):
                    return True
            node = following
        return bool(node.literals or node.parts or node.space)

    def _find(self, character: str) -> tuple[_Step, ...]:
        """Find the steps that a character may begin, and keep them for the next time: most begin none."""
        steps = tuple(self._beginning_with(character))
        if len(self._steps) < MOST_KEPT:
            self._steps[character] = steps
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


type _Step = tuple[Part | None, _Node]
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
        """Tell whether a token may have begun at `at`."""
        if not 0 < len(text) - at <= self.longest:
            return False
        anywhere, line_start = self._tries
        if anywhere.begins(text, at):
            return True
        return text[at] in line_start.literals and _starts_line(text, at) and line_start.begins(text, at)

    @cached_property
    def _tries(self) -> tuple[_Node, _Node]:
        tries = _Node(), _Node()
        for trie, sequences in zip(tries, (self._anywhere, self._line_start), strict=True):
            for sequence in sequences:
                trie.add(sequence)
        return tries


def _starts_line(text: str, at: int) -> bool:
    """Tell whether nothing but an indentation, or the `>` of a quotation, stands before on the line."""
    return _LINE_START.search(text[max(0, at - INDENT - 1) : at]) is not None


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
