"""Streamed replies of Responses as they come: events are decoded into deltas, and upstream's items told apart.

They are told apart by the order in which they began: some servers number none, or give an id anew in every event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from vtc.apis.base import Decoded
from vtc.apis.blocks import Blocks, Event, Json, Phase
from vtc.apis.fields import part_of
from vtc.apis.openai_responses.items import ADDED, CALLS, DONE, Form, name_of
from vtc.events import BlockEnd, CallDelta, Delta, Finish, Reason, ReasoningDelta, ServerError, TextDelta
from vtc.wire.framing import Frame

TEXT, TEXT_DONE, PART, PART_DONE = (
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.added",
    "response.content_part.done",
)
_PHASES: dict[str, Phase] = {
    ADDED: "begin",
    PART: "part",
    TEXT: "text",
    **dict.fromkeys((TEXT_DONE, PART_DONE, DONE), "end"),
}
THOUGHT = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
FAILED = "response.failed"
ENDS = ("response.completed", "response.incomplete", FAILED)


class Incoming(Blocks):
    """Reads the events of a streamed reply."""

    form: Form = Form()
    items: tuple[str, ...] = ()
    """The types of upstream's items, in order."""
    names: dict[str | int, int] = msgspec.field(default_factory=dict)
    """Items by all that may name them."""
    speaking: bool = False
    """True in a text."""

    def _read(self, frame: Frame, value: Json) -> Decoded | None:
        type_, about = value["type"], bool(value.keys() & {"item_id", "item", "output_index"})
        if type_ == ADDED or (type_ == TEXT and not (about and self._kind(value) == "message")):
            of = str(part_of(value, "item").get("type") or "message")
            self.names = {**self.names, **dict.fromkeys(_names(value), len(self.items))}
            self.items = (*self.items, of)
        number, kind = self._number(value), self._kind(value) if about else ""
        if type_ == PART:
            self.filled -= {number}
        phase = _PHASES.get(type_, "")
        event = Event(frame.raw, frame.data, value, number, kind, phase, phase == "end" and number in self.filled)
        deltas = (*self._deltas(event),)
        ours = type_ == "error" or type_.startswith("response.") or "sequence_number" in value
        if not (deltas or about or ours):
            return None
        return Decoded(deltas, frame=event)  # none is `alone`: one that leaves nothing shifts the numbers after it

    def _number(self, value: Json) -> int:
        """Find the item that an event is about: the last one, if nothing tells."""
        return next((self.names[name] for name in _names(value) if name in self.names), len(self.items) - 1)

    def _kind(self, value: Json) -> str:
        return self.items[self._number(value)] if self.items else ""

    def _deltas(self, event: Event) -> Iterator[Delta]:
        value, type_ = event.value, event.value["type"]
        if type_ == TEXT:
            self.speaking = self.speaking or bool(value.get("delta"))
            yield TextDelta(self._fill(event.number, value.get("delta")))
        elif type_ in THOUGHT:
            yield ReasoningDelta(str(value.get("delta") or ""))
        elif type_ in ENDS:
            yield _finish_of(part_of(value, "response"), self.form)
            if type_ == FAILED:
                yield ServerError(event.data or b"")
        elif type_ in (TEXT_DONE, ADDED) and self.speaking:
            self.speaking = False
            yield BlockEnd()
        if event.kind in CALLS:
            yield self._call_delta(event)

    def _call_delta(self, event: Event) -> CallDelta:
        """Read an event of a call. The raw input of a custom tool is written as JSON, piece by piece."""
        value, type_, number, item = event.value, event.value["type"], event.number, part_of(event.value, "item")
        _, field = CALLS[event.kind]
        raw = field == "input"
        if type_ == ADDED:
            id_ = item.get("call_id") or item.get("id")
            return CallDelta(number, id_, name_of(item, self.form), '{"input": "' if raw else "", item)
        piece = value["delta"] if type_.endswith(".delta") else ""
        if number not in self.filled:
            piece = self._fill(number, piece or value.get(field) or item.get(field))
        if raw:
            piece = json.dumps(piece, ensure_ascii=False)[1:-1] + ('"}' if type_ == DONE else "")
        return CallDelta(number, arguments=piece, source=item or None)


def _finish_of(response: Json, form: Form) -> Finish:
    """Read the end of a reply. Some servers do not tell that it was cut off: its length does."""
    status = str(response.get("status"))
    why = str(part_of(response, "incomplete_details").get("reason") or "")
    used = part_of(response, "usage").get("output_tokens")
    reason: Reason = "other"  # it does not speak of calls, so that they do not change it
    if status == "incomplete" and why != "max_output_tokens":
        reason = "halted"
    elif status != "completed" or (form.most and isinstance(used, int) and used >= form.most):
        reason = "length"
    return Finish(reason, said=f"{status} ({why})" if why else status)


def _names(value: Json) -> list[str | int]:
    """List all that may name the item of an event, the surest first."""
    item = part_of(value, "item")
    names = (value.get("item_id"), item.get("id"), item.get("call_id"), value.get("output_index"))
    return [name for name in names if isinstance(name, str | int)]
