"""What was made of the past of a conversation, for its next turn: agents send everything again, with a little more.

What is kept is found by a digest of all that it was made of, so that it is what would be made again. It is forgotten
when its conversation goes on no more: after so many exchanges that did not ask for it, or when there is too much.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vtc.dialects.syntax.description import Description
from vtc.events import Tool

MOST_BYTES = 16 << 20
MOST_TURNS = 256
"""Exchanges, of all conversations together, after which what none of them needed is forgotten."""


class Memory:
    """Makes things once. `turn` begins an exchange; sizes are those of what a thing was made of."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_turns: int = MOST_TURNS) -> None:
        self._most_bytes = most_bytes
        self._most_turns = most_turns
        self._made: OrderedDict[bytes, tuple[Any, int, int]] = OrderedDict()  # thing, size, turn; the oldest first
        self._turn = 0
        self.size = 0

    def turn(self) -> None:
        """Another exchange begins."""
        self._turn += 1
        while self._made and next(iter(self._made.values()))[2] < self._turn - self._most_turns:
            self._forget()

    def made[T](self, of: tuple[str, ...], make: Callable[[], T]) -> T:
        """What `make` makes; `of` is everything that this depends on. It is shared and must not be changed."""
        lengths = repr([*map(len, of)])  # with them, no two tuples are the same text
        data = "".join([*of, lengths]).encode("utf-8", "surrogatepass")
        size, key = len(data) - len(lengths), hashlib.blake2b(data, digest_size=16).digest()
        known = self._made.pop(key, None)
        if known is None:
            thing: T = make()
            self.size += size
        else:
            thing = known[0]
        self._made[key] = (thing, size, self._turn)
        while self.size > self._most_bytes:
            self._forget()
        return thing

    def _forget(self) -> None:
        _, (_, size, _) = self._made.popitem(last=False)
        self.size -= size


class Scope:
    """A memory for what depends on a dialect and on the offered tools; without one, things are made each time."""

    def __init__(self, memory: Memory | None, dialect: Description, tools: Mapping[str, Tool]) -> None:
        self._memory = memory
        self._told = ""
        if memory is None:
            return
        try:
            told = msgspec.json.encode(
                [dialect, [(tool.name, tool.description, tool.parameters) for tool in tools.values()]]
            )
            self._told = hashlib.blake2b(told).hexdigest()
        except (UnicodeError, OverflowError):
            self._memory = None  # half a surrogate pair, an endless number: rare enough

    def made[T](self, of: tuple[str, ...], make: Callable[[], T]) -> T:
        """As `Memory.made`."""
        return make() if self._memory is None else self._memory.made((self._told, *of), make)
