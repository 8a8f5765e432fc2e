"""Streamed replies of Responses as they leave.

    response.created, response.in_progress
    response.output_item.added, response.content_part.added, response.output_text.delta, …
    response.output_text.done, response.content_part.done, response.output_item.done
    response.completed                                            repeats all items

The text that left is kept, since the events that end an item repeat it. As long as all came in order, each frame leaves
as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis import blocks
from vtc.apis.blocks import Event, Json, Unit
from vtc.apis.fields import part_of
from vtc.apis.openai_responses.incoming import (
    ENDS,
    PART,
    PART_DONE,
    TEXT,
    TEXT_DONE,
    Incoming,
)
from vtc.apis.openai_responses.items import ADDED, CALLS, DONE, IDS, PARTS, done_item, events_of, own_item, parted
from vtc.events import Finish, ToolCall
from vtc.json_text import decode

_TEXT_TYPE = b'"%b"' % TEXT.encode()
_DELTA = re.compile(rb'"delta"\s*:\s*("(?:[^"\\]|\\.)*+")')  # no string holds the quotes around the name as they are
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d+)')
_OPTIONAL = ("logprobs", "name")
"""Fields of events at an end that not all servers write."""

type Chain = tuple[Any, str] | None
"""Pieces of text, each with those before it, so that adding one copies none."""


class Open(blocks.Open, frozen=True, gc=False):
    """An item that the client was told the beginning of, and not the end."""

    id: str
    item: Json
    parts: tuple[Json, ...] = ()
    """Those that are done."""
    part: Json | None = None
    """The one that is not."""


class EventCodec(Incoming):
    """The events of a streamed reply."""

    kinds: ClassVar[tuple[str, str]] = ("message", "reasoning")
    counts: ClassVar[bool] = True

    id: str = ""
    """Of the reply."""
    next: int | None = None
    """The number of the next event, if they have numbers."""
    sent: dict[int, tuple[int, str]] = msgspec.field(default_factory=dict)
    """Upstream's items that are no messages and began: their index and id."""
    done: tuple[Json, ...] = ()
    """Items that are done."""
    said: Chain = None
    """The text of the open part, or the arguments of the open call."""
    unread: bytes = b""
    """The last frames that left unread."""

    def _numbered(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Number the events that leave; those of upstream keep theirs as long as none was added or taken away."""
        if self.unread and (numbers := _NUMBER.findall(self.unread)):
            self.next = int(numbers[-1]) + 1
        self.unread = b""
        self.renumbers = self.renumbers or not all(isinstance(unit, Event) for unit in units)
        out: list[Unit] = []
        for unit in units:
            value = unit.value if isinstance(unit, Event) else unit
            number = value.get("sequence_number")
            if self.next is None or not self.renumbers:
                self.next = number + 1 if isinstance(number, int) else self.next
            else:
                unit = unit if number == self.next else {**value, "sequence_number": self.next}
                self.next += 1
            out.append(unit)
        return out

    def passed(self, data: bytes) -> None:
        """Take note of frames that left unread (`base.Following`)."""
        self.unread = data
        if self.open and _TEXT_TYPE in data:
            self.said = (self.said, "".join(decode(b"[%b]" % b",".join(_DELTA.findall(data)), "replace")))

    def keep_alive(self) -> bytes:
        """Make an event of a type that no client knows: comments do not reset the timer of Codex."""
        if not self.id:
            return b": keep-alive\n\n"  # openai-python fails at any event before the first
        return self._written(self._numbered([{"type": "keepalive"}]), None)

    # Passing

    def _pass_other(self, event: Event) -> Iterator[Unit]:
        type_, number, item = event.value["type"], event.number, event.value.get("item")
        if isinstance(event.value.get("response"), dict):
            yield from self._ended(event) if type_ in ENDS else self._head(event)
            return
        if type_ == "error":
            yield from self._flush()
        if event.kind and type_ == ADDED and isinstance(item, dict):
            yield from self._close()
            id_ = str(item.get("id") or f"fc_{str(item.get('call_id')).removeprefix('fc_')}")
            if event.kind in CALLS:
                self.open = Open(event.kind, number, self.count, id_, {**parted(item, self.form), "id": id_})
                self.said = None
            self.sent, self.count = {**self.sent, number: (self.count, id_)}, self.count + 1
        if not event.kind or number not in self.sent:
            yield event
        elif event.kind in CALLS and type_ != ADDED:
            yield from self._pass_call(event, type_)
        else:
            placed = self._placed(event)
            if type_ == DONE:
                self.done = (*self.done, (placed.value if isinstance(placed, Event) else placed)["item"])
            yield placed

    def _pass_call(self, event: Event, type_: str) -> Iterator[Unit]:
        """Pass a piece of a call's arguments; an event that ends it waits for the last one."""
        if self.open is None or self.open.number != event.number:
            if type_.endswith(".delta"):
                raise ValueError("a call goes on after another item has begun")
            self.renumbers = True  # it was ended when the next item began
        elif type_.endswith(".done"):
            self.stops += (event,)
            if type_ == DONE:
                yield from self._close(made=False)
        else:
            if type_.endswith(".delta"):
                self.said = (self.said, event.value["delta"])
            yield self._placed(event)

    def _head(self, event: Event) -> Iterator[Unit]:
        """Pass `response.created` and the like, with the fields that the AI SDK demands."""
        value, type_, response = event.value, event.value["type"], event.value["response"]
        self.id = self.id or str(response.get("id") or "")
        whole = {"created_at": 0, "model": self.form.model, "output": [], **response, "id": self.id}
        if whole != response and type_ == "response.created" and "sequence_number" not in value:
            self.next = 0
        yield event if whole == response else {**value, "response": whole}

    def _ended(self, event: Event) -> Iterator[Unit]:
        closing = [*self._close()]
        yield from closing
        self.renumbers |= bool(self.starts)  # of a message that said nothing
        self.starts = ()
        if not self.renumbers and all(isinstance(unit, Event) for unit in closing):
            yield event
            return
        response = event.value["response"]
        yield {**event.value, "response": {**response, "id": self.id or response.get("id"), "output": self.done}}

    def _dropped(self, event: Event | None) -> Iterable[Unit]:
        """Leave out a part; another one may come, as long as the item is not done."""
        goes_on = event is not None and event.value["type"] != DONE
        self.starts = tuple(one for one in self.starts if goes_on and one.value["type"] == ADDED)
        return ()

    def _placed(self, event: Event, **more: Any) -> Unit:
        """Put an event where its item is; the frame itself if it says that."""
        value, open_ = event.value, self.open
        if event.kind == "message" and open_:
            index, id_ = open_.place, open_.id
            if "part" in value or "content_index" in value or event.phase == "text" or value["type"] == TEXT_DONE:
                more = {"content_index": len(open_.parts), **more}
            if event.phase == "text":
                self.said = (self.said, str(value.get("delta") or ""))
        else:
            index, id_ = self.sent[event.number]
        more["output_index"] = index
        if isinstance(item := more.get("item") or value.get("item"), dict):
            more["item"] = {**parted(item, self.form), "id": id_}
        else:
            more["item_id"] = id_
            if "name" in value:
                more["name"] = parted(value, self.form)["name"]
        return event if all(value.get(key) == one for key, one in more.items()) else {**value, **more}

    # Writing

    def _says_more(self, event: Event) -> bool:
        told = event.value.get("type") in (None, TEXT, *ENDS)
        return not told and event.kind not in CALLS

    def _finish(self, end: Finish, event: Event, *, first: bool) -> Iterator[Unit]:
        if event.value.get("type") in ENDS:
            yield from self._pass(event)

    def _call(self, call: ToolCall) -> Iterator[Unit]:
        item = done_item(call, self.form)
        yield from events_of(item, self.count)
        self.count, self.done = self.count + 1, (*self.done, item)

    def _piece(self, text: str) -> Iterator[Unit]:
        if self.open.part is None:  # upstream began none, or has ended it
            self.said = None if self.open.parts else self.said
            (part,) = own_item("message", "", "", "")["content"]
            self.open = replace(self.open, part=part)
            yield {"type": PART, **self._at(), "part": part}
        self.said, open_ = (self.said, text), self.open
        _, events, _ = PARTS.get(open_.part.get("type"), PARTS["output_text"])
        more: dict[str, Any] = {"logprobs": []} if open_.kind == "message" else {}
        yield {"type": f"response.{events}.delta", **self._at(), "delta": text, **more}

    def _at(self) -> Json:
        """Name the open part."""
        return {"item_id": self.open.id, "output_index": self.open.place, "content_index": len(self.open.parts)}

    def _begin(self, kind: str, number: int, starts: Sequence[Event]) -> Iterator[Unit]:
        goes_on = bool(starts) and self.open is not None and self.open.number == starts[0].number
        yield from self._close(item=not goes_on)
        if self.open is None:
            own = f"{IDS[kind]}_vtc{self.count}_{self.id.removeprefix('resp_')}"
            came = starts[0].value["item"] if starts and starts[0].value["type"] == ADDED else None
            item = came or own_item(kind, own, "", "in_progress")
            self.open = Open(kind, number, self.count, str(item.get("id") or own), item)
            self.count += 1
            made = events_of(item, self.open.place)
            if came is None:
                yield next(made)
            if not starts:
                self.open = replace(self.open, part=item["content"][0])
                yield next(made)
        for event in starts:
            yield self._placed(event)
            if event.value["type"] == PART:
                self.open = replace(self.open, part=event.value["part"])
        self.said = None

    def _close(self, *, made: bool = True, item: bool = True) -> Iterator[Unit]:
        """End the open part, or call, and the open item, as the frames that were kept do or as they should.

        Only with `made` is there an event for which no frame was kept.
        """
        open_, stops = self.open, self.stops
        held = {event.value["type"]: event for event in stops}
        self.stops = ()
        if open_ is None:
            return
        text, parts = _joined(self.said), open_.parts
        done: dict[str, Any] = {**open_.item, "status": "completed"}
        if DONE in held:
            done = {"status": "completed", **held[DONE].value["item"], "id": open_.id}
        if open_.kind in CALLS:
            known = {key: open_.item[key] for key in ("call_id", "name", "namespace") if key in open_.item}
            field = CALLS[open_.kind][1]
            ends = (part_of(event.value, "item").get(field) or event.value.get(field) for event in reversed(stops))
            done |= {**known, field: next(filter(None, ends), text)}
        elif open_.part is not None:
            part = held[PART_DONE].value["part"] if PART_DONE in held else open_.part
            if "text" in part and part["text"] != text:
                more: Json = {"annotations": [], "logprobs": []} if open_.kind == "message" else {}
                part = {**part, "text": text, **more}
            parts = (*parts, part)
        if [*map(_text, done.get("content") or ())] != [*map(_text, parts)]:
            done["content"] = [*parts]
        at = len(open_.parts)
        for event in events_of({**done, "id": open_.id}, open_.place):
            type_ = event["type"]
            is_end = type_.endswith(".done") and event.get("content_index", at) == at and "refusal" not in event
            if not is_end or (type_ == DONE and not item):
                continue
            if (came := held.get(type_)) is not None:
                is_same = came.value.get("text") == event.get("text")
                yield self._placed(came, **{key: event[key] for key in event if not (is_same and key in _OPTIONAL)})
            elif made:
                yield event
        self.open = replace(open_, parts=parts, part=None)
        if item and (made or DONE in held):
            self.open, self.done = None, (*self.done, done)


def _text(part: Json) -> Any:
    return part.get("text", part.get("refusal"))


def _joined(chain: Chain) -> str:
    pieces: list[str] = []
    while chain:
        chain, piece = chain
        pieces.append(piece)
    return "".join(reversed(pieces))
