"""Streamed replies of Responses.

    response.created, response.in_progress
    response.output_item.added, response.content_part.added, response.output_text.delta, …
    response.output_text.done, response.content_part.done, response.output_item.done
    response.completed                                            repeats all items

The events that begin a message are kept until some of its text leaves, and those that end it until something else
begins: a call that was lifted out of it may leave nothing of it, or more text may follow. The text that left is
kept, since each event at an end repeats it. As long as all came in order, each frame leaves as it came.

Upstream's items are told apart by the order in which they began: some servers number none, or give an id anew in every
event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.base import Decoded, Said
from vtc.apis.openai_responses.items import ADDED, CALLS, DONE, PARTS, Form, done_item, events_of, name_of, parted
from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    Delta,
    End,
    Finish,
    Reason,
    Reasoning,
    ReasoningDelta,
    Rewritten,
    Text,
    TextDelta,
)
from vtc.json_text import decode, encode
from vtc.wire import sse
from vtc.wire.framing import Frame

TEXT, TEXT_DONE, PART, PART_DONE = (
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.added",
    "response.content_part.done",
)
THOUGHTS = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
ENDS = ("response.completed", "response.incomplete", "response.failed")
REASONING_FIELDS = frozenset({"reasoning", "reasoning_content"})
"""Names by which a profile says that the client is not sent any reasoning."""
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

type Event = Mapping[str, Any]
type Unit = Frame | Event
"""A frame that may leave as it came, or an event that was made or changed."""
type Chain = tuple[Any, str | bytes] | None
"""Pieces of text, each with those before it, so that adding one copies none; bytes are frames that say them."""


class _Open(msgspec.Struct, frozen=True, gc=False):
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


class EventCodec(msgspec.Struct):
    """The events of a streamed reply; `drop` names fields to leave out."""

    framing: ClassVar[sse.EventStream] = sse.EventStream(named_by="type")

    form: Form = Form()
    drop: frozenset[str] = frozenset()
    # Upstream's side
    last: tuple[Frame, Event | None] | None = None
    """The frame that was read last."""
    kinds: tuple[str, ...] = ()
    """The types of the items, in order."""
    places: dict[str | int, int] = {}
    """Items by all that may name them."""
    speaking: bool = False
    """True in a text."""
    spoken: frozenset[int] = frozenset()
    """Items that have text."""
    filled: frozenset[int] = frozenset()
    """Calls that have arguments."""
    # The client's side
    renumbers: bool = False
    id: str = ""
    """Of the reply."""
    next: int | None = None
    """The number of the next event, if they have numbers."""
    count: int = 0
    """Items that began."""
    sent: dict[int, tuple[int, str]] = {}
    """Upstream's items that began: their index and id."""
    done: tuple[Event, ...] = ()
    """Items that are done."""
    open: _Open | None = None
    said: Chain = None
    """The text of the open part, or the arguments of the open call."""
    passed_size: int = 0
    opening: tuple[Frame, ...] = ()
    """Frames that begin an item or a part of it, and have not left."""
    opening_number: int = -1
    closing: tuple[Frame, ...] = ()
    """Frames that end the open item, and have not left."""

    # Frame -> deltas

    def decode(self, frame: Frame) -> Decoded | None:
        event = self._event(frame)
        if event is None:
            return Decoded((End(),)) if (frame.data or b"").strip() == b"[DONE]" else None
        cleaned = None
        if self.drop and (clean := without(event, self.drop)) != event:
            cleaned, event = Frame(self.framing.write(clean, frame, first=True), encode(clean)), clean
        self.last = cleaned or frame, event
        deltas = (*self._deltas(event),)
        if not deltas and "sequence_number" not in event and "output_index" not in event and "item_id" not in event:
            known = event["type"].startswith("response.")
            return Decoded(frame=cleaned) if known else None
        return Decoded(deltas, frame=cleaned)  # none is `alone`: one that leaves nothing shifts the numbers after it

    def _event(self, frame: Frame) -> Event | None:
        """Decode the data of a frame; None if they are no event."""
        if self.last and self.last[0] is frame:
            return self.last[1]
        try:
            event = decode(frame.data or b"null", "replace")
        except ValueError:
            return None
        return event if isinstance(event, dict) and isinstance(event.get("type"), str) else None

    def _deltas(self, event: Event) -> Iterator[Delta]:
        kind = event["type"]
        if kind == ADDED or (kind == TEXT and self._kind(event) != "message"):
            self._register(event)
        if kind == TEXT:
            number = self._number(event)
            self.speaking = self.speaking or bool(event.get("delta"))
            if number not in self.spoken:
                self.spoken |= {number}
            yield TextDelta(str(event.get("delta") or ""))
        elif kind in THOUGHTS:
            yield ReasoningDelta(str(event.get("delta") or ""))
        elif kind in ENDS:
            yield finish_of(_part(event, "response"), self.form)
        elif kind == "error":
            yield Finish("length", said="error")
        elif kind in (TEXT_DONE, ADDED) and self.speaking:
            self.speaking = False
            yield BlockEnd()
        if self._kind(event) in CALLS:
            yield self._call_delta(event)

    def _register(self, event: Event) -> None:
        """Note that an item begins."""
        of = str(_part(event, "item").get("type") or "message")
        self.places = {**self.places, **dict.fromkeys(_keys(event), len(self.kinds))}
        self.kinds = (*self.kinds, of)

    def _call_delta(self, event: Event) -> CallDelta:
        """Read an event of a call. The raw input of a custom tool is written as JSON, piece by piece."""
        kind, number, item = event["type"], self._number(event), _part(event, "item")
        _, field, _ = CALLS[self.kinds[number]]
        raw = field == "input"
        if kind == ADDED:
            id_ = item.get("call_id") or item.get("id")
            return CallDelta(number, id_, name_of(item, self.form), '{"input": "' if raw else "", item)
        piece = event["delta"] if kind.endswith(".delta") else ""
        if number not in self.filled:
            piece = piece or event.get(field) or item.get(field) or ""
            self.filled |= {number} if piece else frozenset()
        if raw:
            piece = json.dumps(piece, ensure_ascii=False)[1:-1] + ('"}' if kind == DONE else "")
        return CallDelta(number, arguments=piece, source=item or None)

    def _number(self, event: Event) -> int:
        """Find the item that an event is about: the last one, if nothing tells."""
        return next((self.places[key] for key in _keys(event) if key in self.places), len(self.kinds) - 1)

    def _kind(self, event: Event) -> str:
        """The type of the item that an event is about; empty if it is about none."""
        about = "item_id" in event or "item" in event or "output_index" in event
        return self.kinds[self._number(event)] if about and self.kinds else ""

    # Frames and events -> bytes

    def forward(self, frame: Frame) -> bytes:
        event = self._event(frame)
        if event is None:
            return frame.raw
        if event["type"] == ADDED and not any(key in self.places for key in _keys(event) if isinstance(key, str)):
            self._register(event)  # it comes after a failure, and was not decoded
        units = self._numbered(self._pass(frame, event))
        if len(units) == 1 and units[0] is frame:
            return frame.raw
        return b"".join(
            unit.raw if isinstance(unit, Frame) else self.framing.write(unit, frame, first=place == 0)
            for place, unit in enumerate(units)
        )

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        event = self._event(frame) or {"type": ""}
        number = self._number(event)
        units: list[Unit] = []
        told = event["type"] == TEXT or not event["type"] or not first
        for one in said:
            match one:
                case Text(text) | Rewritten(text=text) if text:
                    units += self._say(text, number)
                case Reasoning(text):
                    units += self._think(text, number)
                case Call(call=call):
                    units += self._close()
                    item = done_item(call, self.form)
                    units += events_of(item, self.count)
                    self.count, self.done = self.count + 1, (*self.done, item)
                case CallDelta():
                    units += self._pass(frame, event)
                    told = True
                case Finish() if event["type"] in ENDS or event["type"] == "error":
                    units += self._pass(frame, event)
                    told = True
        if not told and self._kind(event) not in CALLS:
            units += self._pass(frame, event)
        self.renumbers = True
        return [decode(unit.data or b"{}") if isinstance(unit, Frame) else unit for unit in self._numbered(units)]

    def _numbered(self, units: Sequence[Unit]) -> list[Unit]:
        """Number the events that leave; those of upstream keep theirs as long as none was added or taken away."""
        self.renumbers = self.renumbers or not all(isinstance(unit, Frame) for unit in units)
        out: list[Unit] = []
        for unit in units:
            event = (self._event(unit) or {}) if isinstance(unit, Frame) else unit
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

    def close(self) -> bytes:
        units = self._numbered(self._kept())
        return b"".join(
            unit.raw if isinstance(unit, Frame) else self.framing.write(unit, None, first=True) for unit in units
        )

    def _kept(self) -> list[Unit]:
        """Let the frames leave that are kept."""
        units: list[Unit] = []
        if self.closing:
            units += self._close(item=any(self._is(frame, DONE) for frame in self.closing), made=False)
        return [*units, *self._begin_upstreams()]

    def keep_alive(self) -> bytes:
        """Make an event of a type that no client knows: comments do not reset the timer of Codex."""
        if not self.id:
            return b": keep-alive\n\n"  # openai-python fails at any event before the first
        if self.next is None:
            return self.framing.write({"type": "keepalive"}, None, first=True)
        self.renumbers, self.next = True, self.next + 1
        return self.framing.write({"type": "keepalive", "sequence_number": self.next - 1}, None, first=True)

    # An event of upstream's -> what leaves for it

    def _pass(self, frame: Frame, event: Event) -> list[Unit]:
        kind = event["type"]
        if isinstance(event.get("response"), dict):
            return self._end(frame, event) if kind in ENDS else self._head(frame, event)
        of = self._kind(event)
        if not of:
            return [*self._kept(), frame] if kind == "error" else [frame]
        if of == "reasoning" and self.drop & REASONING_FIELDS:
            return self._swallow()
        if of == "message":
            return self._message(frame, event, kind)
        return self._other(frame, event, kind, self._number(event))

    def _swallow(self) -> list[Unit]:
        self.renumbers = True
        return []

    def _head(self, frame: Frame, event: Event) -> list[Unit]:
        """Pass `response.created` and the like, with the fields that the AI SDK demands."""
        response = event["response"]
        self.id = self.id or str(response.get("id") or "")
        whole = {"created_at": 0, "model": self.form.model, "output": [], **response, "id": self.id}
        if whole == response:
            return [frame]
        if self.next is None and event["type"] == "response.created":
            number = event.get("sequence_number")
            self.next = number if isinstance(number, int) else 0
        return [{**event, "response": whole}]

    def _end(self, frame: Frame, event: Event) -> list[Unit]:
        units = self._close()
        if self.opening:
            self.opening, self.renumbers = (), True
        response = event["response"]
        changed = self.renumbers or not all(isinstance(unit, Frame) for unit in units)
        if not changed:
            return [*units, frame]
        output = response.get("output") or ()
        same = [*map(_essence, output)] == [*map(_essence, self.done)]
        whole = {**response, "id": self.id or response.get("id"), "output": output if same else self.done}
        return [*units, {**event, "response": whole}]

    def _message(self, frame: Frame, event: Event, kind: str) -> list[Unit]:
        """Pass an event of a message, or keep it."""
        number, open_ = self._number(event), self.open
        is_open = open_ is not None and open_.kind == "message" and open_.number == number
        begins = bool(self.opening) and self.opening_number == number
        if kind == ADDED:
            if self.opening:
                self._swallow()  # of a message that said nothing
            self.opening, self.opening_number = (frame,), number
            return []
        if kind == PART:
            if not (begins or is_open):
                return self._swallow()  # a call came after the last part: its text goes to a message of its own
            self.opening, self.opening_number = (*self.opening, frame), number
            return []
        if kind == TEXT:
            units = self._to_message(number)
            self.said = (self.said, str(event.get("delta") or ""))
            return [*units, self._placed(frame, event)]
        units = []
        if kind in (TEXT_DONE, PART_DONE, DONE):
            if begins and number in self.spoken and _said(event):
                # All of its text was taken away.
                self.opening = () if kind == DONE else tuple(one for one in self.opening if self._is(one, ADDED))
                begins = False
                if kind != DONE or not is_open:
                    return self._swallow()
            if begins:
                units = self._to_message(number)
                is_open = True
            if is_open:
                self.closing = (*self.closing, frame)
                return units
            return self._swallow()
        if begins:
            units = self._to_message(number)
        elif not is_open:
            return self._swallow()
        return [*units, self._placed(frame, event)]

    def _other(self, frame: Frame, event: Event, kind: str, number: int) -> list[Unit]:
        """Pass an event of an item that is no message."""
        units: list[Unit] = []
        item, is_call = event.get("item"), self.kinds[number] in CALLS
        if kind == ADDED and isinstance(item, dict):
            units = self._close()
            id_ = str(item.get("id") or f"fc_{str(item.get('call_id')).removeprefix('fc_')}")
            self.sent, self.count = {**self.sent, number: (self.count, id_)}, self.count + 1
            if is_call:
                begun = {**parted(item, self.form), "id": id_}
                self.open, self.said = _Open("call", number, self.count - 1, id_, begun), None
        if number not in self.sent:
            return [*units, frame]
        open_ = self.open
        if is_call and kind != ADDED:
            if open_ is None or open_.number != number:
                if kind.endswith(".delta"):
                    raise ValueError("a call goes on after another item has begun")
                return self._swallow()  # it was ended when the next item began
            if kind.endswith(".delta"):
                self.said = (self.said, event["delta"])
            elif kind.endswith("arguments.done"):
                self.open = replace(open_, settled=True)
        placed = self._placed(frame, event)
        if kind == DONE:
            self.done = (*self.done, (event if isinstance(placed, Frame) else placed)["item"])
            self.open = None if is_call else open_
        return [*units, placed]

    def _placed(self, frame: Frame, event: Event, **more: Any) -> Unit:
        """Put an event where its item is; the frame itself if it says that."""
        number, open_ = self._number(event), self.open
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

    # Messages that the client is told of

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
            event = self._event(frame) or {}
            if event["type"] == ADDED:
                item = event["item"]
                id_ = str(item.get("id") or self._own_id("msg"))
                self.open = _Open("message", self.opening_number, self.count, id_, item)
                self.count += 1
                units.append(self._placed(frame, event))
            elif self.open:
                units.append(self._placed(frame, event))
                self.open = replace(self.open, part=event["part"])
            self.said = None
        return units

    def _begin(self, kind: str, number: int) -> list[Unit]:
        """Begin an item of our own."""
        prefix, more, part = _OWN[kind]
        item = {"id": self._own_id(prefix), "type": kind, "status": "in_progress", **more}
        self.open, self.said = _Open(kind, number, self.count, item["id"], item, part={**part, "text": ""}), None
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
        held = {event["type"]: (frame, event) for frame in self.closing if (event := self._event(frame))}
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
        return (self._event(frame) or {}).get("type") == kind


def finish_of(response: Event, form: Form) -> Finish:
    """Read the end of a reply. Some servers do not tell that it was cut off: its length does."""
    status = str(response.get("status"))
    why = str(_part(response, "incomplete_details").get("reason") or "")
    used = _part(response, "usage").get("output_tokens")
    reason: Reason = "other"  # it does not speak of calls, so that calls do not change it
    filtered = status == "incomplete" and why != "max_output_tokens"
    if not filtered and (status != "completed" or (form.most and isinstance(used, int) and used >= form.most)):
        reason = "length"
    return Finish(reason, said=f"{status} ({why})" if why else status)


def _part(event: Event, key: str) -> Event:
    part = event.get(key)
    return part if isinstance(part, dict) else {}


def _keys(event: Event) -> list[str | int]:
    """List all that may name the item of an event, the surest first."""
    item = _part(event, "item")
    names = (event.get("item_id"), item.get("id"), item.get("call_id"), event.get("output_index"))
    return [name for name in names if isinstance(name, str | int)]


def _said(event: Event) -> str:
    """The text that an event at an end repeats."""
    parts = _part(event, "item").get("content") or [_part(event, "part")]
    return str(event.get("text") or "") or "".join(str(part.get("text") or "") for part in parts)


def _text(part: Event) -> Any:
    return part.get("text", part.get("refusal"))


def _essence(item: Event) -> list[Any]:
    return [item.get(key) for key in ("type", "id", "call_id", "namespace", "name", "arguments", "input", "content")]


def _joined(chain: Chain) -> str:
    pieces: list[str] = []
    while chain:
        chain, piece = chain
        pieces.append(piece if isinstance(piece, str) else _text_of(piece))
    return "".join(reversed(pieces))


def _text_of(data: bytes) -> str:
    """The text of frames that are all of the type for text."""
    return "".join(decode(b"[%b]" % b",".join(_DELTA.findall(data)), "replace"))


def without(event: Event, drop: Iterable[str]) -> dict[str, Any]:
    """Leave out the fields named, in an event, its response and its usage, its item and its part."""
    gone = {*drop} - {"type"}
    clean = {key: value for key, value in event.items() if key not in gone}
    for key in ("response", "item", "part", "usage"):
        if isinstance(clean.get(key), dict):
            clean[key] = without(clean[key], gone)
    return clean
