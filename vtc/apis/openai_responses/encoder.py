"""Streamed replies of Responses as they leave (`decoder.py` shows them).

An item begins with the first text of it. The text that left is kept, since the events that end an item repeat it.
Where frames of the same API pass, they are followed to the letter: one that a strict client would fail at is out of
step, and all after it is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis.base import Json, Said
from vtc.apis.openai_responses.items import (
    ADDED,
    CALLS,
    DONE,
    FRAMING,
    NAME,
    PARTS,
    done_item,
    events_of,
    head_of,
    joined,
    text_of,
    usage_of,
)
from vtc.apis.openai_responses.opened import Opened
from vtc.apis.openai_responses.pieces import Pieces
from vtc.events import (
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    Failure,
    Finish,
    Origin,
    Reasoning,
    ReasoningDelta,
    Refused,
    Rewritten,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.json_text import decode
from vtc.wire import sse

_DELTA = re.compile(rb'"delta"\s*:\s*("(?:[^"\\]|\\.)*+")')  # no string holds the quotes around the name as they are
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d+)')
_QUIET = ("text_done", "part_done", "item_done", "item", "part", "nothing")
_KINDS = {"text": "message", "reasoning": "reasoning"}
_TYPES = {
    "output_text": ("output_text",),
    "refusal": ("refusal",),
    "reasoning_text": ("reasoning_text", "summary_text"),
}
_THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})


class Encoder(Opened):
    """The events of a streamed reply; `drop` names fields, and reasoning, to leave out."""

    framing: ClassVar[sse.EventStream] = FRAMING
    counts: ClassVar[bool] = True

    in_step: bool = True
    head: Json = {}
    """The fields of the response; empty before its beginning was told."""
    next: int | None = 0
    """The number of the next event, if they have numbers."""
    noted: tuple[Said, ...] = ()
    """What frames say that leave with the next one."""
    frames: int = 0
    """How many these are."""
    start: BlockStart | None = None
    """The item that begins with its first text."""
    like: tuple[int, Json] = (-1, {})
    """Upstream's last message: its number and fields, which one that goes on after a call has, too."""
    indices: dict[int, int] = {}
    """Where the client has upstream's items that are neither text nor calls."""
    later: tuple[Said, ...] = ()
    """What waits for the end of a call."""
    finish: Finish | None = None
    usage: Usage | None = None
    closing: Json | None = None
    """The fields of the response at its end, as upstream says them."""
    over: bool = False
    unread: bytes = b""
    """The last frames that left unread."""

    def keep_alive(self) -> bytes:
        """Make an event of a type that no client knows: comments do not reset the timer of Codex."""
        if not self.head:
            return b": keep-alive\n\n"  # openai-python fails at any event before the first
        self.in_step = False
        (event,) = self._numbered([{"type": "keepalive"}])
        return self.framing.write(event, None, first=True)

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
                [*self._begin(_KINDS[one.kind], one.number, fields)]
                return sound
            case BlockStart(own=Origin(kind="part", value=(place, fields))):
                if open_ is None or open_.part is not None:
                    return False
                [*self._begin_part(fields)]
                (at,) = [self.open.at[key] for key in self.open.at if key.startswith(("content", "summary"))]
                return place == at and one.id == open_.fields["id"]
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
                return open_ is None and fields.get("id") == self.id and self._is_told(fields.get("output"))
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
        if call.ended:
            self._taken(number)
            self._finished(open_.index, {**open_.fields, **(piece.source or {})})
        return piece.clean

    # Writing

    def write(self, said: Sequence[Said], choice: int) -> list[Json]:
        if self.over:
            return []
        noted, self.noted, self.frames = self.noted, (), 0
        logprobs = [one.value for one in said if isinstance(one, Origin) and one.kind == "logprobs"]
        texts = [one for one in said if isinstance(one, Text | Rewritten | Call)]
        more = logprobs[0] if logprobs and len(texts) == 1 else ()
        out = [event for one in (*noted, *said) for event in self._tell(one, more)]
        extra = {one.kind[6:]: one.value for one in said if isinstance(one, Origin) and one.kind.startswith("event.")}
        if out and extra:
            out[0] = {**extra, **out[0]}
        if self.finish and (self.usage or self.closing is not None):
            out += self._terminal()
        return self._told(out)

    def end(self) -> list[Json]:
        if self.over or not (self.head or self.finish):
            return []
        return self._told([*self._terminal()])

    def _told(self, out: list[Json]) -> list[Json]:
        begun = [] if self.head or not out else [*self._created(Start())]
        return self._numbered([*begun, *out])

    def _tell(self, one: Said, logprobs: Any = ()) -> Iterator[Json]:
        if self._is_calling and not isinstance(one, CallDelta | Finish | Usage | Failure | Start | BlockEnd):
            if not (isinstance(one, Origin) and one.kind == "text_done"):
                self.later = (*self.later, one)
            return
        match one:
            case Start(own=own):
                yield from self._created(one, own.value[1] if own else None)
            case BlockStart():
                self._noted_start(one)
            case Text(raw=text) | Rewritten(text=text) | Refused(text=text) if text:
                type_ = "refusal" if isinstance(one, Refused) else "output_text"
                yield from self._part("message", type_)
                yield from self._say(text, logprobs)
            case Reasoning(raw=text) | ReasoningDelta(text=text) if text and not self._is_hidden("reasoning"):
                yield from self._part("reasoning", "reasoning_text")
                yield from self._say(text)
            case Seal() if not self._is_hidden("reasoning"):
                yield from self._sealed(one)
            case Call(call=call):
                yield from self._end()
                item = done_item(call, self.form)
                yield from events_of(item, self.count)
                self._finished(self.count, item)
                self.count += 1
            case CallDelta():
                yield from self._piece(one)
            case Finish():
                self.finish = one
            case Usage():
                self.usage = one
            case Failure():
                yield from self._failed(one)
            case Origin(api=api, kind=kind, value=value) if api == NAME:
                yield from self._own(kind, value)

    def _noted_start(self, start: BlockStart) -> None:
        own = start.own
        if own is not None and own.kind == "part":
            self.notes = {**self.notes, "part": own.value[1]}
            return
        fields = own.value[1] if own else {"id": start.id if start.id.startswith(("msg_", "rs_")) else ""}
        self.start, self.notes = start, {**self.notes, "item": fields}
        self._take("part")
        self.like = (start.number, fields) if start.kind == "text" else self.like

    def _part(self, kind: str, type_: str) -> Iterator[Json]:
        """Make sure that a part of an item is open: the one that began last, if it is of this kind."""
        if self.start is not None and _KINDS[self.start.kind] == kind:
            yield from self._end()
            number, self.start = self.start.number, None
            yield from self._begin(kind, number, self._take("item") or {})
        elif self.open is None or self.open.kind != kind:
            yield from self._end()
            number, fields = self.like if kind == "message" else (-1, {})
            about = {key: one for key, one in fields.items() if key not in ("id", "status")}
            yield from self._begin(kind, number, about)
        noted, types = self.notes.get("part"), _TYPES.get(type_, (type_,))
        if noted is not None and noted.get("type") in types:
            self._take("part")
            yield from self._end_part()
            yield from self._begin_part(noted)
        assert self.open is not None
        if self.open.part is None or self.open.settled or self.open.part.get("type") not in types:
            yield from self._end_part()
            yield from self._begin_part({"type": type_})

    def _own(self, kind: str, value: Any) -> Iterator[Json]:
        """Write what only this API knows."""
        place, _, key = kind.partition(".")
        start, open_ = self.start, self.open
        match place:
            case "item" | "part" | "item_done" | "part_done" if key:
                if place in self.notes:
                    self.notes = {**self.notes, place: {**self.notes[place], key: value}}
            case "head" | "end" if key:
                self.head = {**self.head, key: value}
            case "odd":
                yield from self._part("message", str(self.notes.get("part", {}).get("type")))
            case "item_done" | "part_done":
                number, fields = value
                if start is not None and start.number == number:
                    if place == "item_done" and start.kind == "reasoning" and not self._is_hidden("reasoning"):
                        yield from self._reason(start)  # it must come back, even without a text
                        self.notes = {**self.notes, place: fields}
                    elif place == "item_done":
                        self.start = None
                    self._take("part")
                elif open_ is not None and open_.number == number:
                    self.notes = {**self.notes, place: fields}
            case "annotation" if open_ is not None and open_.part is not None:
                rest = {key: one for key, one in value[1].items() if key not in ("sequence_number", *open_.at)}
                yield {**rest, **open_.at}
            case "event":
                yield from self._event(*value)
            case "status":
                yield {"type": value[1]["type"], "response": self.head}
            case "end":
                self.closing = value[1]

    def _reason(self, start: BlockStart) -> Iterator[Json]:
        yield from self._end()
        self.start = None
        yield from self._begin("reasoning", start.number, self._take("item") or {})

    def _sealed(self, seal: Seal) -> Iterator[Json]:
        """Write what must come back with reasoning, which may have no text."""
        if self.start is not None and self.start.kind == "reasoning":
            yield from self._reason(self.start)
        elif self.open is None or self.open.kind != "reasoning":
            yield from self._end()
            yield from self._begin("reasoning", -1, {})
        sealed = {"encrypted_content": seal.encrypted or seal.signature}
        self.notes = {**self.notes, "item_done": {**self.notes.get("item_done", {}), **sealed}}

    def _event(self, number: int | None, event: Json) -> Iterator[Json]:
        """Write an event that only this API knows, where the client has its item."""
        more: dict[str, Any] = {}
        if number is not None and event["type"] == ADDED:
            yield from self._end()
            self.indices = {**self.indices, number: self.count}
            self.count += 1
        if number in self.indices:
            more["output_index"] = self.indices[number]
        elif self.open is not None and self.open.number == number:
            more = {key: one for key, one in self.open.at.items() if key in event}
        if event["type"] == DONE and number in self.indices:
            self.done = (*self.done, (self.indices[number], event["item"]))
        yield {**event, **more}

    # Calls in pieces

    @property
    def _is_calling(self) -> bool:
        """True while a call is open whose arguments go on."""
        open_ = self.open
        return open_ is not None and open_.kind not in _KINDS.values() and not self.calls[open_.number].is_whole

    def _piece(self, piece: CallDelta) -> Iterator[Json]:
        """Write a piece of a call, or keep it: one call is written after the other, the first at once."""
        number = piece.index if piece.index is not None else max(self.calls, default=self.count - 1)
        known = self.calls.get(number)
        is_open = self.open is not None and known is not None and self.open.number == number
        if piece.name and known and known.name and (piece.index is None or known.is_whole):
            if is_open:
                yield from self._end()
            number, known, is_open = (number, None, False) if is_open else (max(self.calls) + 1, None, False)
        if known is None and not (piece.name or piece.arguments or piece.id):
            return
        if known is not None and known.is_whole and piece.arguments:
            piece = replace(piece, arguments="")
        self.calls = {**self.calls, number: (known or Pieces(number)).more(piece)}
        if is_open and piece.arguments:
            yield from self._argue(piece.arguments)
        yield from self._next_calls()

    def _next_calls(self, *, all_: bool = False) -> Iterator[Json]:
        """Begin calls that waited, in order; with `all_` end them, too."""
        while waiting := [call for key, call in sorted(self.calls.items()) if not self._is_open(key)]:
            ready = next((call for call in waiting if call.may_begin or (all_ and call.name)), None)
            if ready is None or (self._is_calling and not all_):
                break
            yield from self._end()
            yield from self._begin_call(ready)
        if all_:
            yield from self._end()
            for call in [*self.calls.values()]:  # they never got a name
                yield from self._tell(Text(joined(self._taken(call.number).said)))
        if self.later and not self._is_calling:
            later, self.later = self.later, ()
            for one in later:
                yield from self._tell(one)

    def _is_open(self, number: int) -> bool:
        return self.open is not None and self.open.kind not in _KINDS.values() and self.open.number == number

    # The whole

    def _is_hidden(self, kind: str) -> bool:
        return kind == "reasoning" and bool(self.drop & _THOUGHTS)

    def _created(self, start: Start, fields: Json | None = None) -> Iterator[Json]:
        """Begin the reply."""
        if self.head:
            return iter(())
        id_ = start.id if start.id.startswith("resp_") or fields else f"resp_{start.id or 'vtc'}"
        head = head_of(id_, self.form.model or start.model, start.created)
        self.head = self._left(
            {**head, **{key: one for key, one in (fields or {}).items() if one or one == 0 or key not in head}}
        )
        self.id = self.head["id"] = self.head["id"] or "resp_vtc"
        types = ("response.created",) if fields else ("response.created", "response.in_progress")
        return iter([{"type": type_, "response": self.head} for type_ in types])

    def _left(self, response: Json) -> dict[str, Any]:
        return {key: one for key, one in response.items() if key not in self.drop}

    def _terminal(self) -> Iterator[Json]:
        """End the reply; one that has no end of its own was cut off, and failed if nothing was told."""
        end, closing = self.finish, self.closing or {}
        cut = end is None or end.reason == "length"
        yield from self._next_calls(all_=True)
        yield from self._end("incomplete" if cut else "completed")
        if end is None and not self.done:
            yield from self._failed(Failure("The server ended the reply before it said anything."))
            return
        self.over = True
        filtered = end is not None and end.said == "content_filter"
        status = closing.get("status") or ("incomplete" if cut or filtered else "completed")
        why = {"reason": "max_output_tokens" if cut else "content_filter"} if status == "incomplete" else None
        output = [item for _, item in sorted(self.done, key=lambda one: one[0])]
        told = {"status": status, "incomplete_details": closing.get("incomplete_details") or why}
        told |= {"id": self.id, "output": output, "usage": usage_of(self.usage or Usage())}
        yield {"type": f"response.{status}", "response": self._left({**self.head, **closing, **told})}

    def _failed(self, failure: Failure) -> Iterator[Json]:
        self.over = True
        if failure.own is not None and failure.own.api == NAME:
            yield failure.own.value
            return
        error = {"code": failure.kind or "server_error", "message": failure.message}
        output = [item for _, item in sorted(self.done, key=lambda one: one[0])]
        if not self.head:
            yield from self._created(Start())
        yield {
            "type": "response.failed",
            "response": {**self.head, "status": "failed", "error": error, "output": output},
        }


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
