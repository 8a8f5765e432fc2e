"""Two texts beside each other, line by line, for people to see what changed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

LONG = 2_000
"""Lines of both together beyond which lines that often occur are not looked for: that would take seconds."""


class Row(NamedTuple):
    """A line of each; None where the other's line has no counterpart."""

    left: str | None
    right: str | None
    changed: bool


def rows(left: Sequence[str], right: Sequence[str]) -> list[Row]:
    """Pair the lines: equal ones beside each other, and in between what one or the other has."""
    matcher = SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > LONG)
    found: list[Row] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        pairs = zip_longest(left[a:b], right[c:d])
        found += [Row(before, after, tag != "equal") for before, after in pairs]
    return found
