"""Keep between exchanges: facts about upstreams, and what later requests of a conversation need.

A fact is found by a digest of the upstream, the model and the client that saw it. The one that was not asked for
longest is evicted first. Texts (what a model thought, the prompts that left last) are found by digests, too, and are
kept up to a number of bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from vtc.dialects.bounded_cache import BoundedCache

AGREEING = 3
"""Replies that must agree before a fact is believed: of one, a client could make what the next gets."""
MOST = 1024
"""Facts that are kept; each takes about 300 bytes."""
EXPIRES = 24 * 3600.0
"""Seconds after which a lesson is forgotten: servers are updated, and templates mended."""
MAX_QUIRKS = 64
"""Lessons of a server about a model, the last of them: it could find new words for ever."""
SHORT_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""The ids of calls that all servers take."""
MAX_OWN_IDS = 128
"""Other ids of an upstream's own calls that are remembered, by their digests."""
MAX_REASONING_BYTES = 16 << 20
"""Bytes of what models thought."""

MAX_PROMPT_BYTES = 32 << 20
"""Bytes of prompts."""
MAX_HELD_BYTES = 1 << 20
"""Bytes of quirks that are held for one conversation each."""


def digest(*of: str) -> bytes:
    """Make the key of what belongs to these; no text can be read out of it."""
    return hashlib.blake2b(repr(of).encode("utf-8", "surrogatepass"), digest_size=32).digest()


@dataclass(slots=True)
class Learned:
    """The behaviour of an upstream with a model, as one client saw it. Its replies change it."""

    _inside: bool = False
    _replies: int = 0
    """So many of the last replies agree."""
    thoughts: str = ""
    """The field in which its replies told what the model thought, where that has several names."""
    dialect: str = ""
    """The dialect in which a call was last read in its text."""
    _ids: dict[bytes, None] = field(default_factory=dict)
    """Digests of the ids of its own calls that not every server takes, the latest last."""

    @property
    def begins_inside(self) -> bool | None:
        """True if replies begin inside of the reasoning; None as long as too few agree."""
        return self._inside if self._replies >= AGREEING else None

    def note_id(self, id_: str) -> None:
        """Remember the id of a call that the upstream made, so that it gets it back unchanged."""
        if not SHORT_ID.fullmatch(id_):
            self._ids = dict([*(self._ids | {digest(id_)[:8]: None}).items()][-MAX_OWN_IDS:])

    def made_id(self, id_: str) -> bool:
        """True if the upstream made the id of a call."""
        return digest(id_)[:8] in self._ids

    def note(self, *, inside: bool) -> None:
        """Take what a reply shows; one that contradicts those before it makes them forgotten."""
        if inside is not self._inside:
            self._inside, self._replies = inside, 0
        self._replies = min(self._replies + 1, AGREEING)


@dataclass(slots=True)
class Quirks:
    """What a server taught by what it refused of a request for a model: steps, and corrections of fields, by name.

    `clock` tells seconds.
    """

    clock: Callable[[], float] = float
    _known: dict[str, tuple[Any, float]] = field(default_factory=dict)

    def list_known(self) -> Mapping[str, Any]:
        """List the steps, by name, that were taught not too long ago."""
        now = self.clock()
        return {name: value for name, (value, taught) in self._known.items() if now - taught < EXPIRES}

    def learn(self, steps: Mapping[str, Any]) -> None:
        """Take note of steps with which a request was taken that had been refused without."""
        now = self.clock()
        known = merge_learned(self._known, {name: (value, now) for name, value in steps.items()})
        # One that reads them in another thread has the old ones or the new.
        self._known = dict([*known.items()][-MAX_QUIRKS:])


class ConversationQuirks:
    """The quirks of a client's server and model, and those that hold for one of its conversations alone.

    A lesson is held if the server rejected a request for another reason once it was applied. A request that is accepted
    with it shows that it helps; then all conversations get it.
    """

    def __init__(
        self,
        all_conversations: Quirks | ConversationQuirks | None = None,
        held: BoundedCache | None = None,
        key: Callable[[], bytes] = bytes,
        clock: Callable[[], float] = float,
    ) -> None:
        """`held` keeps what holds for one, by its digest: `key` is called only if anything is held or has to be."""
        self._all = all_conversations or Quirks()
        self._held = held
        self._key = key
        self._clock = clock

    def __repr__(self) -> str:
        return f"ConversationQuirks(known={dict(self.list_known())}, held={dict(self.list_held())})"

    def list_known(self) -> Mapping[str, Any]:
        """List the quirks of all conversations, by name."""
        return self._all.list_known()

    def learn(self, steps: Mapping[str, Any]) -> None:
        """Remember steps for all conversations."""
        self._all.learn(steps)

    def list_held(self) -> Mapping[str, Any]:
        """List the quirks that hold for this conversation alone, by name."""
        quirks = self._find() if self._held is not None and self._held.size else None
        return quirks.list_known() if quirks else {}

    def hold(self, steps: Mapping[str, Any]) -> None:
        """Remember steps for the rest of this conversation."""
        if self._held is None or not steps:
            return
        quirks = self._find() or Quirks(self._clock)
        quirks.learn(steps)
        self._held.store(self._key(), quirks, 300 * len(quirks.list_known()))

    def release(self) -> None:
        """Hold nothing more, because all conversations have it now."""
        if self._held is not None and self._held.size:
            self._held.store(self._key(), None, 0)

    def _find(self) -> Quirks | None:
        quirks = self._held.get(self._key()) if self._held is not None else None
        return quirks if isinstance(quirks, Quirks) else None


def merge_learned[Value](known: Mapping[str, Value], learned: Mapping[str, Value]) -> dict[str, Value]:
    """Add what is learned to what is known, as the last: a correction works on what those before it made of a body."""
    return {**{name: value for name, value in known.items() if name not in learned}, **learned}


class Memory:
    """Keeps what the exchanges that share it learned, and what their conversations need."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = float) -> None:
        """`clock` tells seconds."""
        self._of = lru_cache(most)(lambda _digest: Learned())
        self._quirks = lru_cache(most)(lambda _digest: Quirks(clock))
        self.reasoning = BoundedCache(MAX_REASONING_BYTES)
        """What models thought, by the turn (`exchange.thoughts`)."""
        self.held = BoundedCache(MAX_HELD_BYTES)
        """What holds for one conversation each (`ConversationQuirks`)."""
        self.clock = clock
        self.prompts = BoundedCache(MAX_PROMPT_BYTES)
        """The prompts that left last, by client, upstream and model (`exchange.prefix`)."""

    def get_learned(self, *of: str) -> Learned:
        """Return what was learned under a key; nothing yet for a new one. Only the key's digest is kept."""
        return self._of(digest(*of))

    def get_quirks(self, *of: str) -> Quirks:
        """Return the quirks of a key, as `learned` does."""
        return self._quirks(digest(*of))
