r"""Streamed replies of Anthropic Messages.

    {"type": "message_start", "message": {"id": "msg_1", "content": [], …}}
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    {"type": "content_block_stop", "index": 0}
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": …, "name": …, "input": {}}}
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"path"}}
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {…}}
    {"type": "message_stop"}

A call takes a block of its own, so every later block gets another index (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.anthropic_messages.blocks import OURS, Blocks, Out, but, index_of
from vtc.apis.base import Decoded, Said
from vtc.apis.fields import part_of, without_names
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
from vtc.json_text import encode
from vtc.wire import sse
from vtc.wire.framing import Frame

REASONS: dict[str, Reason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "pause_turn": "other",
    "refusal": "other",
    "compaction": "other",
}
"""Stop reasons; any other is a stop."""
THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})
"""Names for reasoning among the fields to drop."""
_NEEDED = frozenset({"type", "index", "message", "content", "content_block", "delta", "stop_reason", "role", "error"})
"""Fields without which a reply says nothing; they are never dropped."""
_WORDS: dict[Reason, str] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class StreamCodec(Blocks):
    """The events of a streamed reply.

    `thinks` says that the request asked for thinking; `drop` names fields and kinds of blocks to leave out.
    """

    framing: ClassVar[sse.EventStream] = sse.EventStream(named_by="type")

    thinks: bool = False
    drop: frozenset[str] = frozenset()
    inputs: dict[int, str] = msgspec.field(default_factory=dict)
    """Arguments in the starts of calls."""
    usage: Mapping[str, Any] = {}

    def decode(self, frame: Frame) -> Decoded | None:
        if frame.data is None:
            return None
        value = self._value(frame)
        if value is None:
            return Decoded((End(),)) if frame.data.strip() == b"[DONE]" else None
        if value.get("type") == "ping":
            begins = any(up not in self.filled for up in self.starts)
            return Decoded() if begins or self.stop else None
        cleaned = None
        if self.drop and (clean := without(value, self.drop)) != value:
            value, cleaned = clean, Frame(self.framing.write(clean, frame, first=True), encode(clean))
            self.last = cleaned, clean
        found = self._read(value)
        if found is None:
            return None if cleaned is None else Decoded(frame=cleaned)
        return found if cleaned is None else Decoded(found.deltas, found.alone, cleaned)

    def _read(self, value: Mapping[str, Any]) -> Decoded | None:
        index = index_of(value)
        match value.get("type"):
            case "content_block_start" | "content_block_delta" if index is None:
                return None
            case "content_block_start" if index is not None:
                return self._read_start(index, part_of(value, "content_block"))
            case "content_block_delta" if index is not None:
                return self._read_delta(index, part_of(value, "delta"))
            case "content_block_stop" if index is not None and index in self.open:
                self.open -= {index}
                if self.kinds[index] == "text":
                    return Decoded((BlockEnd(),))
                if self.kinds[index] == "tool_use":
                    rest = "" if index in self.filled else self.inputs.get(index, "")
                    return Decoded((CallDelta(index, arguments=rest),), alone=True)
            case "message_start" if part_of(value, "message").get("content"):
                return None
            case "message_start":
                self.usage = part_of(part_of(value, "message"), "usage")
            case "message_delta" if reason := part_of(value, "delta").get("stop_reason"):
                return Decoded((Finish(REASONS.get(str(reason), "stop"), said=str(reason)),))
            case "message_stop":
                return Decoded((End(),))
        return Decoded()

    def _read_start(self, index: int, block: Mapping[str, Any]) -> Decoded:
        kind = str(block.get("type"))
        self.kinds = {**self.kinds, index: kind}
        self.open |= {index}
        self.filled -= {index}
        delta: Delta
        if kind == "tool_use":
            self.inputs = {**self.inputs, index: encode(block["input"]).decode() if block.get("input") else ""}
            delta = CallDelta(index, block.get("id"), block.get("name") or "", source=block)
            return Decoded((delta,), alone=True)
        if kind == "thinking":
            return Decoded((ReasoningDelta(block.get("thinking") or ""),))
        text = block.get("text") if kind == "text" else ""
        if text:
            self.filled |= {index}
        return Decoded((TextDelta(text or ""),))  # in any case the text before it is complete

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> Decoded:
        kind = self.kinds.get(index) if index in self.open else None
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                if text and index not in self.filled:
                    self.filled |= {index}
                # It must not be taken for one of an open block, which leaves in another way.
                return Decoded((TextDelta(text),) if kind == "text" else (TextDelta(""), TextDelta(text)), alone=True)
            case {"type": "thinking_delta", "thinking": str(text)} if kind == "thinking":
                return Decoded((ReasoningDelta(text),))
            case {"type": "input_json_delta", "partial_json": str(piece)} if kind == "tool_use":
                if piece and index not in self.filled:
                    self.filled |= {index}
                return Decoded((CallDelta(index, arguments=piece),), alone=True)
        return Decoded()

    # Passing

    def forward(self, frame: Frame) -> bytes:
        value = self._value(frame)
        if value is None:
            return frame.raw
        out = [*self._passed(frame, value)]
        return frame.raw if len(out) == 1 and out[0].as_it_came and out[0].like is frame else self._written(out)

    def close(self) -> bytes:
        return self._written(self._over())

    def _written(self, out: Iterable[Out]) -> bytes:
        return b"".join(
            one.like.raw if one.like and one.as_it_came else self.framing.write(one.value, one.like, first=True)
            for one in out
        )

    def _passed(self, frame: Frame, value: dict[str, Any]) -> Iterator[Out]:
        """Pass a frame, after those that stayed here and are needed now."""
        index = index_of(value)
        match value.get("type"):
            case "content_block_start" if index is not None:
                block = part_of(value, "content_block")
                if index == self.text:  # some servers use an index again
                    yield from self._text_closed()
                self.closed -= {index}
                self.gone -= {index}
                if block.get("type") in self.drop or (block.get("type") == "thinking" and self.drop & THOUGHTS):
                    self.gone |= {index}
                elif block.get("type") == "text":
                    self.starts = {**self.starts, index: (frame,)}
                    if block.get("text"):
                        yield from self._begun(index)
                else:
                    yield from self._over()
                    yield self._placed(index, frame, value)
            case _ if index in self.gone:
                return
            case "content_block_delta":
                if index in self.starts or index in self.closed:
                    yield from self._begun(index)
                yield self._moved(frame, value)
            case "content_block_stop" if index in self.starts and index in self.filled:  # and nothing of that was left
                self.starts = but(self.starts, index)
            case "content_block_stop" if index in self.starts:
                yield from self._begun(index)
                self.stop = (frame,)
            case "content_block_stop" if index in self.closed:
                return
            case "content_block_stop" if index is not None and self._is_last_text(index):
                self.stop = (frame,)
            case "ping" if self._stays(frame):
                return
            case "content_block_stop":
                self.text = None if index == self.text else self.text
                yield self._moved(frame, value)
            case kind:
                if kind in ("message_delta", "message_stop", "error"):
                    self.ended = True
                    yield from self._over()
                yield self._moved(frame, value)

    def _is_last_text(self, index: int) -> bool:
        return index == self.text and self.places[index] == self.next - 1

    # Writing

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        value = self._value(frame) or {}
        index, kind, block = index_of(value), value.get("type"), part_of(value, "content_block")
        is_text = part_of(value, "delta").get("type") == "text_delta" or block.get("type") == "text"
        target = index if is_text and index is not None and self.kinds.get(index) == "text" else None
        out: list[Out] = []
        if first and target is not None and block:
            empty = {**value, "content_block": {**block, "text": ""}}
            start = Frame(self.framing.write(empty, frame, first=True), encode(empty))
            self.starts = {**self.starts, target: (start,)}
        for one in said:
            match one:
                case Text(raw=text) | Rewritten(text=text) if text:
                    last = OURS if self.text is None else self.text
                    up = last if target is None else target
                    out += self._begun(up)
                    delta = {"type": "text_delta", "text": text}
                    out.append(Out({"type": "content_block_delta", "index": self.places[up], "delta": delta}))
                case Reasoning(raw=text) if self.thinks and not self.drop & THOUGHTS:
                    out += self._thought(text)
                case Call(call=call):
                    out += self._call(call)
                case Finish() if first or not self.ended:
                    self.ended = True
                    out += self._over()
                    out.append(Out(self._finished(one, value if kind == "message_delta" and first else None)))
        is_call = index is not None and self.kinds.get(index) == "tool_use"
        passes = not is_call or any(isinstance(one, CallDelta) for one in said)
        if first and passes and not is_text and kind != "message_delta":
            out += self._passed(frame, value)
        return [one.value for one in out]

    def _finished(self, end: Finish, value: Mapping[str, Any] | None) -> dict[str, Any]:
        if value is None:
            value = {"type": "message_delta", "usage": {"output_tokens": self.usage.get("output_tokens") or 0}}
        return {**value, "delta": stopped(end, part_of(value, "delta"))}

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'


def stopped(end: Finish, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Write the stop reason into a delta or message; upstream's own word where it says the same."""
    said = entry.get("stop_reason")
    if said and (end.reason == "other" or REASONS.get(said, "stop") == end.reason):
        return dict(entry)
    return {**entry, "stop_reason": _WORDS.get(end.reason, "end_turn"), "stop_sequence": None}


def without(value: Mapping[str, Any], drop: frozenset[str]) -> dict[str, Any]:
    """Leave out the fields named, at the top of an event or message and in its `usage`."""
    return without_names(value, drop - _NEEDED, ("message", "usage"))
