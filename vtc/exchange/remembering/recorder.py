"""Record the reasoning and the text of a reply, from which later requests are restored (`reasoning.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.calls import ToolCallAccumulator
from vtc.apis.contract import ReplyEvent
from vtc.apis.seals import SealKey
from vtc.events import (
    BlockStart,
    Call,
    CallDelta,
    Delta,
    Finish,
    Reasoning,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Seal,
    Text,
    TextDelta,
    Thought,
    ToolCall,
)
from vtc.exchange.remembering.conversation import DeliveredText, drop_whitespace
from vtc.exchange.remembering.reasoning import PlacedReasoning, Turn
from vtc.json_text import decode_json
from vtc.scrub import format_exception

MAX_REASONING_CHARACTERS = 1 << 20
"""Characters of one turn's reasoning beyond which it is not stored."""
logger = logging.getLogger(__name__)


class ReceivedReasoning:
    """Reasoning received in one reply: its text and its seals."""

    def __init__(self, seals: SealKey | None) -> None:
        self._seals = seals
        self._texts: list[str] = []
        self._block: list[str] = []  # the server's native reasoning since the last seal, which a signature covers
        self.sealed: list[PlacedReasoning] = []

    def add(self, text: str, *, own: bool) -> None:
        """Append text; `own` is True if the server sent it as reasoning, False if VTC found it in the text."""
        self._texts.append(text)
        if own:
            self._block.append(text)

    def begin_block(self) -> None:
        """Begin another block."""
        self._block.clear()

    def add_seal(self, seal: Seal, text_size: int) -> int:
        """Record a seal after this many characters of text for the client; return its size."""
        own = self._seals.unseal(seal.value) if self._seals else None
        text = "".join(self._block) if seal.signature else ""
        thought = own or Thought(text, seal.signature, seal.encrypted, seal.on)
        self.sealed.append(PlacedReasoning(thought, text_size, seal.calls))
        self._block.clear()
        return self.sealed[-1].size

    def get_text(self) -> str:
        """Return the whole text; empty if any part is signed, because a signature requires its own text."""
        is_signed = any(placed.thought.signature for placed in self.sealed)
        return "" if is_signed else "".join(self._texts)


class ReasoningRecorder:
    """Records the first choice of a reply; `store_turn` receives the result at its end, unless it is empty."""

    def __init__(
        self,
        store_turn: Callable[[Turn, str, Sequence[ToolCall], bytes], object] | None,
        markup: Sequence[str] | None = None,
        closers: Sequence[str] = (),
        *,
        plain: bool,
        signed: bool,
        between: bool = False,
        seals: SealKey | None = None,
        store_reply: Callable[[Sequence[ToolCall], bytes], object] | None = None,
    ) -> None:
        """Set up the recorder.

        `markup` lists the texts around a section of text tool calls, which are removed from the bare text; None records
        no text. `closers` end reasoning in the text. `plain` reasoning is restored as text. A server that has its
        reasoning `signed` sends seals, and may place them `between` texts. `seals` decodes seals that VTC signed for a
        client of another API. `store_reply` receives the calls of each reply and the digest of its text.
        """
        self._keep = store_turn
        self._store_reply = store_reply
        self._markup = markup
        self._closers = closers
        self._plain = plain
        self._records_reasoning = plain or signed
        self._is_recording = True
        self._written: list[str] = []
        self._calls_in_text: list[str] | None = []
        """Text tool calls as the model wrote them; None once one is sent in other words, or is native."""
        self._thoughts = ReceivedReasoning(seals)
        self._length = 0
        self._delivered = DeliveredText() if between or store_reply else None
        """Text that the client received, which places the seals. Without `between` it is measured only from the first
        seal on, and None until then; it stays None if text precedes that seal."""
        self._has_sent_text = False
        self._field = ""
        self._calls: list[CallDelta | Call] = []

    @property
    def keeps_text(self) -> bool:
        """True if the reply's text is recorded."""
        return self._markup is not None

    def write(self, text: str) -> None:
        """Record text of the model before it is parsed."""
        if self._is_recording:
            self._length += len(text)
            self._written.append(text)

    def make_unread_receiver(self, kind: type[Delta]) -> Callable[[Sequence[bytes], int], None] | None:
        """Return a receiver for the JSON texts of frames that are forwarded unread; None if they are not needed.

        Its second argument is how many of the texts, from the start, are recorded already.
        """
        if kind is ReasoningDelta and self._records_reasoning:
            return self._record_unread_reasoning
        return self._record_unread_text if kind is TextDelta and (self.keeps_text or self._delivered) else None

    def _record_unread_reasoning(self, texts: Sequence[bytes], written: int) -> None:
        try:
            text = _decode_texts(texts[written:])
        except ValueError:  # invalid JSON is forwarded all the same
            self.stop()
        else:
            self._add_reasoning(text, own=True)

    def _record_unread_text(self, texts: Sequence[bytes], written: int) -> None:
        try:
            if self._delivered:
                self._delivered.add_encoded(texts)
            if self.keeps_text:
                self.write(_decode_texts(texts[written:]))
        except ValueError:
            self.stop()

    def record_sent(self, events: Iterable[ReplyEvent], choice: int) -> None:
        """Record events that are sent to the client; the end of the message ends the recording."""
        for event in events if self._is_recording and not choice else ():
            match event:
                case CallDelta():
                    self._calls.append(event)
                    self._calls_in_text = None
                case Call():
                    self._calls.append(event)
                    if self._calls_in_text is not None and event.raw.strip() and not (event.repairs or event.changed):
                        self._calls_in_text.append(event.raw.strip())
                    else:
                        self._calls_in_text = None
                case Text(raw=text) | Rewritten(text=text) | RefusalText(text=text):
                    self._has_sent_text = True
                    if self._delivered:
                        self._delivered.add(text)
                case Reasoning(text):
                    self._add_reasoning(text, own=False)
                case ReasoningDelta(text):
                    self._field = event.own.kind.removeprefix("delta.") if event.own else ""
                    self._add_reasoning(text, own=True)
                case BlockStart(kind="reasoning"):
                    self._thoughts.begin_block()
                case Seal():
                    self._seal(event)
                case Finish():
                    self.end()

    def _seal(self, seal: Seal) -> None:
        """Record a seal with its place."""
        self._delivered = self._delivered or (None if self._has_sent_text else DeliveredText())
        self._length += self._thoughts.add_seal(seal, self._delivered.size if self._delivered else 0)
        if self._length > MAX_REASONING_CHARACTERS:
            self.stop()

    def end(self) -> None:
        """Store the turn (idempotent), because the client's next request may precede the last byte."""
        if not self._is_recording:
            return
        try:
            calls = self._collect_calls()
            sealed = tuple(self._thoughts.sealed)
            turn = Turn(self._thoughts.get_text() if self._plain else "", sealed, *self._get_written_text())
            text = self._delivered.digest if self._delivered else b""
            if self._store_reply:
                self._store_reply(calls, text)
            if self._keep and turn != Turn() and (calls or (sealed and self._delivered)):
                self._keep(turn, self._field if self._field in REASONING_FIELDS else "", calls, text)
        except Exception as error:  # the reply itself continues
            logger.error("vtc: the reasoning of this reply is not stored for later turns\n%s", format_exception(error))
        self.stop()

    def _collect_calls(self) -> list[ToolCall]:
        """Join the calls that the client received."""
        whole = [entry.call for entry in self._calls if isinstance(entry, Call)]
        pieces = (entry for entry in self._calls if isinstance(entry, CallDelta))
        return [*whole, *ToolCallAccumulator(pieces).calls()]

    def stop(self) -> None:
        """Stop recording and discard the recorded parts."""
        self._is_recording, self._calls_in_text, self._delivered = False, None, None
        self._thoughts, self._written, self._calls = ReceivedReasoning(None), [], []

    def _get_written_text(self) -> tuple[str, str]:
        """Return the model's text, and the same without its calls; both empty if a call was changed."""
        if not self._calls_in_text or self._markup is None:
            return "", ""
        written = "".join(self._written)
        for closer in self._closers:
            written = written.rpartition(closer)[2]
        written = written.strip()
        rest = written
        for text in self._calls_in_text:
            head, is_there, tail = rest.partition(text)
            if not is_there:
                return "", ""
            rest = head + tail
        for text in self._markup:
            rest = rest.replace(text, "")
        return written, drop_whitespace(rest)

    def _add_reasoning(self, text: str, *, own: bool) -> None:
        self._length += len(text)
        if text and self._length > MAX_REASONING_CHARACTERS:
            self.stop()
        elif text and self._is_recording:
            self._thoughts.add(text, own=own)


def _decode_texts(texts: Sequence[bytes]) -> str:
    """Decode texts from JSON. Raises ValueError."""
    return "".join(decode_json(b'["%b"]' % b'","'.join(texts)))
