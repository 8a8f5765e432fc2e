"""Give a model back what it thought before its calls, and how it wrote them, where the client lost that.

A client that knows no reasoning sends the calls of a turn back and nothing of what led to them. Some servers refuse
such a conversation, and the models of others do worse. So what came with calls is kept, and put back into each later
request of the same conversation, at the same place: then the beginning of the prompt stays the same, too.

Where VTC writes calls into the prompt as text, they stand there as the model wrote them, too: the server has computed
just these characters. A call that had to be repaired, or was changed, stands there as it should have been written.

All that is found by the client's credentials, the upstream and the model, what the client sent of the conversation up
to that reply, and the calls of the reply itself. Servers whose ids are the same in every conversation
(`functions.read:0`) may answer one conversation twice with the same calls and other thoughts: then there are none to
give back, as any could be the wrong ones.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

import msgspec
from msgspec.structs import replace

from vtc.apis import Request
from vtc.apis.calls import ToolCallAccumulator
from vtc.apis.contract import ReplyEvent
from vtc.apis.crossing import FIELDS
from vtc.apis.seals import SealKey
from vtc.events import (
    Call,
    CallDelta,
    Delta,
    Finish,
    Message,
    Opaque,
    Reasoning,
    ReasoningDelta,
    Seal,
    TextDelta,
    ToolCall,
)
from vtc.json_text import decode
from vtc.profiles.document import counted
from vtc.profiles.memory import Memory
from vtc.scrub import told

MOST = 1 << 20
"""Characters of the reasoning of one turn beyond which it is not kept."""
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.S)
"""What agents add to the last message of a request, and take out of it in the next."""
_sorted = msgspec.json.Encoder(order="sorted").encode
_SEVERAL = ""
"""Stands for turns that differ in what the client lost, where all else is the same."""


class Turn(msgspec.Struct, frozen=True):
    """One turn of a model."""

    thought: str = ""
    seal: Seal = Seal()
    wrote: str = ""
    """All that it wrote besides; empty where that need not come back."""
    said: str = ""
    """The same without the calls, and without white space."""

    @property
    def size(self) -> int:
        """Characters of all of it."""
        return sum(map(len, (self.thought, self.seal.signature, self.seal.encrypted, self.wrote, self.said)))


class PastThoughts:
    """Gives thoughts back to one request, and keeps those of its reply."""

    def __init__(
        self, memory: Memory, whose: Sequence[str], model: str, *, recalls: bool = True, as_text: bool = False
    ) -> None:
        """`whose` tells one upstream, as one client sees it, from all others.

        The model `recalls` what it thought as text, and is shown past calls `as_text`. What a server sealed it is
        always given back.
        """
        self.recalls = recalls
        self.as_text = as_text
        self._memory = memory.thoughts
        self._learned = memory.learned(*whose, model, "thoughts")
        self._of = repr((*whose, model)).encode("utf-8", "surrogatepass")
        self._said = b""
        """The digest of the conversation that this request sends."""

    def given_back(self, request: Request, field: str | None, lines: list[str]) -> Sequence[Message]:
        """Return the conversation with what the model thought, where that is lost; its own messages if it is nowhere.

        `field` is where a server of the client's API wants it; None on the way to another API. A line for people is
        added to `lines`.
        """
        messages = request.messages
        changed: dict[int, Message] = {}
        given = 0
        so_far = hashlib.blake2b(self._of, digest_size=32)
        for place, turn in _turns(messages):
            calls = [call for message in turn for call in message.calls]
            known = self._memory.get(_key(so_far.digest(), calls)) if calls and self._memory.size else None
            if isinstance(known, Turn):
                at = next(at for at, message in enumerate(turn) if message.calls)
                if self._is_lost(request, turn, known):
                    given += 1
                    # A signature is for the text that it came with.
                    text = known.thought or ("" if known.seal.signature else turn[at].reasoning)
                    changed[place + at] = replace(turn[at], reasoning=text, seal=known.seal)
                    if field:
                        changed[place + at] = request.with_thoughts(changed[place + at], field)
                if self.as_text and known.wrote and len(turn) == 1 and squeezed(turn[0].text) == known.said:
                    changed[place] = _as_written(changed.get(place, turn[0]), known.wrote)
            for message in turn:
                for part in _said(message):
                    so_far.update(part)
        self._said = so_far.digest()
        if not changed:
            return messages
        if given:
            lines.append(f"reasoning of {counted(given, 'past turn')} given back")
        return [changed.get(place, message) for place, message in enumerate(messages)]

    def _is_lost(self, request: Request, turn: Sequence[Message], known: Turn) -> bool:
        """True if the client lost what is `known`: a seal wins over its own copy, which is no more than the text."""
        if known.seal != Seal():
            return not any(map(request.has_seal, turn))
        return self.recalls and bool(known.thought) and not any(map(request.has_thoughts, turn))

    def keep(self, turn: Turn, field: str, calls: Sequence[ToolCall]) -> None:
        """Keep a reply to this request, which made these calls, as the client was given them."""
        self._learned.thoughts = field or self._learned.thoughts
        # Some clients send no ids back.
        for some in (calls, [ToolCall(call.name, call.arguments) for call in calls]):
            key = _key(self._said, some)
            known = self._memory.get(key)
            kept = turn if known in (None, turn) else _SEVERAL
            self._memory.put(key, kept, 4 * turn.size)


def opening(messages: Iterable[Message]) -> bytes:
    """Return a digest of what the user says first: it tells a conversation from others, whatever becomes of the rest.

    Agents shorten results, and leave out turns in the middle.
    """
    said = (part for message in messages if message.role == "user" for part in _said(message)[1:])
    return hashlib.blake2b(next(said, b""), digest_size=32).digest()


def squeezed(text: str) -> str:
    """Leave out white space: clients trim it."""
    return "".join(text.split())


def _as_written(message: Message, text: str) -> Message:
    """Write a message as the model wrote it, calls and all."""
    others = tuple(part for part in message.content if isinstance(part, Opaque))
    return replace(message, content=(*others, text), calls=())


def _turns(messages: Sequence[Message]) -> Iterator[tuple[int, list[Message]]]:
    """Part a conversation into turns: neighbours of one role, with the place of the first. Prompts are none."""
    for is_model, some in groupby(enumerate(messages), lambda numbered: numbered[1].role == "assistant"):
        turn = [*some]
        if is_model:
            yield turn[0][0], [message for _, message in turn]
        else:
            yield from ((place, [message]) for place, message in turn if message.role != "system")


def _said(message: Message) -> tuple[bytes, ...]:
    """Write what a message says, and nothing of what clients change from one request to the next."""
    text = message.text
    if "<system-reminder>" in text:
        text = _REMINDER.sub("", text)
    if not (text := text.strip()) and message.role == "user":
        return ()
    calls = (f"{call.id}\0{call.name}\0{call.arguments}" for call in message.calls)
    about = "\0".join((message.role, str(message.call_id), str(len(text)), *calls))
    return about.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")


def _key(conversation: bytes, calls: Sequence[ToolCall]) -> bytes:
    has_ids = all(call.id for call in calls)
    calls_written = sorted((call.id or "" if has_ids else "", call.name, _plain(call.arguments)) for call in calls)
    digest = hashlib.blake2b(conversation, digest_size=32)
    for id_, name, arguments in calls_written:
        digest.update(f"{id_}\0{name}\0".encode("utf-8", "surrogatepass"))
        digest.update(arguments)
    return digest.digest()


def _plain(arguments: str) -> bytes:
    """Write arguments in one way: clients read them and write them again."""
    written = arguments.encode("utf-8", "surrogatepass")
    try:
        return _sorted(msgspec.json.decode(written))
    except (ValueError, RecursionError):
        return written


# Hears a reply on its way: what the model writes before that is read, and what leaves of it.


logger = logging.getLogger(__name__)


class ThoughtRecorder:
    """Records the first choice of a reply; `keep` takes it at the end, if there is something to keep."""

    def __init__(
        self,
        keep: Callable[[Turn, str, Sequence[ToolCall]], object],
        markup: Sequence[str] | None = None,
        closers: Sequence[str] = (),
        *,
        plain: bool,
        signed: bool,
        seals: SealKey | None = None,
    ) -> None:
        """`markup` stands around calls in text, and is no part of what is said; None keeps no text.

        `closers` end what is thought in the text. Thoughts are kept if they are `plain`, or `signed` by the server.
        `seals` reads the server's seals, if they leave for a client of another API.
        """
        self._keep = keep
        self._seals = seals
        self._markup = markup
        self._closers = closers
        self._plain = plain
        self._thinks = plain or signed
        self._listens = True
        self._wrote: list[str] = []
        self._calls_in_text: list[str] | None = []
        """None once a call leaves in other words than the model wrote."""
        self._thought: list[str] = []
        self._length = 0
        self._seal = Seal()
        self._field = ""
        self._pieces: list[CallDelta] = []
        self._calls: list[ToolCall] = []

    @property
    def keeps_text(self) -> bool:
        """True if text counts."""
        return self._markup is not None

    def write(self, text: str) -> None:
        """Take text that the model wrote, which is not read yet."""
        if self._listens:
            self._length += len(text)
            self._wrote.append(text)

    def of_unread(self, kind: type[Delta]) -> Callable[[Sequence[bytes]], None] | None:
        """Return what takes texts of frames that leave unread, as JSON has them; None if such texts do not count."""
        if kind is ReasoningDelta and self._thinks:
            return partial(self._unread, self._think)
        return partial(self._unread, self.write) if kind is TextDelta and self.keeps_text else None

    def _unread(self, take: Callable[[str], None], texts: Sequence[bytes]) -> None:
        try:
            text = "".join(decode(b'["%b"]' % b'","'.join(texts)))
        except ValueError:  # they are no JSON, and leave as they came all the same
            self.stop()
        else:
            take(text)

    def left(self, events: Iterable[ReplyEvent], choice: int) -> None:
        """Take what leaves for the client; the end of the message ends the listening."""
        for event in events if self._listens and not choice else ():
            match event:
                case CallDelta():
                    self._pieces.append(event)
                    self._calls_in_text = None
                case Call():
                    self._calls.append(event.call)
                    if self._calls_in_text is not None and event.raw.strip() and not (event.repairs or event.changed):
                        self._calls_in_text.append(event.raw.strip())
                    else:
                        self._calls_in_text = None
                case Reasoning(text):
                    if self._seal == Seal():  # the text is no part of what was sealed
                        self._think(text)
                case ReasoningDelta(text):
                    self._field = event.own.kind.removeprefix("delta.") if event.own else ""
                    self._think(text)
                case Seal():
                    if self._seal != Seal():  # no one message can have two
                        self.stop()
                    own = self._seals.opened(event.signature or event.encrypted) if self._seals else None
                    self._seal = Seal(own.signature, own.encrypted) if own else event
                case Finish():
                    self.end()

    def end(self) -> None:
        """Have kept what was heard (idempotent): what the client does next may come before the last byte is here."""
        if not self._listens:
            return
        try:
            calls = [*self._calls, *ToolCallAccumulator(self._pieces).calls()]
            # A signature is for the text; what is encrypted stands for itself.
            thought = "".join(self._thought) if self._plain or self._seal.signature else ""
            turn = Turn(thought, self._seal, *self._written())
            if calls and turn != Turn():
                self._keep(turn, self._field if self._field in FIELDS else "", calls)
        except Exception as error:  # the reply itself goes on
            logger.error("vtc: nothing of this reply is kept for later turns\n%s", told(error))
        self.stop()

    def stop(self) -> None:
        """Listen no more, and keep nothing."""
        self._listens = False
        self._thought, self._wrote, self._pieces, self._calls, self._calls_in_text = [], [], [], [], None

    def _written(self) -> tuple[str, str]:
        """Return what the model wrote, and that without its calls; nothing where calls are not as it wrote them."""
        if not self._calls_in_text or self._markup is None:
            return "", ""
        wrote = "".join(self._wrote)
        for closer in self._closers:
            wrote = wrote.rpartition(closer)[2]
        wrote = wrote.strip()
        rest = wrote
        for text in self._calls_in_text:
            head, is_there, tail = rest.partition(text)
            if not is_there:
                return "", ""
            rest = head + tail
        for text in self._markup:
            rest = rest.replace(text, "")
        return wrote, squeezed(rest)

    def _think(self, text: str) -> None:
        self._length += len(text)
        if text and (self._seal != Seal() or self._length > MOST):  # after its seal no one message can say more
            self.stop()
        elif text and self._listens:
            self._thought.append(text)
