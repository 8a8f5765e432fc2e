"""The common beginning and end of two texts, and the markup that repeats between items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAX_SPLITS = 3
"""Maximum number of splits that are tried for one gap."""


def get_common_start(one: str, other: str) -> str:
    """Return the longest text with which both begin."""
    size = min(len(one), len(other))
    return one[: next((at for at in range(size) if one[at] != other[at]), size)]


def get_common_end(one: str, other: str) -> str:
    """Return the longest text with which both end."""
    return get_common_start(one[::-1], other[::-1])[::-1]


class Split(NamedTuple):
    """The markup of a list of items."""

    before: str
    """The opener of the list."""
    opener: str
    """The opener of an item."""
    closer: str
    separator: str
    after: str
    """The closer of the list."""


def split_repeated(head: str, gap: str, tail: str) -> Iterator[Split]:
    """Split the texts before the first item, between two items, and after the last one; the likeliest split first.

    The gap is the closer of an item, the separator and the opener of the next: the tail begins with the closer, the
    head ends with the opener.
    """
    closed = len(get_common_start(gap, tail))
    opened = len(gap) - len(get_common_end(gap, head))
    if opened <= closed:  # the longest opener first
        cuts = [(at, at) for at in range(opened, closed + 1) if _is_boundary(gap, at)]
    else:
        ends = [at for at in range(closed, -1, -1) if _is_boundary(gap, at)][:2]
        begins = [at for at in range(opened, len(gap) + 1) if _is_boundary(gap, at)][:2]
        cuts = [(end, begin) for end in ends for begin in begins]
    for end, begin in cuts[:MAX_SPLITS]:
        # White space between items belongs to the separator.
        opener, closer = gap[begin:].lstrip(), gap[:end].rstrip()
        separator = gap[len(closer) : len(gap) - len(opener)]
        yield Split(head.removesuffix(opener), opener, closer, separator, tail.removeprefix(closer))


def _is_boundary(text: str, at: int) -> bool:
    """Return True if a place is neither inside a tag nor inside a word."""
    inside_tag = text.rfind("<", 0, at) > text.rfind(">", 0, at)
    inside_word = text[at - 1 : at].isalnum() and text[at : at + 1].isalnum()
    return at in (0, len(text)) or not (inside_tag or inside_word)
