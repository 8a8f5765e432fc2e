"""The side of the client: the items that it was told of, and how a message is begun, gone on with and ended.

The text that left is kept, as the events that end an item repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.openai_responses.incoming import (
    PART_DONE,
    REASONING_FIELDS,
    TEXT,
    TEXT_DONE,
    Event,
    Incoming,
)
from vtc.apis.openai_responses.items import ADDED, CALLS, DONE, PARTS, parted
from vtc.json_text import decode
from vtc.wire.framing import Frame

_OWN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "message": (
        "msg",
        {"role": "assistant", "content": []},
        {"type": "output_text", "annotations": [], "logprobs": []},
    ),
    "reasoning": ("rs", {"summary": [], "content": []}, {"type": "reasoning_text"}),
}
"""Items with text that VTC begins itself: how their ids begin, and the fields of the item and of its part."""
_TEXT_TYPE = b'"%b"' % TEXT.encode()
_DELTA = re.compile(rb'"delta"\s*:\s*("(?:[^"\\]|\\.)*+")')  # no string holds the quotes around the name as they are
_MOST_PASSED = 1 << 16
"""Bytes of frames that are kept until their text is read."""

type Unit = Frame | Event
"""A frame that may leave as it came, or an event that was made or changed."""
type Chain = tuple[Any, str | bytes] | None
"""Pieces of text, each with those before it, so that adding one copies none; bytes are frames that say them."""


class Open(msgspec.Struct, frozen=True, gc=False):
    """The item that the client was told the beginning of, and not the end."""

    kind: str
    number: int
    """Which one of upstream's it is, or goes on with."""
    index: int
    id: str
    item: Event
    parts: tuple[Event, ...] = ()
    """Those that are done."""
    part: Event | None = None
    """The one that is not."""
    settled: bool = False
    """True once the arguments of a call were told whole."""


class Outgoing(Incoming):
    """Writes items, and numbers all that leaves."""

    renumbers: bool = False
    id: str = ""
    """Of the reply."""
    next: int | None = None
    """The number of the next event, if they have numbers."""
    count: int = 0
    """Items that began."""
    sent: dict[int, tuple[int, str]] = msgspec.field(default_factory=dict)
    """Upstream's items that began: their index and id."""
    done: tuple[Event, ...] = ()
    """Items that are done."""
    open: Open | None = None
    said: Chain = None
    """The text of the open part, or the arguments of the open call."""
    passed_size: int = 0
    opening: tuple[Frame, ...] = ()
    """Frames that begin an item or a part of it, and have not left."""
    opening_number: int = -1
    closing: tuple[Frame, ...] = ()
    """Frames that end the open item, and have not left."""

    def _numbered(self, units: Sequence[Unit]) -> list[Unit]:
        """Number the events that leave; those of upstream keep theirs as long as none was added or taken away."""
        self.renumbers = self.renumbers or not all(isinstance(unit, Frame) for unit in units)
        out: list[Unit] = []
        for unit in units:
            event = (self.event_of(unit) or {}) if isinstance(unit, Frame) else unit
            number = event.get("sequence_number")
            if not self.renumbers:
                self.next = number + 1 if isinstance(number, int) else self.next
            elif self.next is not None:
                unit = unit if number == self.next else {**event, "sequence_number": self.next}
                self.next += 1
            out.append(unit)
        return out

    def passed(self, data: bytes) -> None:
        if self.next is not None:
            self.next += data.count(self.framing.end)
        if self.open and _TEXT_TYPE in data:
            self.said = (self.said, data)
            self.passed_size += len(data)
        if self.passed_size > _MOST_PASSED:
            chain, pieces = self.said, []
            while chain and isinstance(chain[1], bytes):
                pieces.append(chain[1])
                chain = chain[0]
            self.said, self.passed_size = (chain, _text_of(b"".join(reversed(pieces)))), 0

    def _placed(self, frame: Frame, event: Event, **more: Any) -> Unit:
        """Put an event where its item is; the frame itself if it says that."""
        number, open_ = self.number_of(event), self.open
        if self.kinds[number] == "message" and open_:
            index, id_ = open_.index, open_.id
            if "part" in event or "content_index" in event or event["type"] in (TEXT, TEXT_DONE):
                more = {"content_index": len(open_.parts), **more}
        else:
            index, id_ = self.sent[number]
        more["output_index"] = index
        if isinstance(item := more.get("item") or event.get("item"), dict):
            if item.get("type") in CALLS:
                item = parted(item, self.form)
                if event["type"] == DONE and open_:
                    known = {key: open_.item[key] for key in ("call_id", "name", "namespace") if key in open_.item}
                    item = {"status": "completed", **item, **known}
            more["item"] = {**item, "id": id_}
        else:
            more["item_id"] = id_
            if "name" in event:
                more["name"] = parted(event, self.form)["name"]
        return frame if all(event.get(key) == value for key, value in more.items()) else {**event, **more}

    def _say(self, text: str, number: int) -> list[Unit]:
        units = self._to_message(number)
        return [*units, self._piece(text)]

    def _think(self, text: str, number: int) -> list[Unit]:
        if self.drop & REASONING_FIELDS:
            return []
        units: list[Unit] = []
        if self.open is None or self.open.kind != "reasoning":
            units = [*self._close(), *self._begin("reasoning", number)]
        return [*units, self._piece(text)]

    def _piece(self, text: str) -> Event:
        """Write a piece of text into the open item."""
        assert self.open
        self.said = (self.said, text)
        more: dict[str, Any] = {"logprobs": []} if self.open.kind == "message" else {}
        return {**self._at("delta"), "delta": text, **more}

    def _at(self, end: str, around: bool = False) -> dict[str, Any]:
        """Name the open part in an event about its text, or `around` that."""
        assert self.open
        assert self.open.part is not None
        names = PARTS.get(str(self.open.part.get("type")), PARTS["output_text"])
        at = {"item_id": self.open.id, "output_index": self.open.index, "content_index": len(self.open.parts)}
        return {"type": f"response.{names[not around]}.{end}", **at}

    def _to_message(self, number: int) -> list[Unit]:
        """Have a message open for text of upstream's item `number`."""
        open_ = self.open
        in_message = open_ is not None and open_.kind == "message"
        if self.opening and (self.opening_number == number or not in_message):
            same = in_message and open_ is not None and open_.number == self.opening_number
            return [*self._close(item=not same), *self._begin_upstreams()]
        return [] if in_message else [*self._close(), *self._begin("message", number)]

    def _begin_upstreams(self) -> list[Unit]:
        """Let the frames leave that begin a message, or a part of it."""
        frames, self.opening = self.opening, ()
        units: list[Unit] = []
        for frame in frames:
            event = self.event_of(frame) or {}
            if event["type"] == ADDED:
                item = event["item"]
                id_ = str(item.get("id") or self._own_id("msg"))
                self.open = Open("message", self.opening_number, self.count, id_, item)
                self.count += 1
                units.append(self._placed(frame, event))
            else:
                if self.open is None:  # a call came after the last part
                    units.append(self._begin("message", self.opening_number)[0])
                units.append(self._placed(frame, event))
                assert self.open
                self.open = replace(self.open, part=event["part"])
            self.said = None
        return units

    def _begin(self, kind: str, number: int) -> list[Unit]:
        """Begin an item of our own."""
        prefix, more, part = _OWN[kind]
        item = {"id": self._own_id(prefix), "type": kind, "status": "in_progress", **more}
        self.open, self.said = Open(kind, number, self.count, item["id"], item, part={**part, "text": ""}), None
        self.count += 1
        added = {"type": ADDED, "output_index": self.open.index, "item": item}
        return [added, {**self._at("added", around=True), "part": self.open.part}]

    def _own_id(self, prefix: str) -> str:
        """Make the id of an item, which no other has."""
        return f"{prefix}_vtc{self.count}_{self.id.removeprefix('resp_')}"

    def _close(self, *, item: bool = True, made: bool = True) -> list[Unit]:
        """End the open part, and the open item, as the frames that were kept do or as they should.

        Only with `made` is there an event for which no frame was kept.
        """
        open_, units = self.open, list[Unit]()
        if open_ is None:
            return units
        held = {event["type"]: (frame, event) for frame in self.closing if (event := self.event_of(frame))}
        self.closing = ()

        def say(event: dict[str, Any], **fields: Any) -> None:
            if event["type"] in held:
                frame, came = held[event["type"]]
                if came.get("text") == fields.get("text"):
                    fields.pop("logprobs", None)  # they fit only the text that came
                units.append(self._placed(frame, came, **fields))
            elif made:
                units.append({**event, **fields})

        text = _joined(self.said)
        if open_.kind == "call":
            events, field, _ = CALLS[open_.item["type"]]
            at = {"item_id": open_.id, "output_index": open_.index, "name": open_.item["name"]}
            if not open_.settled:
                units.append({"type": f"response.{events}.done", **at, field: text})
            done: Event = {**open_.item, field: text, "status": "completed"}
            units.append({"type": DONE, "output_index": open_.index, "item": done})
            self.open, self.done = None, (*self.done, done)
            return units
        if open_.part is not None:
            part = held[PART_DONE][1]["part"] if PART_DONE in held else open_.part
            if part.get("type") in ("output_text", "reasoning_text"):
                more: dict[str, Any] = {"logprobs": []} if open_.kind == "message" else {}
                if part.get("text") != text:
                    part = {**part, "text": text, **more, **({"annotations": []} if more else {})}
                say(self._at("done"), text=text, **more)
            say(self._at("done", around=True), part=part)
            self.open = open_ = replace(open_, parts=(*open_.parts, part), part=None)
        if item:
            done = held[DONE][1]["item"] if DONE in held else {**open_.item, "status": "completed"}
            if [*map(_text, done.get("content") or ())] != [*map(_text, open_.parts)]:
                done = {**done, "content": open_.parts}
            say({"type": DONE, "output_index": open_.index}, item=done)
            self.open, self.done = None, (*self.done, {**done, "id": open_.id})
        return units

    def _is(self, frame: Frame, kind: str) -> bool:
        return (self.event_of(frame) or {}).get("type") == kind


def _text(part: Event) -> Any:
    return part.get("text", part.get("refusal"))


def _joined(chain: Chain) -> str:
    pieces: list[str] = []
    while chain:
        chain, piece = chain
        pieces.append(piece if isinstance(piece, str) else _text_of(piece))
    return "".join(reversed(pieces))


def _text_of(data: bytes) -> str:
    """The text of frames that are all of the type for text."""
    return "".join(decode(b"[%b]" % b",".join(_DELTA.findall(data)), "replace"))
