"""What upstreams did, kept between exchanges: facts, never text.

A fact is found by a digest of the upstream, the model and the client that saw it. The one that was not asked for
longest is evicted first.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

AGREEING = 3
"""Replies that must agree before a fact is believed: of one, a client could make what the next gets."""
MOST = 1024
"""Facts that are kept; each takes about 300 bytes."""


@dataclass(slots=True)
class Learned:
    """What an upstream did with a model, as one client saw it. Its replies change it."""

    _inside: bool = False
    _replies: int = 0
    """So many of the last replies agree."""
    refused: frozenset[str] = frozenset()
    """The kinds of what it refused in a request, and answered without."""

    @property
    def begins_inside(self) -> bool | None:
        """Whether replies begin inside of the reasoning; None as long as too few agree."""
        return self._inside if self._replies >= AGREEING else None

    def note(self, *, inside: bool) -> None:
        """Take what a reply shows; one that contradicts those before it makes them forgotten."""
        if inside is not self._inside:
            self._inside, self._replies = inside, 0
        self._replies = min(self._replies + 1, AGREEING)


class Memory:
    """Keeps facts for the exchanges that share it."""

    def __init__(self, most: int = MOST) -> None:
        self._of = lru_cache(most)(lambda _digest: Learned())

    def learned(self, *of: str) -> Learned:
        """Return what was learned under a key; nothing yet for a new one. Only the key's digest is kept."""
        return self._of(hashlib.blake2b(repr(of).encode("utf-8", "surrogatepass"), digest_size=32).digest())
