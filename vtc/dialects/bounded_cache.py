"""A cache that is bounded in bytes, and the one that all exchanges share: what is made of dialects and of tools.

A number of entries would bound nothing: a model chooses how many names it writes and how long they are.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import NamedTuple

MAX_COMPILED_BYTES = 32 << 20
"""Bytes of compiled patterns that are kept."""
ENTRY_OVERHEAD_BYTES = 512
"""Bytes that an entry takes besides its value."""


class _CacheEntry(NamedTuple):
    value: object
    size: int
    lasting: bool = False


class BoundedCache:
    """Keeps values by key, up to a number of bytes. The entry that was not asked for longest is evicted first.

    Threads may share one: large replies are read beside the event loop.
    """

    def __init__(self, most_bytes: int, on_evict: Callable[[], object] = lambda: None) -> None:
        self.max_bytes = most_bytes
        self.size = 0
        """Bytes of all entries."""
        self._on_evict = on_evict
        self._entries: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._lock = Lock()

    def get_or_make[T](
        self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int], *, lasting: bool = False
    ) -> T:
        """Get the value for `key`, or make and keep it. It is shared and must not be changed.

        `size_of` gives its bytes. A value that is larger than the cache is made each time. A `lasting` one holds
        nothing that a client or a model said: `forget` leaves it.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry.value  # type: ignore[return-value]  # `make` made it
        value = make()  # takes its time, and may ask for another key
        size = size_of(value) + ENTRY_OVERHEAD_BYTES
        with self._lock:
            if size <= self.max_bytes:
                self._store_entry(key, _CacheEntry(value, size, lasting))
            full = self.size > self.max_bytes
            while self.size > self.max_bytes:
                self._evict()
        if full or size > self.max_bytes:
            self._on_evict()
        return value

    def get(self, key: Hashable) -> object:
        """Get what was put there for `key`; None if that is nothing, or evicted."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            entry = self._entries.get(key)
        return entry.value if entry else None

    def store(self, key: Hashable, value: object, size: int) -> None:
        """Keep a value of so many bytes in the place of the one that was there, unless it is larger than the cache."""
        with self._lock:
            if old := self._entries.pop(key, None):
                self.size -= old.size
            if size + ENTRY_OVERHEAD_BYTES <= self.max_bytes:
                self._store_entry(key, _CacheEntry(value, size + ENTRY_OVERHEAD_BYTES))
            while self.size > self.max_bytes:
                self._evict()

    def clear(self) -> None:
        """Evict all entries."""
        with self._lock:
            self._entries.clear()
            self.size = 0
        self._on_evict()

    def evict_temporary(self) -> None:
        """Evict all entries that are not lasting."""
        with self._lock:
            for key in [key for key, entry in self._entries.items() if not entry.lasting]:
                self.size -= self._entries.pop(key).size
        self._on_evict()

    def _store_entry(self, key: Hashable, entry: _CacheEntry) -> None:
        if old := self._entries.pop(key, None):  # another thread was faster
            self.size -= old.size
        self._entries[key] = entry
        self.size += entry.size

    def _evict(self) -> None:
        _, entry = self._entries.popitem(last=False)
        self.size -= entry.size


# Python's own cache holds the patterns that were compiled last: without the purge, evicting one would free nothing.
COMPILED_PATTERNS = BoundedCache(MAX_COMPILED_BYTES, on_evict=re.purge)
"""Patterns, some with names of tools and parameters in them, and schemas of tools: nothing else of a client."""
BYTES_PER_PATTERN_CHARACTER = 12
"""Bytes that a compiled pattern takes for each character of its text."""
