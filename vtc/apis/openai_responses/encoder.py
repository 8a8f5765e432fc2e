"""Streamed replies of Responses as they leave (`decoder.py` shows them).

An item begins with its first text. The text that left is kept, since the events that end an item repeat it. Of calls
that come in pieces one is written after the other, the first as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis.base import Json, Said
from vtc.apis.chain import joined
from vtc.apis.openai_responses.items import (
    ADDED,
    DONE,
    FIELDS,
    FRAMING,
    NAME,
    done_item,
    events_of,
    usage_of,
)
from vtc.apis.openai_responses.pieces import Pieces
from vtc.apis.openai_responses.told import KINDS, Told
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
from vtc.wire import sse

_TYPES = {
    "output_text": ("output_text",),
    "refusal": ("refusal",),
    "reasoning_text": ("reasoning_text", "summary_text"),
}


class Encoder(Told):
    """The events of a streamed reply; `drop` names fields, and reasoning, to leave out."""

    framing: ClassVar[sse.EventStream] = FRAMING
    counts: ClassVar[bool] = True
    call_fields: ClassVar[frozenset[str]] = FIELDS

    start: BlockStart | None = None
    """The item that begins with its first text."""
    later: tuple[Said, ...] = ()
    """What waits for the end of a call."""
    finish: Finish | None = None
    usage: Usage | None = None
    closing: Json | None = None
    """The fields of the response at its end, as upstream says them."""

    def keep_alive(self) -> bytes:
        """Make an event of a type that no client knows: comments do not reset the timer of Codex."""
        if self.over or not self.head:
            return b": keep-alive\n\n"  # openai-python fails at any event before the first, others after the last
        self.in_step = False
        (event,) = self._numbered([{"type": "keepalive"}])
        return self.framing.write(event, None, first=True)

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
        if self.finish and (self.usage or self.closing is not None or not self.finish.said):
            out += self._terminal()  # else the usage may come yet
        return self._told(out)

    def end(self) -> list[Json]:
        return [] if self.over else self._told([*self._terminal()])

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
        if self.start is not None and KINDS[self.start.kind] == kind:
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
            case "event" if not key:
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
        return open_ is not None and open_.kind not in KINDS.values() and not self.calls[open_.number].is_whole

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
        return self.open is not None and self.open.kind not in KINDS.values() and self.open.number == number

    # The whole

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
        filtered = end is not None and end.reason == "halted"
        status = closing.get("status") or ("incomplete" if cut or filtered else "completed")
        why = {"reason": "max_output_tokens" if cut else "content_filter"} if status == "incomplete" else None
        output = [item for _, item in sorted(self.done, key=lambda one: one[0])]
        told = {"status": status, "incomplete_details": closing.get("incomplete_details") or why}
        told |= {"id": self.id, "output": output, "usage": usage_of(self.usage or Usage())}
        if "output_text" in closing:
            told["output_text"] = self._output_text
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
