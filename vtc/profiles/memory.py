"""Memory between exchanges: facts about servers, and data for later requests of a conversation.

The key of a fact is a digest of the server, the model and the client that observed it. The least recently used fact is
evicted first. Texts (reasoning, and the last prompts) also have digests as keys, and are stored up to a number of
bytes.

Quirks last as long as they are proved: for the next request of the exchange (`exchange.asking.request.LastRetry`), for
the conversation (`HeldQuirks`), and, once a request with them was accepted, for all conversations and `EXPIRES` seconds
(`Quirks`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, cast

from vtc.dialects.bounded_cache import BoundedCache

AGREEING = 3
"""Replies that must agree before a fact is believed: with a single one, a client could influence the next client's
replies."""
MOST = 1024
"""Facts that are stored; each takes about 300 bytes."""
EXPIRES = 24 * 3600.0
"""Seconds after which a quirk expires: servers are updated, and templates fixed."""
MAX_QUIRKS = 64
"""Quirks per server and model; the oldest are dropped, because a server could produce new ones for ever."""
SHORT_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""The ids of calls that all servers accept."""
MAX_OWN_IDS = 128
"""Other ids of native tool calls that are remembered, by their digests."""
MAX_REASONING_BYTES = 16 << 20
"""Bytes of stored reasoning."""

MAX_PROMPT_BYTES = 32 << 20
"""Bytes of stored prompts."""
MAX_RESPONSE_BYTES = 32 << 20
"""Bytes of stored responses."""
MAX_KEPT_REPLY_BYTES = 1 << 20
"""Bytes of ids of replies that servers keep."""
MAX_REAL_NAME_BYTES = 1 << 18
"""Bytes of names of models behind aliases."""
MAX_HELD_BYTES = 1 << 20
"""Bytes of quirks that apply to single conversations."""


def digest_texts(*of: str) -> bytes:
    """Return the key of these texts; they cannot be recovered from it."""
    return hashlib.blake2b(repr(of).encode("utf-8", "surrogatepass"), digest_size=32).digest()


@dataclass(slots=True)
class Learned:
    """The behaviour of a server with a model, as one client observed it. Replies update it."""

    _inside: bool = False
    _replies: int = 0
    """Number of the last replies that agree."""
    thoughts: str = ""
    """The field that carried reasoning in its replies, if its API has more than one."""
    dialect: str = ""
    """The dialect of the last call that was read from its text."""
    _ids: dict[bytes, None] = field(default_factory=dict)
    """Digests of the ids of its own calls that not every server accepts, the latest last."""

    @property
    def begins_inside(self) -> bool | None:
        """True if replies begin inside the reasoning; None while too few agree."""
        return self._inside if self._replies >= AGREEING else None

    def note_id(self, id_: str) -> None:
        """Record the id of a native tool call, so that the server receives it back unchanged."""
        if not SHORT_ID.fullmatch(id_):
            self._ids = dict([*(self._ids | {digest_texts(id_)[:8]: None}).items()][-MAX_OWN_IDS:])

    def made_id(self, id_: str) -> bool:
        """Return True if the server made the id of a call."""
        return digest_texts(id_)[:8] in self._ids

    def note(self, *, inside: bool) -> None:
        """Record how a reply begins; a contradiction resets the count."""
        if inside is not self._inside:
            self._inside, self._replies = inside, 0
        self._replies = min(self._replies + 1, AGREEING)


@dataclass(slots=True)
class Quirks:
    """The quirks learned from a server's rejections of requests for a model: steps and corrections of fields, by name.

    `clock` returns seconds.
    """

    clock: Callable[[], float] = float
    _known: dict[str, tuple[Any, float]] = field(default_factory=dict)
    _vain: dict[bytes, None] = field(default_factory=dict)
    """Digests of the guesses about an error that did not avoid it, with its words, the latest last."""

    def list_known(self) -> Mapping[str, Any]:
        """List the steps that have not expired, by name."""
        now = self.clock()
        return {name: value for name, (value, taught) in self._known.items() if now - taught < EXPIRES}

    def learn(self, steps: Mapping[str, Any]) -> None:
        """Record the steps that turned a rejected request into an accepted one."""
        now = self.clock()
        known = merge_learned(self._known, {name: (value, now) for name, value in steps.items()})
        # Other threads see either the old or the new mapping.
        self._known = dict([*known.items()][-MAX_QUIRKS:])

    def note_vain(self, guess: int, words: Collection[str]) -> None:
        """Record that a guess did not avoid the error with these words."""
        self._vain = dict([*(self._vain | {_digest_guess(guess, words): None}).items()][-MAX_QUIRKS:])

    def is_vain(self, guess: int, words: Collection[str]) -> bool:
        """Return True if a guess did not avoid the error with these words, before."""
        return _digest_guess(guess, words) in self._vain


def _digest_guess(guess: int, words: Collection[str]) -> bytes:
    """Digest a guess and an error; numbers in the error do not count, because they are often indices."""
    return digest_texts(str(guess), *(re.sub("[0-9]+", "#", text) for text in words))[:8]


class HeldQuirks:
    """The quirks of a server and model that apply to one conversation alone.

    The server rejected the request that they corrected for another reason. Once it accepts a request with them, they
    have proved useful and apply to all conversations.
    """

    def __init__(
        self,
        store: BoundedCache | None = None,
        key: Callable[[], bytes] = bytes,
        clock: Callable[[], float] = float,
    ) -> None:
        """`store` has those of all conversations by digest; `key` is called only if something is or must be stored."""
        self._store = store
        self._key = key
        self._clock = clock

    def __repr__(self) -> str:
        return f"HeldQuirks({dict(self.list_known())})"

    def list_known(self) -> Mapping[str, Any]:
        """List the steps that have not expired, by name."""
        quirks = self._find() if self._store and self._store.size else None
        return quirks.list_known() if quirks else {}

    def learn(self, steps: Mapping[str, Any]) -> None:
        """Record steps for the rest of this conversation."""
        if self._store and steps:
            quirks = self._find() or Quirks(self._clock)
            quirks.learn(steps)
            self._store.store(self._key(), quirks, 300 * len(quirks.list_known()))

    def forget(self) -> None:
        """Forget the quirks, because all conversations have them now."""
        if self._store and self._store.size:
            self._store.store(self._key(), None, 0)

    def _find(self) -> Quirks | None:
        quirks = self._store.get(self._key()) if self._store else None
        return quirks if isinstance(quirks, Quirks) else None


class KnownQuirks(NamedTuple):
    """The quirks of a server and model: those for all conversations, and those for one alone."""

    lasting: Quirks
    held: HeldQuirks


def merge_learned[Value](known: Mapping[str, Value], learned: Mapping[str, Value]) -> dict[str, Value]:
    """Append new quirks to the known ones: a correction applies to the result of the corrections before it."""
    return {**{name: value for name, value in known.items() if name not in learned}, **learned}


class Memory:
    """Stores the facts that exchanges share, and the data of their conversations."""

    def __init__(
        self, most: int = MOST, clock: Callable[[], float] = float, responses: BoundedCache | None = None
    ) -> None:
        """`clock` returns seconds. `responses` are those that clients can refer to already."""
        self._of = lru_cache(most)(lambda _digest: Learned())
        self._quirks = lru_cache(most)(lambda _digest: Quirks(clock))
        self.reasoning = BoundedCache(MAX_REASONING_BYTES)
        """Reasoning of models, by turn (`exchange.remembering`)."""
        self.responses = responses or BoundedCache(MAX_RESPONSE_BYTES)
        """Responses of bridges, by client and id (`exchange.remembering.responses`)."""
        self.kept_replies = BoundedCache(MAX_KEPT_REPLY_BYTES)
        """Ids of replies that servers keep, by turn (`exchange.remembering.kept_conversation`)."""
        self.real_names = BoundedCache(MAX_REAL_NAME_BYTES)
        """Names of the models behind aliases, in the lists that a client received (`Facts.model_key`)."""
        self.held = BoundedCache(MAX_HELD_BYTES)
        """Quirks of single conversations (`HeldQuirks`)."""
        self.clock = clock
        self.prompts = BoundedCache(MAX_PROMPT_BYTES)
        """The last prompts that were sent, by client, server and model (`exchange.remembering.last_prompts`)."""

    def store_real_names(self, key: bytes, names: tuple[str, ...]) -> None:
        """Store the names of the model behind an alias; none if it is no alias any more."""
        if names or self.real_names.size:
            self.real_names.store(key, names, sum(map(len, names)))

    def get_real_names(self, key: Callable[[], bytes]) -> tuple[str, ...]:
        """Return the stored names of the model behind an alias; `key` is called only if there are any."""
        return cast(tuple[str, ...], self.real_names.get(key()) or ()) if self.real_names.size else ()

    def get_learned(self, *of: str) -> Learned:
        """Return the behaviour for a key; empty for a new key. Only the key's digest is stored."""
        return self._of(digest_texts(*of))

    def get_quirks(self, *of: str) -> Quirks:
        """Return the quirks for a key, as `get_learned` does for the behaviour."""
        return self._quirks(digest_texts(*of))
