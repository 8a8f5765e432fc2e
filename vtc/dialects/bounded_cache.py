"""A cache that is bounded in bytes, and the one that all exchanges share: patterns compiled for names of tools.

Counts would bound nothing: a client chooses how many tools it declares and how long their names are.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

MOST_COMPILED = 32 << 20
"""Bytes of compiled patterns that are kept."""
ENTRY = 512
"""Bytes that an entry takes besides what is kept in it."""


class _Kept(NamedTuple):
    thing: object
    size: int
    used: int


class BoundedCache:
    """Keeps things by key, `most_bytes` of them; the one that was not asked for longest goes first."""

    def __init__(self, most_bytes: int, after_drop: Callable[[], object] = lambda: None) -> None:
        self.most_bytes = most_bytes
        self.size = 0
        """Bytes of what is kept now."""
        self._after_drop = after_drop
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def get_or_make[T](self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int], now: int = 0) -> T:
        """Get what is kept for `key`, or make it and keep it. It is shared and must not be changed.

        `size_of` measures it, in bytes; what is too large for the cache is made each time. `now` is what
        `drop_unused` goes by.
        """
        known = self._kept.pop(key, None)
        if known is not None:
            self._kept[key] = known if known.used == now else known._replace(used=now)
            return known.thing  # type: ignore[return-value]  # `make` made it
        thing = make()
        size = size_of(thing) + ENTRY
        if size > self.most_bytes:
            self._after_drop()
            return thing
        self._kept[key] = _Kept(thing, size, now)
        self.size += size
        if self.size > self.most_bytes:
            while self.size > self.most_bytes:
                self._drop()
            self._after_drop()
        return thing

    def drop_unused(self, since: int) -> None:
        """Drop what was last asked for before `since`."""
        while self._kept and next(iter(self._kept.values())).used < since:
            self._drop()

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self.size = 0
        self._after_drop()

    def _drop(self) -> None:
        _, dropped = self._kept.popitem(last=False)
        self.size -= dropped.size


# Python keeps the patterns compiled last by itself, so that of one that is dropped here nothing would be freed.
COMPILED = BoundedCache(MOST_COMPILED, after_drop=re.purge)
"""Patterns with names of tools and of parameters in them. Of a client they hold nothing else."""
PER_CHARACTER = 8
"""Bytes that an expression takes, compiled, for each character that it is written with."""
