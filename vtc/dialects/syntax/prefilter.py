"""Many tokens looked for at once, in two steps: how they begin, then what begins so.

    <tool_call>   begins heads of hermes, qwen3-coder, GLM …    one expression for all of these beginnings
    {"name": …    and only where one stands: which of those     one expression for each beginning, made when it is met

Of the second kind most replies need none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Self

from vtc.dialects.bounded_cache import COMPILED
from vtc.dialects.syntax.pattern import SPACE, Lit, Maybe, OneOf, Part
from vtc.dialects.syntax.scan import Finder, Scan, Token, expecting, searching

_numbers = itertools.count()
MOST = 4
"""Beginnings of one token that are told apart."""

type Beginning = tuple[str, bool]
"""A text, and whether it must start its line."""


class _ByBeginning(Scan):
    """A scan for many tokens: the expressions for some of them are made when it is met how they begin."""

    finder: Callable[..., Finder]
    one_step: Callable[[Sequence[Token]], Scan]

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self._numbers: dict[str, int] = {}  # by beginning

    @cached_property
    def while_open(self) -> Finder:
        return self.finder(self, final=False)

    @cached_property
    def at_end(self) -> Finder:
        return self.finder(self, final=True)

    @cached_property
    def unnamed(self) -> Self:
        return type(self)([token for token in self.tokens if not token.named])

    def size(self) -> int:
        """Measure it without what is made when it is needed, in bytes."""
        return 0

    def _some(self, beginning: str, tokens: Callable[[], list[Token]]) -> Scan:
        """Get the scan for the tokens that begin so, or make and keep it: one for all grammars that have the same."""
        if (number := self._numbers.get(beginning)) is None:
            number = self._numbers[beginning] = _number(self.one_step, tuple(tokens()))
        return COMPILED.get_or_make(("tokens", number), lambda: self.one_step(tokens()), Scan.size, lasting=True)


class _Steps:
    """One of the two expressions of a prefilter."""

    def __init__(self, prefilter: Prefilter, *, final: bool) -> None:
        self._final = final
        self._inner = prefilter.inner
        self._outer = prefilter.outer.at_end if final else prefilter.outer.while_open
        self._last: tuple[str, Finder] = ("", self._outer)  # prose is full of the same beginning

    def search(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        while begun := self._outer.search(text, at):
            if begun.lastgroup:
                return begun  # it may still become one
            beginning, finder = self._last
            if begun[0] != beginning:
                finder = self._finder(begun[0])
            at = begun.start()
            if found := finder.match(text, at):
                return found
            at += 1
        return None

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        begun = self._outer.match(text, at)
        return begun if begun is None or begun.lastgroup else self._finder(begun[0]).match(text, at)

    def _finder(self, beginning: str) -> Finder:
        scan = self._inner(beginning)
        finder = scan.at_end if self._final else scan.while_open
        self._last = (beginning, finder)
        return finder


class Prefilter(_ByBeginning):
    """What `searching` gives, for many tokens."""

    finder = _Steps
    one_step = staticmethod(searching)

    @cached_property
    def first(self) -> re.Pattern[str]:
        return self.outer.first

    @cached_property
    def firsts(self) -> str:  # type: ignore[override]  # a scan is given its own
        return self.outer.firsts

    @cached_property
    def lines(self) -> str:  # type: ignore[override]  # as above
        return self.outer.lines

    @cached_property
    def outer(self) -> Scan:
        """Finds the longest beginning."""
        return _scan(frozenset(one for _, own in self._own for one in own))

    def inner(self, text: str) -> Scan:
        """Finds the token where a beginning was found: any that begins so, or with less of it."""
        return self._some(text, lambda: [token for token, own in self._own if any(text.startswith(t) for t, _ in own)])

    @cached_property
    def _own(self) -> tuple[tuple[Token, tuple[Beginning, ...]], ...]:
        # A head of which a lenient reading leaves no markup to begin with is not looked for.
        return tuple((token, tuple(one for one in beginnings(token) if one[0])) for token in self.tokens)


@lru_cache(maxsize=8)
def white(space: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds white space of a kind, and that up to the end of the text."""
    return re.compile(space), re.compile(rf"{space}(?P<hold>\\?\Z)")


class _ExpectedTokensFinder:
    """One of the two expressions of what is expected behind white space."""

    def __init__(self, expected: ExpectedTokens, *, final: bool) -> None:
        self._expected = expected
        self._final = final

    def search(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        raise NotImplementedError  # what is expected stands at once

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None:
        white, blank = self._expected.white
        if held := blank.match(text, at):
            return None if self._final else held
        start = white.match(text, at)
        assert start is not None
        return self._expected.find(text, at, start.end(), final=self._final)


class ExpectedTokens(_ByBeginning):
    """What `expecting` gives, for many tokens: a reply that begins with none of their first characters needs none."""

    finder = _ExpectedTokensFinder
    one_step = staticmethod(expecting)
    firsts = ""
    white = white(SPACE)

    def find(self, text: str, at: int, start: int, *, final: bool) -> re.Match[str] | None:
        """Find the token that begins at `start`, with the white space before it."""
        first = text[start]
        scan = self._some(first, lambda: [token for token in self.tokens if token.first in ("", first)])
        return (scan.at_end if final else scan.while_open).match(text, at)


class FollowingTokens(ExpectedTokens):
    """Expects what a prefilter finds, of some `kinds`, or else one of other tokens."""

    def __init__(
        self, prefilter: Prefilter, kinds: Collection[str], others: Sequence[Token], space: str = SPACE
    ) -> None:
        super().__init__([*(token for token in prefilter.tokens if _kind(token.name) in kinds), *others])
        self.white = white(space)
        self._space = space
        self._prefilter = prefilter
        self._kinds = kinds
        self._others = others
        self._other = searching(others)

    @cached_property
    def unnamed(self) -> FollowingTokens:
        others = [token for token in self._others if not token.named]
        return FollowingTokens(self._prefilter.unnamed, self._kinds, others, self._space)

    def find(self, text: str, at: int, start: int, *, final: bool) -> re.Match[str] | None:
        """Find the token that begins at `start`."""
        known, other = (one.at_end if final else one.while_open for one in (self._prefilter, self._other))
        found = known.match(text, start)
        return found if found and _kind(found.lastgroup or "") in ("hold", *self._kinds) else other.match(text, start)


def _kind(token: str) -> str:
    return token.rstrip("0123456789")


@lru_cache(maxsize=1024)
def _number(_step: Callable[[Sequence[Token]], Scan], _tokens: tuple[Token, ...]) -> int:
    """Number what is made of some tokens: the same of the same, as they are much to compare at each look."""
    return next(_numbers)


@lru_cache(maxsize=64)
def _scan(known: frozenset[Beginning]) -> Scan:
    """Finds the longest beginning. Which one it is its text says; groups would have to be looked after for each."""
    ordered = sorted(known, key=lambda one: (-len(one[0]), one))
    return searching([Token("", (Lit(text),), line_start=line) for text, line in ordered])


def beginnings(token: Token) -> list[Beginning]:
    """The literal texts that a token can begin with, as far as they are few."""
    return [(text, token.line_start) for text in _texts(token.parts)]


def _texts(parts: Iterable[Part]) -> list[str]:
    found = [""]
    for part in parts:
        words = _words(part)
        if words is None or len(found) * len(words) > MOST:
            break
        found = ["".join(pair) for pair in itertools.product(found, words)]
    return list(dict.fromkeys(found))


def _words(part: Part) -> list[str] | None:
    """All that a part can be, if that is some texts."""
    match part:
        case Lit(text):
            return [text]
        case OneOf(words, _, any_case=False):
            return list(words)
        case Maybe(inner):
            options = [_words(one) for one in inner]
            known = [one for one in options if one is not None]
            return None if len(known) < len(options) else ["", *map("".join, itertools.product(*known))]
    return None
