r"""Streamed replies of Anthropic Messages.

    {"type": "message_start", "message": {"id": "msg_1", "content": [], …}}
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    {"type": "content_block_stop", "index": 0}
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": …, "name": …, "input": {}}}
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"path"}}
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {…}}
    {"type": "message_stop"}

A call takes a block of its own, so every later block gets another index. A text block without text is refused when the
client sends it back, so it does not begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.anthropic_messages.answer import events_of
from vtc.apis.base import Decoded
from vtc.apis.blocks import OURS, Blocks, Event, Json, Open, Phase, Unit
from vtc.apis.fields import part_of
from vtc.apis.tool_calls import arguments_text
from vtc.events import BlockEnd, CallDelta, Delta, End, Finish, Reason, ReasoningDelta, TextDelta, ToolCall
from vtc.wire.framing import Frame

REASONS: dict[str, Reason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "other",
    "refusal": "halted",
    "compaction": "other",
}
"""Stop reasons; any other is a stop."""
_WORDS: dict[Reason, str] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "halted": "refusal"}
_START, _DELTA, _STOP = (f"content_block_{what}" for what in ("start", "delta", "stop"))
_PHASES: dict[Any, Phase] = {_START: "begin", _STOP: "end"}


class StreamCodec(Blocks):
    """The events of a streamed reply; `thinks` says that the request asked for thinking."""

    kinds: ClassVar[tuple[str, str]] = ("text", "thinking")

    thinks: bool = False
    blocks: dict[int, Json] = msgspec.field(default_factory=dict)
    """The starts of upstream's blocks that it has not ended."""
    usage: Json = msgspec.field(default_factory=dict)
    places: dict[int, int] = msgspec.field(default_factory=dict)
    """The client's indexes of upstream's blocks."""
    ended: bool = False

    # Reading

    def _read(self, frame: Frame, value: Json) -> Decoded | None:
        if value["type"] == "ping" and not (self.starts or self.stops):
            return None
        type_, number = value["type"], value.get("index")
        number = number if isinstance(number, int) else OURS
        block, delta = part_of(value, "content_block"), part_of(value, "delta")
        if type_ == _START and number != OURS:
            self.blocks, self.filled = {**self.blocks, number: block}, self.filled - {number}
        kind = str(self.blocks[number].get("type")) if number in self.blocks else ""
        deltas = self._deltas(value, number, kind)
        if type_ == _STOP:
            self.blocks = {up: one for up, one in self.blocks.items() if up != number}
        is_text = delta.get("type") == "text_delta"
        phase, says = _PHASES.get(type_, "text" if is_text else ""), bool(block.get("text")) or number in self.filled
        alone = bool(deltas) and (is_text or kind == "tool_use")
        return Decoded(tuple(deltas), alone, Event(frame.raw, frame.data, value, number, kind, phase, says))

    def _deltas(self, value: Json, number: int, kind: str) -> Sequence[Delta]:
        block, delta = part_of(value, "content_block"), part_of(value, "delta")
        match value.get("type"), kind:
            case "content_block_start", "tool_use":
                return (CallDelta(number, block.get("id"), block.get("name") or "", source=block),)
            case "content_block_start", "thinking":
                return (ReasoningDelta(block.get("thinking") or ""),)
            case "content_block_start", _ if number != OURS:
                text = block.get("text") if kind == "text" else ""  # even without any the text before is complete
                return (TextDelta(self._fill(number, text)),)
            case "content_block_delta", _ if delta.get("type") == "text_delta":
                said = TextDelta(self._fill(number, delta.get("text")))
                # It must not be taken for one of an open block, which leaves in another way.
                return (said,) if kind == "text" else (TextDelta(""), said)
            case "content_block_delta", "thinking" if delta.get("type") == "thinking_delta":
                return (ReasoningDelta(str(delta.get("thinking") or "")),)
            case "content_block_delta", "tool_use" if delta.get("type") == "input_json_delta":
                return (CallDelta(number, arguments=self._fill(number, delta["partial_json"])),)
            case "content_block_stop", "text":
                return (BlockEnd(),)
            case "content_block_stop", "tool_use":
                arguments = "" if number in self.filled else arguments_text(self.blocks[number].get("input"))
                return (CallDelta(number, arguments=arguments),)
            case "message_start", _:
                self.usage = part_of(part_of(value, "message"), "usage")
            case "message_delta", _ if reason := delta.get("stop_reason"):
                return (Finish(REASONS.get(str(reason), "stop"), said=str(reason)),)
            case "message_stop", _:
                return (End(),)
        return ()

    # Passing

    def _pass_other(self, event: Event) -> Iterator[Unit]:
        """Pass a frame, after those that stayed here and are needed now."""
        type_ = event.value["type"]
        if type_ == "ping" and self.starts:
            self.starts += (event,)
            return
        if type_ == "ping" and self.stops:
            self.stops += (event,)
            return
        if event.kind and event.phase == "text" and event.number not in self.places:
            yield from self._to("text", OURS)  # that call is written anew, and has not begun
            yield from self._piece(event.value["delta"]["text"])
            return
        begins = type_ == _START and bool(event.kind)
        self.ended |= type_ in ("message_delta", "message_stop", "error")
        if begins or self.ended:
            yield from self._flush()
        if begins:
            self._take(event.number)
        yield self._placed(event)

    def _dropped(self, event: Event | None) -> Iterator[Unit]:
        """Leave out a block that does not begin, but no pings."""
        _, *pings = self.starts
        self.starts = ()
        yield from pings

    def _placed(self, event: Event) -> Unit:
        """Give an event of a block the client's index."""
        place = self.places.get(event.number, event.number)
        return event if place == event.number else {**event.value, "index": place}

    def _take(self, number: int) -> int:
        """Take the next of the client's indexes."""
        place, self.count = self.count, self.count + 1
        if number != OURS:
            self.places = {**self.places, number: place}
            self.renumbers |= number != place
        return place

    # Writing

    def _says_more(self, event: Event) -> bool:
        block, delta = part_of(event.value, "content_block"), part_of(event.value, "delta")
        is_said = event.kind == "tool_use" or event.value.get("type") == "message_delta" or bool(block.get("text"))
        return bool(event.value) and not is_said and delta.get("type") != "text_delta"

    def _begin(self, kind: str, number: int, starts: Sequence[Event]) -> Iterator[Unit]:
        yield from self._close()
        self.open = Open(kind, number, self._take(number))
        made = events_of({"type": kind}, self.open.place)
        yield from map(self._placed, starts) if starts else (next(made),)

    def _piece(self, text: str) -> Iterator[Unit]:
        delta = {"type": f"{self.open.kind}_delta", self.open.kind: text}
        yield {"type": _DELTA, "index": self.open.place, "delta": delta}

    def _close(self, *, made: bool = True) -> Iterator[Unit]:
        open_, stops = self.open, self.stops
        self.open, self.stops = None, ()
        if open_ and not stops:
            yield {"type": _STOP, "index": open_.place}
        yield from map(self._placed, stops)

    def _call(self, call: ToolCall) -> Iterator[Unit]:
        return events_of({**block_of(call), "input": call.arguments}, self._take(OURS))

    def _finish(self, end: Finish, event: Event, *, first: bool) -> Iterator[Unit]:
        if self.ended and not first:
            return
        self.ended = True
        yield from self._flush()
        value = event.value
        if not first or value.get("type") != "message_delta":
            value = {"type": "message_delta", "usage": {"output_tokens": self.usage.get("output_tokens") or 0}}
        yield {**value, "delta": _stopped(end, part_of(value, "delta"))}

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'


def _stopped(end: Finish, delta: Mapping[str, Any]) -> Json:
    """Write the stop reason; upstream's own word where it says the same."""
    said = delta.get("stop_reason")
    if said and (end.reason == "other" or REASONS.get(said, "stop") == end.reason):
        return delta
    return {**delta, "stop_reason": _WORDS.get(end.reason, "end_turn"), "stop_sequence": None}


def block_of(call: ToolCall) -> dict[str, Any]:
    """Write a call as a block, with the fields that VTC does not know (`caller`)."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    source = call.source if isinstance(call.source, dict) else {}
    return {**source, "type": "tool_use", "id": call.id, "name": call.name, "input": arguments}
