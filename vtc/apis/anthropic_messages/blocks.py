"""The blocks of a streamed reply, and what of them the client was given.

Blocks are known by upstream's index; `places` holds the client's, which differ once a block was added or never began.
A text block begins at the client with the first text that is left of it, since one without text is refused when the
client sends it back. Its stop waits for what follows, since a text client gets its calls in the same block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vtc.events import ToolCall
from vtc.json_text import decode
from vtc.wire.framing import Frame

OURS = -1
"""Stands for the index of a text block that upstream has none for."""


class Out(msgspec.Struct, frozen=True, gc=False):
    """A frame that leaves: a value, in place of a frame or as that came."""

    value: Mapping[str, Any]
    like: Frame | None = None
    as_it_came: bool = False


class Blocks(msgspec.Struct):
    """The blocks so far. It is copied for each frame, so that its dicts are replaced and never changed."""

    renumbers: bool = False
    last: tuple[Frame, dict[str, Any]] | None = None
    """The frame that was decoded last."""
    # As read; frames that wait have been read and have not left.
    kinds: dict[int, str] = {}
    open: frozenset[int] = frozenset()
    filled: frozenset[int] = frozenset()
    """Text blocks that hold text, and calls of which there were arguments."""
    # As passed and written.
    next: int = 0
    places: dict[int, int] = {}
    """Of blocks that began at the client."""
    starts: dict[int, tuple[Frame, ...]] = {}
    """Of text blocks that have not begun there, and pings after them."""
    closed: frozenset[int] = frozenset()
    """Text blocks that ended there before they did at upstream."""
    gone: frozenset[int] = frozenset()
    """Blocks that are dropped."""
    text: int | None = None
    """The text block that is open at the client."""
    stop: tuple[Frame, ...] = ()
    """Its stop, if that came, and pings after it."""
    thought: int | None = None
    """The client's index of a thinking block that was parted from the text, while it is open."""
    ended: bool = False

    def _value(self, frame: Frame) -> dict[str, Any] | None:
        """Decode a frame; None if it is no event."""
        if self.last is not None and self.last[0] is frame:
            return self.last[1]
        try:
            value = decode(frame.data or b"", "replace")
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        self.last = frame, value
        return value

    def _placed(self, index: int, frame: Frame | None, value: dict[str, Any]) -> Out:
        """Begin a block at the client."""
        place = self._taken()
        self.places = {**self.places, index: place}
        self.renumbers |= place != index and index != OURS
        return Out({**value, "index": place}, frame, frame is not None and place == index)

    def _moved(self, frame: Frame, value: dict[str, Any]) -> Out:
        """Give a frame of a block the client's index."""
        index = index_of(value)
        place = index if index is None else self.places.get(index, index)
        return Out(value, frame, True) if place == index else Out({**value, "index": place}, frame)

    def _begun(self, index: int) -> Iterator[Out]:
        """Begin a text block at the client, unless it is open there."""
        if index != self.text:
            yield from self._over(index)
            yield from self._started(index)

    def _started(self, index: int) -> Iterator[Out]:
        start, *pings = self.starts.get(index, (None,))
        self.starts = but(self.starts, index)
        self.closed -= {index}
        self.text = index
        block = {"type": "text", "text": ""}
        made = {"type": "content_block_start", "index": index, "content_block": block}
        yield self._placed(index, start, (self._value(start) if start else None) or made)
        yield from self._pings(pings)

    def _pings(self, frames: Iterable[Frame]) -> Iterator[Out]:
        return (Out(self._value(frame) or {}, frame, True) for frame in frames)

    def _stays(self, ping: Frame) -> bool:
        """True if a ping stays here, as it is to leave after a frame that does."""
        begins = [up for up in self.starts if up not in self.filled]
        if begins:
            self.starts = {**self.starts, begins[-1]: (*self.starts[begins[-1]], ping)}
        elif self.stop:
            self.stop = (*self.stop, ping)
        return bool(begins or self.stop)

    def _taken(self) -> int:
        """Take the next of the client's indexes."""
        self.next += 1
        return self.next - 1

    def _over(self, index: int | None = None) -> Iterator[Out]:
        """Pass what stayed here of the blocks before, as another one (`index`) begins or the message ends."""
        if self.thought is not None:
            yield Out(stopped_at(self.thought))
            self.thought = None
        if self.text == OURS or self.stop:
            yield from self._text_closed()
        for up in self.starts:
            if up != index and up not in self.filled:
                yield from self._started(up)

    def _text_closed(self) -> Iterator[Out]:
        """End the text block that is open at the client; upstream's own stop, if it comes, is not missed."""
        if self.text is None:
            return
        place = self.places[self.text]
        if self.stop:
            stop, *pings = self.stop
            yield Out({**(self._value(stop) or {}), "index": place}, stop, place == self.text)
            yield from self._pings(pings)
        else:
            yield Out(stopped_at(place))
            self.closed |= {self.text}
        self.places = but(self.places, self.text)
        self.text, self.stop = None, ()

    def _thought(self, text: str) -> Iterator[Out]:
        if self.thought is None:
            yield from self._text_closed()
            self.thought = self._taken()
            block = {"type": "thinking", "thinking": "", "signature": ""}
            yield Out({"type": "content_block_start", "index": self.thought, "content_block": block})
        delta = {"type": "thinking_delta", "thinking": text}
        yield Out({"type": "content_block_delta", "index": self.thought, "delta": delta})

    def _call(self, call: ToolCall) -> Iterator[Out]:
        yield from self._text_closed()
        yield from self._over()
        place = self._taken()
        block = {**block_of(call), "input": {}}
        delta = {"type": "input_json_delta", "partial_json": call.arguments}
        yield Out({"type": "content_block_start", "index": place, "content_block": block})
        yield Out({"type": "content_block_delta", "index": place, "delta": delta})
        yield Out(stopped_at(place))


def stopped_at(place: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": place}


def but[T](blocks: Mapping[int, T], index: int) -> dict[int, T]:
    return {up: one for up, one in blocks.items() if up != index}


def index_of(value: Mapping[str, Any]) -> int | None:
    index = value.get("index")
    return index if isinstance(index, int) else None


def block_of(call: ToolCall) -> dict[str, Any]:
    """Write a call as a block, with the fields that VTC does not know (`caller`)."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    source = call.source if isinstance(call.source, dict) else {}
    return {**source, "type": "tool_use", "id": call.id, "name": call.name, "input": arguments}
