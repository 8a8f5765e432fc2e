"""Recognize a client's conversation, which each of its requests repeats from the beginning.

No client repeats it exactly: clients trim text, re-encode arguments, omit ids and reasoning, and change reminders. So
these count as equal:

- Conversations before a turn: their messages have the same role, call id and text, and their turns the same calls. Text
  is compared without reminders and the white space around it. System messages, empty messages of the user, reasoning
  and parts other than text do not count.
- Turns of a model after equal conversations: they have the same calls in any order. Turns without calls have the same
  text, without any white space.
- Calls of a turn: they have the same name, arguments and id. Ids do not count if a call lacks one.
- Arguments: they have the same values in JSON (`ToolCall.sorted_arguments`).
- Conversations that an agent shortened (`opening`): the first message of the user has the same text.

Others compare parts of a conversation for another purpose. `guards.loops` compares arguments in the same way, and
results exactly, because a changed result is progress. `echoes` compares calls regardless of white space, escapes and
the type of values, because a result may contain them in any dialect. `last_prompts` compares whole prompts character by
character, because the server's cache does, and shows excerpts of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import msgspec

from vtc.events import Message, ToolCall

_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|(?P<unclosed>\Z))", re.S)
"""Text that agents add to the last message of a request and remove in the next. An unclosed one matches once, at the
first opener, so that a page of openers is not scanned to its end from each."""
MAX_UNREAD_TEXTS = 512
"""Pieces of text that are buffered before they are counted together."""


class SentTurn(NamedTuple):
    """A turn as the client sends it: consecutive messages of the model, or one other message."""

    place: int
    """Index of its first message."""
    messages: Sequence[Message]
    before: bytes
    """Digest of the conversation before it."""


class Conversation:
    """The messages of one request; `owner` makes the digests those of one client, server and model."""

    def __init__(self, messages: Sequence[Message], owner: bytes = b"") -> None:
        self._messages = messages
        self._owner = owner

    @cached_property
    def turns(self) -> Sequence[SentTurn]:
        """Its turns except system messages; the last one is the coming turn, which has no messages yet."""
        so_far, turns = self._begin_digest(), list[SentTurn]()
        for _, group in groupby(enumerate(self._messages), lambda at: -1 if at[1].role == "assistant" else at[0]):
            places, turn = zip(*group, strict=True)
            if turn[0].role != "system":
                turns.append(SentTurn(places[0], turn, so_far.digest()))
                for part in _serialize_turn(turn):
                    so_far.update(part)
        return [*turns, SentTurn(len(self._messages), (), so_far.digest())]

    @property
    def opening(self) -> bytes:
        """Digest of the user's first text, which agents keep when they shorten results and omit turns in the middle."""
        texts = (_get_lasting_text(message) for message in self._messages if message.role == "user")
        opening = self._begin_digest()
        opening.update(_encode(next(filter(None, texts), "")))
        return opening.digest()

    def _begin_digest(self) -> hashlib.blake2b:
        return hashlib.blake2b(digest_size=32, key=self._owner)


def digest_turn(before: bytes, calls: Sequence[ToolCall], text: bytes = b"") -> bytes:
    """Return the key of a turn after a conversation; `text`, a digest, counts if it has no calls."""
    return hashlib.blake2b(before + (_serialize_calls(calls) or text), digest_size=32).digest()


def digest_sent_turn(before: bytes, turn: Sequence[Message]) -> bytes:
    """Return the key of a turn of the model as the client sends it."""
    calls = [call for message in turn for call in message.calls]
    text = "" if calls else "".join(message.text for message in turn)
    return digest_turn(before, calls, DeliveredText(text).digest)


def list_reply_keys(before: bytes, calls: Sequence[ToolCall], text: bytes) -> list[bytes]:
    """List the keys under which a reply is stored: some clients send no ids of calls back."""
    without_ids = [ToolCall(call.name, call.arguments) for call in calls]
    return [digest_turn(before, keyed_calls, text) for keyed_calls in (calls, without_ids)]


def drop_whitespace(text: str) -> str:
    """Remove white space, because clients trim it."""
    return "".join(text.split())


class DeliveredText:
    """Text that a client received: its length and its digest, both without white space."""

    def __init__(self, text: str = "") -> None:
        self._size = 0
        self._hash = hashlib.blake2b(digest_size=32)
        self._unread: list[bytes] = []  # encoded as JSON
        self.add(text)

    def add(self, text: str) -> None:
        """Append text. Raises ValueError if buffered pieces are invalid JSON."""
        if self._unread:
            unread, self._unread = self._unread, []
            self.add(msgspec.json.decode(b'"%b"' % b"".join(unread), type=str))
        plain = drop_whitespace(text)
        self._size += len(plain)
        self._hash.update(_encode(plain))

    def add_encoded(self, texts: Sequence[bytes]) -> None:
        """Buffer pieces of text encoded as JSON; they are decoded later."""
        self._unread += texts
        if len(self._unread) > MAX_UNREAD_TEXTS:
            self.add("")

    @property
    def size(self) -> int:
        """Number of characters other than white space."""
        self.add("")
        return self._size

    @property
    def digest(self) -> bytes:
        self.add("")
        return self._hash.digest()


def _serialize_turn(turn: Iterable[Message]) -> Iterator[bytes]:
    """Serialize a turn for the digest, without the parts that clients change between requests."""
    yield _serialize_calls([call for message in turn for call in message.calls])
    for message in turn:
        text = _get_lasting_text(message)
        if text or message.role != "user":
            yield _encode(f"{message.role}\0{message.call_id}\0{len(text)}\0{text}")


def _get_lasting_text(message: Message) -> str:
    """Return the text of a message without reminders and the white space around it."""
    text = message.text
    if "<system-reminder>" in text:
        text = _REMINDER.sub(lambda match: "" if match["unclosed"] is None else match[0], text)
    return text.strip()


def _serialize_calls(calls: Sequence[ToolCall]) -> bytes:
    has_ids = all(call.id for call in calls)
    identities = sorted((call.id or "" if has_ids else "", call.name, call.sorted_arguments) for call in calls)
    return _encode("".join("\0".join((*identity, "")) for identity in identities))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
