"""Replies that are a row of blocks: which of them the client was told to begin and to end, for all APIs that have them.

The frames that begin a block of text stay here until some of its text leaves: a call that was read from it may leave
nothing of it. Those that end it stay until something else begins, as more text may go on in it. All else leaves at
once. An API says how a block begins, goes on and ends, and what number it has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from vtc.apis.base import Decoded, Said
from vtc.apis.fields import cleaned, is_error, object_of
from vtc.events import Call, CallDelta, End, Finish, Reasoning, Rewritten, ServerError, Text, ToolCall
from vtc.wire.framing import Frame
from vtc.wire.sse import EventStream

OURS = -1
"""Stands for the number of a block that upstream has none for."""

type Json = Mapping[str, Any]
type Phase = Literal["", "begin", "part", "text", "end"]
"""What an event does to a block of text; a `part` of it begins with the block or later."""


class Event(Frame, frozen=True, gc=False):
    """A frame that was decoded."""

    value: Json = msgspec.field(default_factory=dict)
    number: int = OURS
    """Upstream's block that it is about."""
    kind: str = ""
    """The kind of that block, in the API's own word; empty if it is about none."""
    phase: Phase = ""
    """What it does to a block of text."""
    says: bool = False
    """True if it begins a block of text with text, or ends one that had some."""


type Unit = Event | Json
"""A frame that leaves as it came, or an event that was made or changed."""


class Open(msgspec.Struct, frozen=True, gc=False):
    """A block that the client was told the beginning of, and not the end."""

    kind: str
    number: int
    place: int
    """The client's number of it."""


_NEEDED = {
    *("type", "index", "role", "stop_reason", "error", "item_id"),
    *("message", "content", "content_block", "delta", "response", "output", "item", "part"),
}
"""Fields without which a reply says nothing; they are never dropped."""
THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})
"""Names for reasoning among the fields to drop."""


class Blocks(msgspec.Struct):
    """What of the blocks the client was told. It is copied for each frame: its dicts are replaced, never changed.

    `drop` names fields and kinds of blocks that the client is not sent.
    """

    framing: ClassVar[EventStream] = EventStream(named_by="type")
    counts: ClassVar[bool] = False
    """True if events are counted, so that one more or less gives all after it other numbers."""
    kinds: ClassVar[tuple[str, str]]
    """What the API calls blocks of text and of thoughts."""

    thinks: bool = True
    """True if the client is sent thoughts, unless `drop` names them."""
    drop: frozenset[str] = frozenset()
    renumbers: bool = False
    count: int = 0
    """Blocks that began at the client."""
    open: Any = None
    """The last block of text or thoughts, an `Open`, until its end is told."""
    filled: frozenset[int] = frozenset()
    """Upstream's blocks that hold text or arguments, as read: frames that wait have been read and have not left."""
    starts: tuple[Event, ...] = ()
    """Frames that begin a block of text, and those after them that are about no block."""
    stops: tuple[Event, ...] = ()
    """Frames that end the open block, and those after them that are about no block."""

    # What an API says

    @abstractmethod
    def _read(self, frame: Frame, value: Json) -> Decoded | None:
        """Decode an event."""

    @abstractmethod
    def _pass_other(self, event: Event) -> Iterable[Unit]:
        """Let an event leave that is about no block of text."""

    @abstractmethod
    def _placed(self, event: Event) -> Unit:
        """Put an event where the client has its block; the event itself if it says that."""

    @abstractmethod
    def _dropped(self, event: Event | None) -> Iterable[Unit]:
        """Leave out what `starts`, as nothing of its text was left; `event` ends it."""

    @abstractmethod
    def _says_more(self, event: Event) -> bool:
        """True if an event must leave as well where its deltas were written in its place."""

    @abstractmethod
    def _begin(self, kind: str, number: int, starts: Sequence[Event]) -> Iterable[Unit]:
        """End the open block and begin another one, as `starts` do if there are any."""

    @abstractmethod
    def _piece(self, text: str) -> Iterable[Unit]:
        """Write text into the open block."""

    @abstractmethod
    def _close(self, *, made: bool = True) -> Iterable[Unit]:
        """End the open block, if there is one, as `stops` do if there are any; only with `made` as it should."""

    @abstractmethod
    def _call(self, call: ToolCall) -> Iterable[Unit]:
        """Write a block that is a call."""

    @abstractmethod
    def _finish(self, end: Finish, event: Event, *, first: bool) -> Iterable[Unit]:
        """Write the end of the reply, in place of `event` if that is `first` written for it."""

    def _numbered(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Number the events that leave."""
        return units

    # Reading, passing and writing

    def decode(self, frame: Frame) -> Decoded | None:
        value = object_of(frame.data)
        if value is None or not isinstance(value.get("type"), str):
            if value and is_error(value):
                return Decoded((ServerError(frame.data or b""),))
            return Decoded((End(),)) if (frame.data or b"").strip() == b"[DONE]" else None
        found = self._read(*cleaned(frame, value, self.drop - _NEEDED, self.framing))
        if found is None or not is_error(value):
            return found
        return Decoded((*found.deltas, ServerError(frame.data or b"")), frame=found.frame)

    def _fill(self, number: int, text: Any) -> str:
        """Note that one of upstream's blocks holds some text; return that."""
        if text and number not in self.filled:
            self.filled |= {number}
        return str(text or "")

    def _is_hidden(self, kind: str) -> bool:
        """True if the client is not sent blocks of this kind."""
        return kind in self.drop or (kind in THOUGHTS and bool(self.drop & THOUGHTS))

    def event_of(self, frame: Frame) -> Event | None:
        """Return a frame as it was decoded; one that comes after a failure is decoded now."""
        if not isinstance(frame, Event):
            decoded = self.decode(frame)
            frame = decoded.frame or frame if decoded else frame
        return frame if isinstance(frame, Event) else None

    def _pass(self, event: Event) -> Iterator[Unit]:
        """Let an event leave, or keep it in `starts` or `stops`."""
        kind, number, open_ = self.kinds[0], event.number, self.open
        is_open = open_ is not None and (open_.kind, open_.number) == (kind, number)
        begins = bool(self.starts) and self.starts[0].number == number
        if self._is_hidden(event.kind):
            self.renumbers |= self.counts
        elif event.kind != kind:
            yield from self._pass_other(event)
        elif event.phase == "part" and begins:
            self.starts += (event,)
        elif event.phase in ("begin", "part"):
            if event.phase == "begin" and is_open:  # some servers use a number again
                yield from self._close()
            yield from self._flush()
            self.starts = (event,)
            if event.says:
                yield from self._to(kind, number)
        elif event.phase == "end" and begins and event.says:  # and nothing of that was left
            self.renumbers |= self.counts
            yield from self._dropped(event)
        elif begins or is_open or event.phase == "text":
            yield from self._to(kind, number)
            if event.phase == "end" and self.open.place == self.count - 1:
                self.stops += (event,)
            else:
                yield self._placed(event)
                self.open = None if event.phase == "end" else self.open
        else:
            self.renumbers |= self.counts  # the block was ended before

    def _flush(self) -> Iterator[Unit]:
        """Let all leave that stays here and is needed."""
        is_ours = self.open is not None and (self.open.kind == self.kinds[1] or self.open.number == OURS)
        if self.stops or is_ours:
            yield from self._close(made=is_ours)
        if self.starts and self.starts[0].number in self.filled:
            self.renumbers |= self.counts
            yield from self._dropped(None)
        elif self.starts:
            yield from self._to(self.kinds[0], self.starts[0].number)

    def forward(self, frame: Frame) -> bytes:
        event = self.event_of(frame)
        if event is None:
            return frame.raw
        units = self._numbered([*self._pass(event)])
        return frame.raw if len(units) == 1 and units[0] is event else self._written(units, event)

    def close(self) -> bytes:
        return self._written(self._numbered([*self._flush()]), None)

    def _written(self, units: Iterable[Unit], like: Frame | None) -> bytes:
        return b"".join(
            unit.raw if isinstance(unit, Event) else self.framing.write(unit, like, first=place == 0)
            for place, unit in enumerate(units)
        )

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Json]:
        event = self.event_of(frame) or Event(b"", None)
        self.renumbers |= self.counts
        text_kind, thoughts_kind = self.kinds
        more = first and self._says_more(event)
        units: list[Unit] = []
        for one in said:
            match one:
                case Text(text) | Rewritten(text=text) if text:
                    units += [*self._to(text_kind, event.number), *self._piece(text)]
                case Reasoning(text) if self.thinks and not self._is_hidden(thoughts_kind):
                    units += [*self._to(thoughts_kind, OURS), *self._piece(text)]
                case Call(call=call):
                    units += [*self._close(), *self._call(call)]
                case CallDelta():
                    units += self._pass(event)
                case Finish():
                    units += self._finish(one, event, first=first)
        if more:
            units += self._pass(event)
        return [unit.value if isinstance(unit, Event) else unit for unit in self._numbered(units)]

    def _to(self, kind: str, number: int) -> Iterator[Unit]:
        """Have a block open for text of upstream's block `number`, or for thoughts."""
        is_open = self.open is not None and self.open.kind == kind
        if self.starts and kind == self.kinds[0] and (self.starts[0].number == number or not is_open):
            starts, self.starts = self.starts, ()
            yield from self._begin(kind, number, starts)
        elif not is_open:
            yield from self._begin(kind, number, ())
