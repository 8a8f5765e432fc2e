"""What a client was told of a reply, by frames of the same API that passed: they are followed to the letter.

A frame that a strict client would fail at is out of step, and all after it is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.base import Json, Said
from vtc.apis.chain import joined
from vtc.apis.openai_responses.items import ADDED, DONE, head_of, text_of
from vtc.apis.openai_responses.opened import Opened
from vtc.apis.openai_responses.pieces import Pieces
from vtc.events import (
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    Failure,
    Origin,
    Reasoning,
    ReasoningDelta,
    Refused,
    Rewritten,
    Start,
    Text,
)
from vtc.json_text import decode

KINDS = {"text": "message", "reasoning": "reasoning"}
_DELTA = re.compile(rb'"delta"\s*:\s*("(?:[^"\\]|\\.)*+")')  # no string holds the quotes around the name as they are
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d+)')
_QUIET = ("text_done", "part_done", "item_done", "item", "part", "nothing")
_DEMANDED = ("id", "object", "created_at", "status", "model", "output")
"""Fields of a response without which some client fails at its beginning."""
_THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})


class Told(Opened):
    """It counts the events, and knows which item is open, for the encoder."""

    in_step: bool = True
    head: Json = msgspec.field(default_factory=dict)
    """The fields of the response; empty before its beginning was told."""
    next: int | None = 0
    """The number of the next event, if they have numbers."""
    noted: tuple[Said, ...] = ()
    """What frames say that leave with the next one."""
    frames: int = 0
    """How many these are."""
    like: tuple[int, Json] = (-1, {})
    """Upstream's last message: its number and fields, which one that goes on after a call has, too."""
    indices: dict[int, int] = msgspec.field(default_factory=dict)
    """Where the client has upstream's items that are neither text nor calls."""
    over: bool = False
    unread: bytes = b""
    """The last frames that left unread."""

    def passed(self, data: bytes) -> None:
        """Take note of frames that left unread (`base.Following`)."""
        self.unread = data
        if self.open is not None and self.open.part is not None:
            self.said = (self.said, "".join(decode(b"[%b]" % b",".join(_DELTA.findall(data)), "replace")))

    def _numbered(self, events: Sequence[Json], frames: int = 0) -> list[Json]:
        """Number events; `frames` have left with their own numbers."""
        if self.unread and (numbers := _NUMBER.findall(self.unread)):
            self.next = int(numbers[-1]) + 1
        self.unread = b""
        if self.next is None:
            return [*events]
        first, self.next = self.next + frames, self.next + frames + len(events)
        return [{**event, "sequence_number": first + place} for place, event in enumerate(events)]

    # Following

    def follow(self, said: Sequence[Said], choice: int) -> bool:
        if said and all(map(_is_quiet, said)):
            self.noted, self.frames = (*self.noted, *said), self.frames + 1
            return False
        noted, self.noted, frames, self.frames = self.noted, (), self.frames + 1, 0
        self._numbered((), frames if self.head or self.next else 0)
        for one in (*noted, *said):
            self.in_step = self._track(one) and self.in_step
        return True

    def _track(self, one: Said) -> bool:
        """Take note of what is told in a frame that passes; False if a strict client would fail at it."""
        open_ = self.open
        match one:
            case Start(own=Origin(value=(number, fields))):
                self._created(one, fields)
                self.next = None if number is None else number + 1
                demanded = isinstance(fields.get("created_at"), int | float) and isinstance(fields.get("model"), str)
                return demanded and bool(one.id) and fields.get("output") == []
            case BlockStart(own=Origin(kind="item", value=(place, fields))):
                sound = open_ is None and place == self.count and not self._is_hidden(one.kind)
                self.like = (one.number, fields) if one.kind == "text" else self.like
                [*self._begin(KINDS[one.kind], one.number, fields)]
                return sound
            case BlockStart(own=Origin(kind="part", value=(place, fields))):
                if open_ is None or open_.part is not None:
                    return False
                (begun,) = self._begin_part(fields)
                at = begun.get("content_index", begun.get("summary_index"))
                return bool(place == at and one.id == open_.fields["id"])
            case Text(raw=text) | ReasoningDelta(text=text) | Refused(text=text):
                self.said = (self.said, text)
                return not text or (open_ is not None and (open_.part or {}).get("type") in _types(one))
            case CallDelta():
                return self._track_call(one)
            case Origin(kind=kind, value=(number, value)) if kind in ("text_done", "part_done", "item_done"):
                if open_ is None or open_.number != number:
                    return False
                return self._track_end(kind, value)
            case Origin(kind="event", value=(number, value)):
                if value["type"] == ADDED:
                    self.indices = {**self.indices, number: self.count}
                    self.count += 1
                    return open_ is None and value.get("output_index") == self.count - 1
                if value["type"] == DONE and number in self.indices:
                    self.done = (*self.done, (self.indices[number], value["item"]))
            case Origin(kind="status", value=(_, fields)):
                return bool(fields["id"] == self.id)
            case Origin(kind="end", value=(_, fields)):
                self.over = True
                is_told = fields.get("output_text") in (None, self._output_text)
                return open_ is None and fields.get("id") == self.id and is_told and self._is_told(fields.get("output"))
            case Failure():
                self.over = True
            case Call() | Reasoning() | Rewritten():
                return False
        return True

    def _track_end(self, kind: str, value: Any) -> bool:
        open_ = self.open
        assert open_ is not None
        if kind == "text_done":
            self.open = replace(open_, settled=True)
            return open_.part is None or value == joined(self.said)
        if kind == "part_done":
            if open_.part is None:
                return False
            sound = text_of(value) in (None, joined(self.said))
            self.notes = {**self.notes, "part_done": value}
            [*self._end_part()]
            return sound
        if open_.part is not None or value.get("id") != open_.fields["id"]:
            return False
        told = [text_of(part) for _, part in open_.parts]
        parts = [*(value.get("summary") or ()), *(value.get("content") or ())]
        self._finished(open_.index, {**open_.fields, **value})
        return [text_of(part) for part in parts] == told

    def _track_call(self, piece: CallDelta) -> bool:
        number, open_ = piece.index or 0, self.open
        if piece.name:
            self.calls = {**self.calls, number: Pieces(number).more(piece)}
            [*self._begin_call(self.calls[number])]
            return open_ is None and piece.clean and number == self.count - 1
        if open_ is None or open_.number != number or number not in self.calls:
            return False
        self.calls = {**self.calls, number: (call := self.calls[number].more(piece))}
        [*self._argue(piece.arguments)]
        if call.ended:
            self._taken(number)
            self._finished(open_.index, {**open_.fields, **(piece.source or {})})
        return piece.clean

    # The beginning

    def _is_hidden(self, kind: str) -> bool:
        return kind == "reasoning" and bool(self.drop & _THOUGHTS)

    def _created(self, start: Start, fields: Json | None = None) -> Iterator[Json]:
        """Begin the reply."""
        if self.head:
            return iter(())
        id_ = start.id if start.id.startswith("resp_") or fields else f"resp_{start.id or 'vtc'}"
        head = head_of(id_, self.form.model or start.model, start.created)
        if fields:
            own = {key: one for key, one in fields.items() if one is not None or key not in _DEMANDED}
            head = {**{key: head[key] for key in _DEMANDED}, **own}
        self.head = self._left(head)
        self.id = self.head["id"] = self.head["id"] or "resp_vtc"
        types = ("response.created",) if fields else ("response.created", "response.in_progress")
        return iter([{"type": type_, "response": self.head} for type_ in types])

    def _left(self, response: Json) -> dict[str, Any]:
        return {key: one for key, one in response.items() if key not in self.drop}


def _is_quiet(one: Said) -> bool:
    """True for what is told with what follows."""
    if isinstance(one, Origin):
        return one.kind.partition(".")[0] in _QUIET
    if isinstance(one, BlockStart | BlockEnd):
        return True
    return isinstance(one, Refused | ReasoningDelta) and not one.text


def _types(one: Said) -> tuple[str, ...]:
    if isinstance(one, Refused):
        return ("refusal",)
    return ("output_text",) if isinstance(one, Text) else ("reasoning_text", "summary_text")
