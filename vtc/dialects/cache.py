"""A cache for parts of conversations: agents send everything again with every turn, and a little more.

A value is found by a digest of everything that it depends on. So it is the one that would be made again, and no client
gets a value that was made of another's text. It is evicted when its conversation has ended: after some exchanges that
did not ask for it, or when there is too much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from gc import get_referents
from sys import getsizeof

import msgspec

from vtc.dialects.bounded_cache import BoundedCache
from vtc.dialects.syntax.description import Description
from vtc.events import Tool

MOST_BYTES = 32 << 20
"""Bytes of all conversations together."""
MOST_EXCHANGES = 256
"""Exchanges, of all conversations together, after which a value is evicted that none of them asked for."""


class ConversationCache:
    """Keeps values that are made of parts of conversations."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_exchanges: int = MOST_EXCHANGES) -> None:
        self._most_bytes = most_bytes
        self._cache = BoundedCache(most_bytes)
        self._most_exchanges = most_exchanges
        self._exchange = 0

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self._cache.size

    def next_exchange(self) -> None:
        """Begin another exchange."""
        self._exchange += 1
        self._cache.evict_unused(self._exchange - self._most_exchanges)

    def get_or_make[T](self, key: tuple[str | bytes, ...], make: Callable[[], T]) -> T:
        """Get the value for `key`, or make and keep it. It is shared and must not be changed.

        `key` holds everything that the value depends on, and only its digest is kept.
        """
        parts = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in key]
        lengths = repr([*map(len, parts)]).encode()  # with them, no two keys are the same bytes
        digest = hashlib.blake2b(b"".join([*parts, lengths]), digest_size=32).digest()
        return self._cache.get_or_make(digest, make, lambda value: size_of(value, self._most_bytes), self._exchange)


class ScopedCache:
    """Keeps values that also depend on a dialect and on the offered tools; only for itself if `cache` is None."""

    def __init__(self, cache: ConversationCache | None, dialect: Description, tools: Iterable[Tool]) -> None:
        scope = b""
        if cache is not None:
            declared = [(tool.name, tool.description, tool.parameters) for tool in tools]
            try:
                scope = msgspec.msgpack.encode([dialect, declared])  # in JSON, NaN and null would be the same
            except (UnicodeError, OverflowError):
                cache = None  # half a surrogate pair, an endless number: rare enough
        self._cache = ConversationCache() if cache is None else cache
        self._scope = hashlib.blake2b(scope).digest()

    def get_or_make[T](self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        """Get the value for `key` in this scope, or make and keep it. It is shared and must not be changed."""
        return self._cache.get_or_make((self._scope, *key), make)


def size_of(value: object, most: int) -> int:
    """Measure a value with all that it holds, in bytes. Stops beyond `most`, as counting takes time."""
    seen: set[int] = set()
    size, rest = 0, [value]
    while rest and size <= most:
        one = rest.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        size += getsizeof(one)
        if isinstance(one, msgspec.Struct):  # one without `gc` tells the collector nothing
            rest += [getattr(one, name) for name in one.__struct_fields__]
        else:
            rest += get_referents(one)
    return size
