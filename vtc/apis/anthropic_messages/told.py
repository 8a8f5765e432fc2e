"""What the client was told of a reply: its blocks, by the numbers that upstream and the client have for them.

Frames that leave as they came are followed here, so that the encoder can go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.anthropic_messages.calls import CallsInOrder
from vtc.apis.anthropic_messages.words import DELTA, FRAMING, START, STOP, number_of
from vtc.apis.base import Json, Said
from vtc.apis.fields import count_of, part_of
from vtc.events import (
    BlockEnd,
    BlockStart,
    CallDelta,
    Failure,
    Finish,
    Origin,
    ReasoningDelta,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.wire.sse import EventStream

OURS = -1
"""Stands for the number of a block that upstream has none for."""
_THOUGHTS = {"thinking", "reasoning", "reasoning_content"}
"""Names for reasoning among the fields to drop."""
type Noted = BlockStart | BlockEnd | Origin


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block of text or of reasoning in which more may be said."""

    kind: str
    number: int
    """Upstream's."""
    index: int
    """The client's."""


class Told(msgspec.Struct):
    """The events that the client was sent; `thinks` says that its request asked for thinking.

    `drop` names kinds of blocks to leave out.
    """

    framing: ClassVar[EventStream] = FRAMING
    counts: ClassVar[bool] = False
    call_fields: ClassVar[frozenset[str]] = frozenset(("type", "id", "name", "input", "caller"))

    thinks: bool = False
    drop: frozenset[str] = frozenset()
    in_step: bool = True
    id: str = ""
    started: bool = False
    native: bool = False
    """True if the server speaks this API, too."""
    count: int = 0
    """Blocks that began at the client."""
    opened: dict[int, int] = {}
    """By upstream's number, the client's of the blocks that have begun and not ended."""
    open: Block | None = None
    noted: tuple[Noted, ...] = ()
    """Starts and ends of blocks that the client was not told."""
    kept: bool = False
    """True if frames that say what is noted are kept by the relay."""
    calls: CallsInOrder = msgspec.field(default_factory=CallsInOrder)
    called: bool = False
    refused: bool = False
    blank: str = ""
    """White space that waits for the text after it."""
    usage: Json = {}
    closing: Json = {}
    """Upstream's last event but one, whose other fields leave with the reason."""
    finish: Finish | None = None
    """The end of the message, until it is told."""
    finished: bool = False
    ended: bool = False

    def follow(self, said: Sequence[Said], choice: int) -> bool:
        self.native = True
        if not self._is_level and Failure not in map(type, said):
            self.in_step = False
            return True
        told, self.in_step, elsewhere = not said, True, False
        for one in said:
            match one:
                case BlockStart(number=number):
                    expected = self.count + sum(isinstance(noted, BlockStart) for noted in self.noted)
                    self._is_at(number if not self._is_hidden(one.kind) else OURS, expected)
                    self._keep(one)
                case BlockEnd():
                    is_begun = any(isinstance(noted, BlockStart) for noted in self.noted)
                    self.in_step = self.in_step and (is_begun or self.open is not None)
                    self._keep(one)
                case Origin(kind="within", value=number):
                    elsewhere = told = True
                    self._is_at(number, self.opened.get(number))
                case Origin(kind="fields"):
                    pass
                case Origin():
                    told = self._follow_event(one) or told
                case Text(text) | ReasoningDelta(text) if not text or elsewhere:
                    pass
                case Seal(encrypted=data) if data and "redacted_thinking" in self.drop:
                    self.in_step = False
                case _:
                    told = True
                    self._tell_noted()
                    self._follow(one)
        if not said:
            self._tell_noted()
        self.started = self.started or told
        return told or not self.in_step

    @property
    def _is_level(self) -> bool:
        """True if no block that is noted or open must be told of, or ended, in upstream's place."""
        return (self.kept or not self.noted) and all(number == index for number, index in self.opened.items())

    def _is_at(self, number: int, index: int | None) -> None:
        self.in_step = self.in_step and number == index

    def _keep(self, one: Noted) -> None:
        self.noted, self.kept = (*self.noted, one), True

    def _tell_noted(self) -> None:
        """Take note that the client is told now what was noted, by frames that were kept."""
        for one in self.noted:
            if isinstance(one, BlockStart):
                self.open = Block(one.kind, one.number, self._take(one.number))
            elif isinstance(one, BlockEnd) and self.open:
                self._end(self.open.number)
        self.noted = ()

    def _follow(self, one: Said) -> None:
        open_ = self.open
        match one:
            case Start():
                self._begin(one)
            case Text() | ReasoningDelta() | Seal():
                self._is_at(*((open_.number, open_.index) if open_ else (OURS, 0)))
            case CallDelta(int() as number, name=name) if name:
                self._is_at(number, self._take(number))
                self.open, self.called = None, True
                self.calls = replace(self.calls, begun=self.calls.begun | {number})
            case CallDelta(int() as number):
                self._is_at(number, self.opened.get(number))
            case Usage():
                self.usage = one.own.value if one.own else {}
            case Finish():
                self.finished = True
            case Failure():
                self.ended = True

    def _follow_event(self, one: Origin) -> bool:
        """Take note of an event that only this API has; False if it is kept with the start of its block."""
        event, number = one.value, number_of(one)
        if event["type"] == DELTA and self._begins(number):
            self._keep(one)
            return False
        self._tell_noted()
        if event["type"] == START:
            self._is_at(OURS if self._is_hidden(one.kind) else number, self._take(number))
            self.open = None
        elif event["type"] in (DELTA, STOP):
            self._is_at(number, self.opened.get(number))
        if event["type"] == STOP:
            self._end(number)
        return True

    def _take(self, number: int) -> int:
        """Take the next of the client's numbers for a block of upstream's."""
        index, self.count = self.count, self.count + 1
        self.opened = {**self.opened, number: index}
        return index

    def _end(self, number: int) -> None:
        self.opened = {one: index for one, index in self.opened.items() if one != number}
        self.open = None if self.open and self.open.number == number else self.open

    def _begins(self, number: int) -> bool:
        return any(isinstance(one, BlockStart) and one.number == number for one in self.noted)

    def _is_hidden(self, kind: str) -> bool:
        """True if the client is not sent blocks of this kind."""
        return kind in self.drop or (kind in _THOUGHTS and bool(self.drop & _THOUGHTS))

    def _begin(self, start: Start) -> None:
        """Take note of the start of the message."""
        self.started, self.native = True, start.own is not None
        self.id = start.id if self.native and start.id else f"msg_{start.id or 'vtc'}"
        if start.own:
            usage = part_of(part_of(start.own.value, "message"), "usage")
            self.usage = {"output_tokens": count_of(usage, "output_tokens")}
