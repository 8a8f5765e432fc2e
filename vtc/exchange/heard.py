"""Listens to a reply for what the model thought and wrote, and for the calls that the client is given.

Reasoning that the server parts off mostly passes unread, as text does. So it is decoded beside its way, some frames at
once, and only where they tell some and it is to be kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from vtc.apis.base import Decoder, Said
from vtc.apis.crossing import FIELDS
from vtc.apis.tool_calls import ToolCallAccumulator
from vtc.events import Call, CallDelta, Finish, Reasoning, ReasoningDelta, Seal, TextDelta, ToolCall
from vtc.exchange.thoughts import MOST, Turn, squeezed
from vtc.scrub import told

logger = logging.getLogger(__name__)

AT_ONCE = 1 << 15
"""Bytes of frames that are decoded at once: about a hundred, which takes less than a millisecond."""


class Heard:
    """What was heard of the first choice of a reply; `keep` takes it at the end, if there is something to keep."""

    def __init__(
        self,
        decoder: Decoder,
        keep: Callable[[Turn, str, Sequence[ToolCall]], object],
        markup: Sequence[str] | None = None,
        closers: Sequence[str] = (),
        *,
        plain: bool = True,
    ) -> None:
        """`markup` stands around calls in text, and is no part of what is said; None keeps no text.

        Unless `plain` thoughts are to be kept, too, only those are that a server sealed.
        `closers` end what is thought in the text.
        """
        self._markup = markup
        self._closers = closers
        self._plain = plain
        self._wrote: list[str] = []
        self._in_text: list[str] = []  # the calls as they were written
        self._as_written = True  # all of them were
        self._decoder = decoder
        self._frames = decoder.framing.reader()
        self._keep = keep
        self._listens = True
        self._waiting: list[bytes] = []
        self._size = 0
        self._text: list[str] = []
        self._length = 0
        self._seal = Seal()
        self._field = ""
        self._pieces: list[CallDelta] = []
        self._calls: list[ToolCall] = []

    def came(self, data: bytes) -> None:
        """Take what the server sent."""
        if self._listens:
            self._waiting.append(data)
            self._size += len(data)
            # A line of megabytes is put together once, and not with each piece of it.
            if self._size >= AT_ONCE and b"\n" in data:
                self._decode(self._whole_frames())

    def left(self, said: Iterable[Said], choice: int) -> None:
        """Take what leaves for the client; the end of the message ends the listening."""
        for one in said if self._listens and not choice else ():
            match one:
                case CallDelta():
                    self._pieces.append(one)
                    self._as_written = False
                case Call():
                    self._calls.append(one.call)
                    self._in_text.append(one.raw.strip())
                    self._as_written &= bool(one.raw.strip()) and not (one.repairs or one.changed)
                case Reasoning(text):
                    self._thought(text)
                case Finish():
                    self.end()

    def end(self) -> None:
        """Have kept what was heard (idempotent): what the client does next may come before the last byte is here."""
        if not self._listens:
            return
        try:
            calls = [*self._calls, *ToolCallAccumulator(self._pieces).calls()]
            if calls:
                self._decode(b"".join(self._waiting))
            # A signature is for the text; what is encrypted stands for itself.
            thought = "".join(self._text) if self._plain or self._seal.signature else ""
            turn = Turn(thought, self._seal, *self._written())
            if calls and turn != Turn():
                self._keep(turn, self._field if self._field in FIELDS else "", calls)
        except Exception as error:  # the reply itself goes on
            logger.error("vtc: nothing of this reply is kept for later turns\n%s", told(error))
        self.stop()

    def stop(self) -> None:
        """Listen no more, and keep nothing."""
        self._listens = False
        self._waiting, self._text, self._wrote, self._pieces, self._calls, self._in_text = [], [], [], [], [], []
        self._seal = Seal()

    def _written(self) -> tuple[str, str]:
        """Return what the model wrote, and that without its calls; nothing where calls are not as it wrote them."""
        if not (self._as_written and self._in_text and self._markup is not None):
            return "", ""
        wrote = "".join(self._wrote)
        for closer in self._closers:
            wrote = wrote.rpartition(closer)[2]
        wrote = wrote.strip()
        said = wrote
        for text in self._in_text:
            before, found, after = said.partition(text)
            if not found:
                return "", ""
            said = before + after
        for text in self._markup:
            said = said.replace(text, "")
        return wrote, squeezed(said)

    def _whole_frames(self) -> bytes:
        """Take the frames that are whole. What follows them waits."""
        data = b"".join(self._waiting)
        end = data.rfind(b"\n\n") + 2
        if end < 2:  # lines of JSON, or what is there is no frame yet
            end = data.rfind(b"\n") + 1
        self._waiting, self._size = [data[end:]], 0
        return data[:end]

    def _decode(self, data: bytes) -> None:
        if self._markup is None and not self._decoder.tells_thoughts(data, plain=self._plain):
            return  # as are most replies
        try:
            for frame in self._frames.feed(data):
                decoded = self._decoder.decode(frame)
                if decoded is None:
                    continue
                for delta in decoded.deltas:
                    if isinstance(delta, ReasoningDelta) and not delta.choice:
                        self._field = delta.own.kind.removeprefix("delta.") if delta.own else ""
                        self._thought(delta.text)
                    elif isinstance(delta, TextDelta) and not delta.choice and self._markup is not None:
                        self._wrote.append(delta.text)
                        self._length += len(delta.text)
                for one in decoded.beside:
                    if isinstance(one, Seal) and not one.choice:
                        if self._seal != Seal():  # no one message can have two
                            self.stop()
                            return
                        self._seal = one
        except Exception:  # the way of the reply says what is wrong with it
            self.stop()

    def _thought(self, text: str) -> None:
        self._length += len(text)
        if text and (self._seal != Seal() or self._length > MOST):  # after its seal no one message can say more
            self.stop()
        elif text:
            self._text.append(text)
