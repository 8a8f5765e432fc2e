"""The common beginning and end of two texts, and the repeated markup between them."""

from __future__ import annotations


def get_common_start(one: str, other: str) -> str:
    """Return the longest text with which both begin."""
    size = min(len(one), len(other))
    return one[: next((at for at in range(size) if one[at] != other[at]), size)]


def get_common_end(one: str, other: str) -> str:
    """Return the longest text with which both end."""
    return get_common_start(one[::-1], other[::-1])[::-1]
