"""Streamed replies of Responses as they come: events are decoded into deltas, and upstream's items told apart.

They are told apart by the order in which they began: some servers number none, or give an id anew in every event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import Decoded
from vtc.apis.fields import part_of, without_names
from vtc.apis.openai_responses.items import ADDED, CALLS, DONE, Form, name_of
from vtc.events import BlockEnd, CallDelta, Delta, End, Finish, Reason, ReasoningDelta, TextDelta
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
type Event = Mapping[str, Any]


class Incoming(msgspec.Struct):
    """Reads the events of a streamed reply; `drop` names fields to leave out."""

    framing: ClassVar[sse.EventStream] = sse.EventStream(named_by="type")

    form: Form = Form()
    drop: frozenset[str] = frozenset()
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

    def decode(self, frame: Frame) -> Decoded | None:
        event = self.event_of(frame)
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

    def event_of(self, frame: Frame) -> Event | None:
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
        if kind == ADDED or (kind == TEXT and self.kind_of(event) != "message"):
            self.register(event)
        if kind == TEXT:
            number = self.number_of(event)
            self.speaking = self.speaking or bool(event.get("delta"))
            if number not in self.spoken:
                self.spoken |= {number}
            yield TextDelta(str(event.get("delta") or ""))
        elif kind in THOUGHTS:
            yield ReasoningDelta(str(event.get("delta") or ""))
        elif kind in ENDS:
            yield finish_of(part_of(event, "response"), self.form)
        elif kind == "error":
            yield Finish("length", said="error")
        elif kind in (TEXT_DONE, ADDED) and self.speaking:
            self.speaking = False
            yield BlockEnd()
        if self.kind_of(event) in CALLS:
            yield self._call_delta(event)

    def register(self, event: Event) -> None:
        """Note that an item begins."""
        of = str(part_of(event, "item").get("type") or "message")
        self.places = {**self.places, **dict.fromkeys(keys_of(event), len(self.kinds))}
        self.kinds = (*self.kinds, of)

    def _call_delta(self, event: Event) -> CallDelta:
        """Read an event of a call. The raw input of a custom tool is written as JSON, piece by piece."""
        kind, number, item = event["type"], self.number_of(event), part_of(event, "item")
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

    def number_of(self, event: Event) -> int:
        """Find the item that an event is about: the last one, if nothing tells."""
        return next((self.places[key] for key in keys_of(event) if key in self.places), len(self.kinds) - 1)

    def kind_of(self, event: Event) -> str:
        """The type of the item that an event is about; empty if it is about none."""
        about = "item_id" in event or "item" in event or "output_index" in event
        return self.kinds[self.number_of(event)] if about and self.kinds else ""


def finish_of(response: Event, form: Form) -> Finish:
    """Read the end of a reply. Some servers do not tell that it was cut off: its length does."""
    status = str(response.get("status"))
    why = str(part_of(response, "incomplete_details").get("reason") or "")
    used = part_of(response, "usage").get("output_tokens")
    reason: Reason = "other"  # it does not speak of calls, so that they do not change it
    filtered = status == "incomplete" and why != "max_output_tokens"
    if not filtered and (status != "completed" or (form.most and isinstance(used, int) and used >= form.most)):
        reason = "length"
    return Finish(reason, said=f"{status} ({why})" if why else status)


def keys_of(event: Event) -> list[str | int]:
    """List all that may name the item of an event, the surest first."""
    item = part_of(event, "item")
    names = (event.get("item_id"), item.get("id"), item.get("call_id"), event.get("output_index"))
    return [name for name in names if isinstance(name, str | int)]


def without(event: Event, drop: Iterable[str]) -> dict[str, Any]:
    """Leave out the fields named, in an event, its response and its usage, its item and its part."""
    return without_names(event, {*drop} - {"type"}, ("response", "item", "part", "usage"))
