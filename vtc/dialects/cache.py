"""What is kept of conversations between exchanges, for the next turn: agents send everything again, with a little more.

What is kept is found by a digest of all that it was made of, so that it is what would be made again, and so that no
client gets what was made of another's text. It is dropped when its conversation goes on no more: after some exchanges
that did not ask for it, or when there is too much.
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
"""Of all conversations together."""
MOST_EXCHANGES = 256
"""Exchanges, of all conversations together, after which what none of them asked for is dropped."""


class ConversationCache:
    """Makes things once of what clients send with every request."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_exchanges: int = MOST_EXCHANGES) -> None:
        self._most_bytes = most_bytes
        self._kept = BoundedCache(most_bytes)
        self._most_exchanges = most_exchanges
        self._exchange = 0

    @property
    def size(self) -> int:
        """Bytes of what is kept now."""
        return self._kept.size

    def next_exchange(self) -> None:
        """Begin another exchange."""
        self._exchange += 1
        self._kept.drop_unused(self._exchange - self._most_exchanges)

    def get_or_make[T](self, of: tuple[str | bytes, ...], make: Callable[[], T]) -> T:
        """Get what was made of `of`, or make it; it is shared and must not be changed.

        `of` must be all that it depends on.
        """
        parts = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in of]
        lengths = repr([*map(len, parts)]).encode()  # with them, no two tuples are the same bytes
        key = hashlib.blake2b(b"".join([*parts, lengths]), digest_size=32).digest()
        return self._kept.get_or_make(key, make, lambda made: size_of(made, self._most_bytes), self._exchange)


class ScopedCache:
    """A cache for what also depends on a dialect and on the offered tools; without one, for what is made with it."""

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

    def get_or_make[T](self, of: tuple[str, ...], make: Callable[[], T]) -> T:
        """Get what was made of `of` in this scope, or make it; it is shared and must not be changed."""
        return self._cache.get_or_make((self._scope, *of), make)


def size_of(thing: object, most: int) -> int:
    """Measure a thing and all that it holds, in bytes; no further than to `most`, as that takes time."""
    seen: set[int] = set()
    size, rest = 0, [thing]
    while rest and size <= most:
        one = rest.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        size += getsizeof(one)
        if isinstance(one, msgspec.Struct):  # one that the collector need not know tells it nothing
            rest += [getattr(one, name) for name in one.__struct_fields__]
        else:
            rest += get_referents(one)
    return size
