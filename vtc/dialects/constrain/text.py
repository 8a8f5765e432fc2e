"""Text that ends where our reader ends it, as the states of an automaton.

Grammars have no "any text without this", so it is spelled out: one state for each beginning of what must not occur that
the text so far may end in. What must not occur are the very parts that the reader looks for, their loose white space
included: with the plain closer alone, a file that holds it would be cut there without a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vtc.dialects.bounded_cache import COMPILED
from vtc.dialects.constrain.tree import Text
from vtc.dialects.syntax.parts import AnyOf, Chars, Group, Lit, Maybe, OneOf, Part, Space

BLANKS = " \t\n\r\f\v"
"""White space between markup; the reader skips that of other scripts, too, which no model writes there."""


class State(msgspec.Struct, frozen=True):
    """One state: the characters that lead elsewhere, by state; those that may not follow; where all others lead."""

    moves: tuple[tuple[str, int], ...]
    banned: str
    others: int
    final: bool
    """The text may end here."""


class _Net:
    """A net of characters: what of the stops may go on from where the text is."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[str, int]]] = []
        self.skips: list[list[int]] = []
        self.stops: set[int] = set()
        self.lasts: set[int] = set()

    def node(self) -> int:
        self.steps.append([])
        self.skips.append([])
        return len(self.steps) - 1

    def add(self, parts: Sequence[Part], at: int) -> int:
        """Add a sequence behind a node; return the node after it. What begins with any character ends it."""
        for part in parts:
            match part:
                case Lit(text):
                    for character in text:
                        at = self._step(at, character)
                case Space():
                    loop = self.node()
                    self.skips[at].append(loop)
                    self.steps[loop].append((BLANKS, loop))
                    self.steps[self._step(loop, "\\")].append(("n", loop))
                    at = loop
                case OneOf(words, _, any_case):
                    at = self._join(self._word(word, at, any_case) for word in words)
                case Maybe(inner):
                    at = self._join([at, self.add(inner, at)])
                case AnyOf(choices):
                    at = self._join([self.add(inner, at) for inner in choices])
                case Group(inner, _):
                    at = self.add(inner, at)
                case Chars(allowed):
                    if allowed != r"\s":
                        return at
                    after = self.node()
                    self.steps[at].append((BLANKS, after))
                    at = after
        return at

    def closure(self, nodes: Iterable[int]) -> frozenset[int]:
        found: set[int] = set()
        waiting = [*nodes]
        while waiting:
            if (node := waiting.pop()) not in found:
                found.add(node)
                waiting += self.skips[node]
        return frozenset(found)

    def _step(self, at: int, characters: str) -> int:
        after = self.node()
        self.steps[at].append((characters, after))
        return after

    def _word(self, word: str, at: int, any_case: bool) -> int:
        for character in word:
            at = self._step(at, "".join({character.lower(), character.upper()}) if any_case else character)
        return at

    def _join(self, ends: Iterable[int]) -> int:
        ends, after = [*ends], self.node()
        for end in ends:
            self.skips[end].append(after)
        return after


PER_STATE = 1000
"""Bytes of a state."""


def states(text: Text) -> tuple[State, ...]:
    """List the states of a text; it begins in the first."""
    return COMPILED.get_or_make((State, text), lambda: _made(text), lambda found: len(found) * PER_STATE)


def _made(text: Text) -> tuple[State, ...]:
    net = _Net()
    root = net.node()
    net.stops = {net.add(parts, root) for parts in text.stops}
    net.lasts = {net.add(parts, root) for parts in text.last}
    start = net.closure([root])
    numbers = {start: 0}
    waiting, found = [start], []
    while waiting:
        here = waiting.pop(0)
        leads: dict[int, str] = {}
        banned = ""
        for character in sorted({one for node in here for characters, _ in net.steps[node] for one in characters}):
            moved = [to for node in here for characters, to in net.steps[node] if character in characters]
            there = net.closure([root, *moved])
            if there & net.stops:
                banned += character
                continue
            if there not in numbers:
                numbers[there] = len(numbers)
                waiting.append(there)
            leads[numbers[there]] = leads.get(numbers[there], "") + character
        moves = tuple((characters, to) for to, characters in leads.items())
        found.append(State(moves, banned, 0, not here & net.lasts))
    return _merged(found)


def _merged(found: Sequence[State]) -> tuple[State, ...]:
    """Make one state of those that go on alike."""
    alike, kinds = [0] * len(found), 0
    while True:
        numbers: dict[tuple[object, ...], int] = {}
        again = []
        for number, state in enumerate(found):
            leads = {one: alike[to] for characters, to in state.moves for one in characters}
            leads = {one: to for one, to in leads.items() if to != alike[state.others]}
            kind = (alike[number], state.final, frozenset(state.banned), alike[state.others], frozenset(leads.items()))
            again.append(numbers.setdefault(kind, len(numbers)))
        alike = again
        if len(numbers) == kinds:
            break
        kinds = len(numbers)
    return tuple(_renumbered(found[alike.index(number)], alike) for number in range(kinds))


def _renumbered(state: State, alike: Sequence[int]) -> State:
    leads: dict[int, str] = {}
    for characters, to in state.moves:
        if alike[to] != alike[state.others]:
            leads[alike[to]] = leads.get(alike[to], "") + characters
    moves = tuple(("".join(sorted(characters)), to) for to, characters in leads.items())
    return State(moves, state.banned, alike[state.others], state.final)


def holds(text: Text, value: str) -> bool:
    """True if a value is such a text."""
    found = states(text)
    at = found[0]
    for character in value:
        if character in at.banned:
            return False
        at = found[next((to for characters, to in at.moves if character in characters), at.others)]
    return at.final
