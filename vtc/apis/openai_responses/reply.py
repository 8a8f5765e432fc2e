"""Streamed replies of Responses.

    response.created, response.in_progress
    response.output_item.added, response.content_part.added, response.output_text.delta, …
    response.output_text.done, response.content_part.done, response.output_item.done
    response.completed                                            repeats all items

The events that begin a message are kept until some of its text leaves, and those that end it until something else
begins: a call that was lifted out of it may leave nothing of it, or more text may follow. The text that left is
kept, since each event at an end repeats it. As long as all came in order, each frame leaves as it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.apis.base import Said
from vtc.apis.fields import part_of
from vtc.apis.openai_responses.incoming import (
    ENDS,
    PART,
    PART_DONE,
    REASONING_FIELDS,
    TEXT,
    TEXT_DONE,
    Event,
    keys_of,
)
from vtc.apis.openai_responses.items import ADDED, CALLS, DONE, done_item, events_of, parted
from vtc.apis.openai_responses.outgoing import Open, Outgoing, Unit
from vtc.events import Call, CallDelta, Finish, Reasoning, Rewritten, Text
from vtc.json_text import decode
from vtc.wire.framing import Frame


class EventCodec(Outgoing):
    """The events of a streamed reply."""

    def forward(self, frame: Frame) -> bytes:
        event = self.event_of(frame)
        if event is None:
            return frame.raw
        if event["type"] == ADDED and not any(key in self.places for key in keys_of(event) if isinstance(key, str)):
            self.register(event)  # it comes after a failure, and was not decoded
        units = self._numbered(self._pass(frame, event))
        if len(units) == 1 and units[0] is frame:
            return frame.raw
        return b"".join(
            unit.raw if isinstance(unit, Frame) else self.framing.write(unit, frame, first=place == 0)
            for place, unit in enumerate(units)
        )

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        event = self.event_of(frame) or {"type": ""}
        number = self.number_of(event)
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
        if not told and self.kind_of(event) not in CALLS:
            units += self._pass(frame, event)
        self.renumbers = True
        return [decode(unit.data or b"{}") if isinstance(unit, Frame) else unit for unit in self._numbered(units)]

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
        of = self.kind_of(event)
        if not of:
            return [*self._kept(), frame] if kind == "error" else [frame]
        if of == "reasoning" and self.drop & REASONING_FIELDS:
            return self._swallow()
        if of == "message":
            return self._message(frame, event, kind)
        return self._other(frame, event, kind, self.number_of(event))

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
        number, open_ = self.number_of(event), self.open
        is_open = open_ is not None and open_.kind == "message" and open_.number == number
        begins = bool(self.opening) and self.opening_number == number
        if kind == ADDED:
            if self.opening:
                self._swallow()  # of a message that said nothing
            self.opening, self.opening_number = (frame,), number
            return []
        if kind == PART:
            self.opening, self.opening_number = (*(self.opening if begins else ()), frame), number
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
                self.open, self.said = Open("call", number, self.count - 1, id_, begun), None
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


def _said(event: Event) -> str:
    """The text that an event at an end repeats."""
    parts = part_of(event, "item").get("content") or [part_of(event, "part")]
    return str(event.get("text") or "") or "".join(str(part.get("text") or "") for part in parts)


def _essence(item: Event) -> list[Any]:
    return [item.get(key) for key in ("type", "id", "call_id", "namespace", "name", "arguments", "input", "content")]
