"""Listens to a reply for what the model thought and for the calls that the client is given.

Reasoning that the server parts off mostly passes unread. So it is decoded beside its way, some frames at once, and only
where it is to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from vtc.apis.base import Decoder, Said
from vtc.apis.crossing import FIELDS
from vtc.apis.tool_calls import ToolCallAccumulator
from vtc.events import Call, CallDelta, Finish, Reasoning, ReasoningDelta, Seal, ToolCall
from vtc.exchange.thoughts import MOST, Thought

AT_ONCE = 1 << 15
"""Bytes of frames that are decoded at once: about a hundred, which takes less than a millisecond."""


class Heard:
    """What was heard of the first choice of a reply; `keep` takes it at the end, if there is something to keep."""

    def __init__(self, decoder: Decoder, keep: Callable[[Thought, str, Sequence[ToolCall]], object]) -> None:
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
            if self._size >= AT_ONCE:
                self._decode()

    def left(self, said: Iterable[Said], choice: int) -> None:
        """Take what leaves for the client; the end of the message ends the listening."""
        for one in said if self._listens and not choice else ():
            match one:
                case CallDelta():
                    self._pieces.append(one)
                case Call():
                    self._calls.append(one.call)
                case Reasoning(text):
                    self._thought(text)
                case Finish():
                    self.end()

    def end(self) -> None:
        """Have kept what was heard (idempotent): what the client does next may come before the last byte is here."""
        if not self._listens:
            return
        calls = [*self._calls, *ToolCallAccumulator(self._pieces).calls()]
        if calls:
            self._decode()
        if calls and self._text and self._listens:
            field = self._field if self._field in FIELDS else ""
            self._keep(Thought("".join(self._text), self._seal), field, calls)
        self.stop()

    def stop(self) -> None:
        """Listen no more, and keep nothing."""
        self._listens = False
        self._waiting, self._text, self._pieces, self._calls = [], [], [], []

    def _decode(self) -> None:
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        try:
            for frame in self._frames.feed(data):
                decoded = self._decoder.decode(frame)
                if decoded is None:
                    continue
                for delta in decoded.deltas:
                    if isinstance(delta, ReasoningDelta) and not delta.choice:
                        self._field = delta.own.kind.removeprefix("delta.") if delta.own else ""
                        self._thought(delta.text)
                for one in decoded.beside:
                    if isinstance(one, Seal) and not one.choice:
                        self._seal = one
        except Exception:  # the way of the reply says what is wrong with it
            self.stop()

    def _thought(self, text: str) -> None:
        self._length += len(text)
        if self._seal != Seal() or self._length > MOST:  # it goes on after its seal: no one message can say that
            self.stop()
        elif text:
            self._text.append(text)
