"""Restore the reasoning before past calls, and the original text of the calls, if the client lost them.

A client without support for reasoning sends back the calls of a turn without the reasoning that led to them. Some
servers reject such a conversation, and other models answer worse. So the reasoning of a turn with calls is stored, and
restored in each later request of the conversation, at the same place, which also preserves the prompt's prefix.

If VTC renders calls into the prompt as text, they appear as the model wrote them, because the server's prompt cache
holds exactly these characters. A call that was repaired or changed appears in its correct form.

Entries are keyed by the client's credentials, the server and the model, the conversation up to the reply, and the
reply's calls. Servers that use the same ids in every conversation (`functions.read:0`) may answer one conversation
twice with the same calls and different reasoning. Then nothing is restored, because either could be wrong.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from vtc.apis import Request
from vtc.apis.seals import SealKey
from vtc.events import Message, Opaque, Thought, ToolCall
from vtc.exchange.remembering.conversation import Conversation, digest_sent_turn, drop_whitespace, list_reply_keys
from vtc.profiles.document import format_count
from vtc.profiles.memory import Memory, digest_texts

_CHARACTER = re.compile(r"\S\s*")
type AddReasoning = Callable[[Message], Message] | None
"""Adds the restored reasoning to the source of a message (`RequestWriter.with_reasoning`); None for a bridge."""
_AMBIGUOUS = ""
"""Replaces turns that differ in the text that the client lost, but have the same key."""


class PlacedReasoning(msgspec.Struct, frozen=True):
    """Reasoning that its server sealed, and its place in the turn."""

    thought: Thought
    text_size: int = 0
    """Characters of text, without white space, that the client received before it."""
    calls: int = 0
    """Number of calls of the turn that began before it."""

    @property
    def is_at_call(self) -> bool:
        """True if it belongs to a call, or follows one."""
        return self.calls > 0 or self.thought.on == "call"

    @property
    def size(self) -> int:
        """The total number of its characters."""
        return sum(map(len, (self.thought.text, self.thought.signature, self.thought.encrypted)))


class Turn(msgspec.Struct, frozen=True):
    """One turn of a model, as far as a client may lose it."""

    thought: str = ""
    """Its reasoning as plain text; empty if it is not restored or is signed."""
    sealed: tuple[PlacedReasoning, ...] = ()
    """Its sealed reasoning."""
    written_text: str = ""
    """The model's text after the reasoning, with its text tool calls; empty if it need not be restored."""
    bare_text: str = ""
    """The same without the calls and white space, to compare with the text that the client sends."""

    @property
    def size(self) -> int:
        """Its characters in total."""
        return sum(map(len, (self.thought, self.written_text, self.bare_text))) + sum(
            thought.size for thought in self.sealed
        )


class RemindedTurn(msgspec.Struct, frozen=True):
    """The first reply of a turn that ended in silence, and the reminder: the client sees only the reply after them."""

    first_text: str
    messages: tuple[Message, ...]

    def strip_first_reply(self, turn: Sequence[Message]) -> list[Message] | None:
        """Return a turn, as the client sends it, without the first reply; None if it does not begin with that reply."""
        unmatched, out = drop_whitespace(self.first_text), list[Message]()
        for message in turn:
            content: list[str | Opaque] = []
            for part in message.content:
                if not unmatched or not isinstance(part, str):
                    content.append(part)
                    continue
                size = _match_prefix(part, unmatched)
                if size is None:
                    return None
                unmatched = unmatched[len(drop_whitespace(part[:size])) :]
                rest = part[size:] if unmatched else part[size:].lstrip()
                content += [rest] if rest else []
            kept = message if content == [*message.content] else replace(message, content=tuple(content))
            if kept is message or kept.content or kept.calls or kept.reasoning:
                out.append(kept)
        return None if unmatched else out


def _match_prefix(text: str, squeezed: str) -> int | None:
    """Return the end of a prefix in a text, ignoring white space; None if the text does not begin with that prefix."""
    at = 0
    for place, character in enumerate(text):
        if at == len(squeezed):
            return place
        if not character.isspace():
            if character != squeezed[at]:
                return None
            at += 1
    return len(text)


class ReasoningStore:
    """Restores the reasoning of past turns in one request, and stores that of its reply."""

    def __init__(
        self,
        memory: Memory,
        whose: Sequence[str],
        model: str,
        *,
        recalls: bool = True,
        as_text: bool = False,
        reminds: bool = False,
    ) -> None:
        """Set up the store; `whose` identifies one server as seen by one client.

        The model's reasoning is restored as text if it `recalls`, and past calls are rendered as the model wrote them
        if `as_text`. Sealed reasoning is always restored. `reminds` is set if VTC retries turns that end in silence.
        """
        self.recalls = recalls
        self.as_text = as_text
        self.reminds = reminds
        self.reminded_last = False
        """True if the model was reminded in the last turn of this request, and made no call in it."""
        self._memory = memory.reasoning
        self._learned = memory.get_learned(*whose, model, "thoughts")
        self._owner = digest_texts(*whose, model)
        self._conversation = b""
        """Digest of the whole conversation in this request, which identifies the coming turn."""

    def restore(
        self, request: Request, add: AddReasoning, seals: SealKey | None, lines: list[str]
    ) -> Sequence[Message]:
        """Return the conversation with the reasoning that the client lost; the request's own messages if it lost none.

        On a bridge, `seals` recognizes the seals that the client sends back. A line for the report is appended to
        `lines`.
        """
        messages = request.messages
        changed: dict[int, tuple[Message, ...]] = {}  # replacements, by the index of the message
        restored_turns = 0
        *turns, coming = Conversation(messages, self._owner).turns
        for place, turn, before in turns:
            # Step 1: restore the first reply of a turn that VTC reminded. `own` is the client's part of the turn.
            first, own = self._split_reminded(before, turn)
            only_text = own[0].text if len(own) == 1 else None
            # Step 2: restore the reasoning of a turn that is stored, and its text tool calls as written.
            is_model = self._memory.size and own and turn[0].role == "assistant"
            known = self._find_turn(before, own) if is_model else None
            if known:
                is_lost = self._is_lost(request, own, known, seals)
                restored_turns += is_lost
                # A client of another API may lack places for some of them, although it sends all back.
                if is_lost or (known.sealed and seals):
                    own = self._restore_turn(request, own, known, add)
                if (
                    self.as_text
                    and known.written_text
                    and only_text is not None
                    and drop_whitespace(only_text) == known.bare_text
                ):
                    own = [_restore_written_text(own[0], known.written_text)]
            if first or own is not turn:
                changed |= {place: (*first, *own), **dict.fromkeys(range(place + 1, place + len(turn)), ())}
        self._conversation = coming.before
        if self.reminds and self._memory.get(_derive_reminder_key(self._conversation)):
            self._memory.store(_derive_reminder_key(self._conversation), _AMBIGUOUS, 0)  # the coming reply replaces it
        if not changed:
            return messages
        if restored_turns:
            lines.append(f"reasoning of {format_count(restored_turns, 'past turn')} restored")
        return [shown for place, message in enumerate(messages) for shown in changed.get(place, (message,))]

    def _split_reminded(self, before: bytes, turn: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
        """Return the first reply of a turn with its reminder, and the rest of the turn as the client sends it.

        The first is empty, and the rest the same object, if VTC did not remind the model in this turn.
        """
        if not self.reminds or turn[0].role != "assistant":
            return (), turn
        known = self._memory.get(_derive_reminder_key(before))
        rest = known.strip_first_reply(turn) if isinstance(known, RemindedTurn) else None
        self.reminded_last = rest is not None and not any(message.calls for message in turn)
        if isinstance(known, RemindedTurn) and rest is not None:
            return known.messages, rest
        return (), turn

    def store_reminder(self, first_text: str, messages: tuple[Message, ...]) -> None:
        """Store a reminder in the middle of a turn: the model's text before it, and the messages that were added."""
        self._memory.store(
            _derive_reminder_key(self._conversation),
            RemindedTurn(first_text, messages),
            4 * sum(len(one.text) for one in messages),
        )

    def _find_turn(self, before: bytes, turn: Sequence[Message]) -> Turn | None:
        """Look up the stored data of a turn."""
        known = self._memory.get(digest_sent_turn(before, turn))
        return known if isinstance(known, Turn) else None

    def _restore_turn(self, request: Request, turn: Sequence[Message], known: Turn, add: AddReasoning) -> list[Message]:
        """Replace the client's copy of a turn's reasoning with the stored one."""
        at = next((at for at, message in enumerate(turn) if message.calls), 0)
        bare = [request.without_reasoning(message) for message in turn]
        # A signature is valid only for its own text; encrypted reasoning needs no text.
        is_signed = any(placed.thought.signature for placed in known.sealed)
        own = "" if is_signed else "".join(message.reasoning for message in turn)
        bare[at] = replace(bare[at], reasoning=known.thought or own, recalled=bool(known.thought))
        out = place_reasoning(bare, known.sealed)
        return [*map(add, out)] if add else out

    def _is_lost(self, request: Request, turn: Sequence[Message], known: Turn, seals: SealKey | None) -> bool:
        """Return True if the client lost `known` reasoning; a seal is preferred to the client's copy of the text."""
        sent_seals = (value for message in turn for value in request.list_seals(message))
        if any(seals is None or seals.unseal(value) for value in sent_seals):
            return False
        has_reasoning = any(message.reasoning for message in turn)
        return bool(known.sealed) or (self.recalls and bool(known.thought) and not has_reasoning)

    def store_turn(self, turn: Turn, field: str, calls: Sequence[ToolCall], text: bytes) -> None:
        """Store a reply to this request, with its calls as the client received them.

        `text` is the digest of its text, which distinguishes replies without calls.
        """
        self._learned.thoughts = field or self._learned.thoughts
        for key in list_reply_keys(self._conversation, calls, text):
            known = self._memory.get(key)
            stored = turn if known in (None, turn) else _AMBIGUOUS
            self._memory.store(key, stored, 4 * turn.size)


def place_reasoning(turn: Sequence[Message], thoughts: Sequence[PlacedReasoning]) -> list[Message]:
    """Insert sealed reasoning into the messages of a turn: into the text, or before the calls that follow it."""
    before = deque(thought for thought in thoughts if not thought.is_at_call)
    rest = deque(thought for thought in thoughts if thought.is_at_call)
    out: list[Message] = []
    placed_size = placed_calls = 0
    for message in turn:
        content: list[str | Opaque] = []
        for part in message.content:
            if isinstance(part, Opaque):
                content.append(part)
                continue
            text = part
            while before and before[0].text_size < placed_size + len(drop_whitespace(text)):
                head, text = _split_after(text, before[0].text_size - placed_size)
                placed_size += len(drop_whitespace(head))
                if head:
                    content.append(head)
                content.append(Opaque(thought=before.popleft().thought))
            placed_size += len(drop_whitespace(text))
            content.append(text)
        if message.calls or message is turn[-1]:
            content += [Opaque(thought=thought.thought) for thought in before]
            before.clear()
        calls: list[ToolCall] = []
        for call in message.calls:
            here: list[Opaque] = []
            while rest and rest[0].calls <= placed_calls:
                here.append(Opaque(thought=rest.popleft().thought))
            calls.append(replace(call, before=(*call.before, *here)) if here else call)
            placed_calls += 1
        out.append(replace(message, content=tuple(content), calls=tuple(calls)))
    return _append_reasoning(out, [Opaque(thought=thought.thought) for thought in rest]) if rest else out


def _split_after(text: str, count: int) -> tuple[str, str]:
    """Split a text after a number of characters other than white space, and the white space after them."""
    end = 0
    for match in islice(_CHARACTER.finditer(text), count):
        end = match.end()
    return text[:end], text[end:]


def _append_reasoning(turn: list[Message], thoughts: Sequence[Opaque]) -> list[Message]:
    """Append reasoning to the end of a turn."""
    at = next((at for at in reversed(range(len(turn))) if turn[at].calls), -1)
    *calls, last = turn[at].calls or (None,)
    if last is None:  # the turn has no call
        turn[at] = replace(turn[at], content=(*turn[at].content, *thoughts))
    else:
        turn[at] = replace(turn[at], calls=(*calls, replace(last, after=(*last.after, *thoughts))))
    return turn


def _restore_written_text(message: Message, text: str) -> Message:
    """Return a message with the model's original text in place of its calls."""
    others = tuple(part for part in message.sequence if isinstance(part, Opaque))
    return replace(message, content=(*others, text), calls=())


def _derive_reminder_key(conversation: bytes) -> bytes:
    return hashlib.blake2b(conversation, digest_size=32, person=b"asked again").digest()
