"""A cache with a limit in bytes, and the instance for patterns and schemas that all exchanges share.

A limit on the number of entries would not bound memory, because a model chooses how many names it writes and how long
they are.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import NamedTuple

MAX_COMPILED_BYTES = 32 << 20
"""Bytes of compiled patterns that are cached."""
ENTRY_OVERHEAD_BYTES = 512
"""Bytes of an entry in addition to its value."""


class _CacheEntry(NamedTuple):
    value: object
    size: int
    lasting: bool = False


class BoundedCache:
    """A thread-safe least-recently-used cache with a limit in bytes. `on_evict` is called after an eviction.

    Large replies are parsed in threads outside the event loop, so threads share an instance.
    """

    def __init__(self, max_bytes: int, on_evict: Callable[[], object] = lambda: None) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        """Bytes of all entries."""
        self._on_evict = on_evict
        self._entries: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._lock = Lock()

    def get_or_make[T](
        self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int], *, lasting: bool = False
    ) -> T:
        """Return the cached value for `key`, or make and store it. The value is shared: callers must not change it.

        `size_of` returns its bytes. A value larger than the cache is made each time. A `lasting` value contains no
        data of clients or models, so `evict_temporary` keeps it.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry.value  # type: ignore[return-value]  # `make` made it
        value = make()  # not under the lock: it is slow, and may request another key
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
        """Return the stored value for `key`; None if there is none or it was evicted."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            entry = self._entries.get(key)
        return entry.value if entry else None

    def store(self, key: Hashable, value: object, size: int) -> None:
        """Store a value of `size` bytes and replace the old one, unless it is larger than the cache."""
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


# The `re` module caches the most recent patterns too: without the purge, an eviction would free no memory.
COMPILED_PATTERNS = BoundedCache(MAX_COMPILED_BYTES, on_evict=re.purge)
"""Patterns, some of which contain names of tools and parameters, and schemas of tools; no other client data."""
BYTES_PER_PATTERN_CHARACTER = 12
"""Bytes of a compiled pattern per character of its source."""
