"""The rules of `Each`: members in any order, each at most once, as far as that is worth its rules.

A rule is a set of members that may still come: those of `free` that are left, and those of `rest` from a place on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec


class Named(msgspec.Struct, frozen=True):
    """A member, by the name of its rule."""

    rule: str
    required: bool


class Members:
    """Writes the rules of one `Each`."""

    def __init__(self, name: str, gap: str, free: Sequence[Named], rest: Sequence[Named]) -> None:
        """`gap` is what stands between members."""
        self._name = name
        self._gap = gap
        self._free = free
        self._rest = rest

    def rules(self) -> Iterator[tuple[str, str]]:
        """Tell the name and the text of each rule, of all members first."""
        everything = (1 << len(self._free)) - 1
        yield self._name, self._text(everything, 0, "")
        waiting, done = self._behind(everything, 0, ""), set[tuple[int, int]]()
        while waiting:
            state = waiting.pop(0)
            if state not in done:
                done.add(state)
                yield self._rule(*state), self._text(*state, self._gap)
                waiting += self._behind(*state, self._gap)

    def _rule(self, left: int, at: int) -> str:
        return f"{self._name}-{left}-{at}"

    def _text(self, left: int, at: int, gap: str) -> str:
        coming = [*self._of_free(left, at), *self._of_rest(left, at, gap)]
        options = [f"{gap} {one.rule} {self._rule(*after)}".strip() for one, after in coming]
        if self._skips(left, at, gap):
            options.append(self._rule(left, at + 1))
        elif not self._needs(left, at):
            options.append('""')
        return " | ".join(options)

    def _skips(self, left: int, at: int, gap: str) -> bool:
        """True if a rule goes on with that of the next place, where only the rest is left: its rules would grow else.

        With others left there would be two ways to the same text.
        """
        return not left and gap == self._gap and at < len(self._rest) and not self._rest[at].required

    def _of_free(self, left: int, at: int) -> Iterator[tuple[Named, tuple[int, int]]]:
        return ((one, (left & ~(1 << bit), at)) for bit, one in enumerate(self._free) if left >> bit & 1)

    def _of_rest(self, left: int, at: int, gap: str) -> Iterator[tuple[Named, tuple[int, int]]]:
        for place in range(at, len(self._rest)):
            yield self._rest[place], (left, place + 1)
            if self._rest[place].required or self._skips(left, at, gap):
                return

    def _behind(self, left: int, at: int, gap: str) -> list[tuple[int, int]]:
        found = [after for _, after in (*self._of_free(left, at), *self._of_rest(left, at, gap))]
        return [*found, (left, at + 1)] if self._skips(left, at, gap) else found

    def _needs(self, left: int, at: int) -> bool:
        """True if a required one has not come yet."""
        free = (one for bit, one in enumerate(self._free) if left >> bit & 1)
        return any(one.required for one in (*free, *self._rest[at:]))
