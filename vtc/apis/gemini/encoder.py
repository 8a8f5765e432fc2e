"""Replies of generateContent as they leave: the chunks of a stream (`decoder.py` shows them)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import Json, Said
from vtc.apis.gemini.words import COUNTS, FRAMING, NAME, error_of, part_of_call, reason_of
from vtc.apis.tool_calls import ToolCallAccumulator, object_in
from vtc.events import (
    Call,
    CallDelta,
    Failure,
    Finish,
    Origin,
    Reasoning,
    ReasoningDelta,
    Refused,
    Rewritten,
    Start,
    Text,
    ToolCall,
    Usage,
)
from vtc.wire.sse import EventStream


class Encoder(msgspec.Struct):
    """The chunks of a streamed reply; `drop` names fields to leave out."""

    framing: ClassVar[EventStream] = FRAMING
    counts: ClassVar[bool] = False
    in_step: ClassVar[bool] = True
    drop: frozenset[str] = frozenset()
    head: Json = {}
    native: bool = False
    """True if the server is one of this API."""
    over: frozenset[int] = frozenset()
    """The choices of another API's reply that have ended: after that only tokens are counted."""
    pieces: tuple[CallDelta, ...] = ()
    """Those of calls that are not whole: this API has whole calls alone."""

    def follow(self, said: Sequence[Said], choice: int) -> bool:
        for one in said:
            if isinstance(one, Start):
                self._start(one)
        return True

    def write(self, said: Sequence[Said], choice: int) -> list[Json]:
        parts: list[Json] = []
        fields: dict[str, dict[str, Any]] = {"chunk": {}, "candidate": {}}
        for one in said:
            match one:
                case Start():
                    self._start(one)
                case Text(text) | Rewritten(text=text) | Refused(text) if text:
                    parts.append({"text": text})
                case Reasoning(text) | ReasoningDelta(text) if text and "thought" not in self.drop:
                    parts.append({"text": text, "thought": True})
                case Call(call=call) if self.pieces:  # of calls that began before
                    number = max(piece.index or 0 for piece in self.pieces) + 1
                    self.pieces = (*self.pieces, CallDelta(number, call.id, call.name, call.arguments))
                case Call(call=call):
                    parts.append(_called(call))
                case CallDelta(index=index, name=name) if index is None or (
                    one.last and name and not any(piece.index == index for piece in self.pieces)
                ):
                    parts.append(_called(ToolCall(name, one.arguments or "{}", one.id, one.source)))
                case CallDelta():
                    self.pieces = (*self.pieces, one)
                case Origin(api=api, kind=kind, value=value) if api == NAME:
                    place, _, key = kind.partition(".")
                    if place == "part":
                        parts.append(value)
                    else:
                        fields[place][key] = value
                case Finish():
                    calls, self.pieces = ToolCallAccumulator(self.pieces).calls(), ()
                    parts += map(_called, calls)
                    fields["candidate"]["finishReason"] = _reason(one)
                case Usage():
                    fields["chunk"]["usageMetadata"] = one.own.value if one.own else _usage(one)
                case Failure(message=message, kind=kind):
                    return [error_of(message, kind, 500 if kind.islower() or not kind else 0)]
        chunk, candidate = fields["chunk"], {} if choice in self.over else fields["candidate"]
        if parts and choice not in self.over:
            candidate = {"content": {"role": "model", "parts": parts}, **candidate}
        if "finishReason" in candidate and not self.native:
            self.over |= {choice}
        entries = {"candidates": [{**candidate, "index": choice}]} if candidate else {}
        return [{**entries, **chunk, **self.head}] if entries or chunk else []

    def end(self) -> list[Json]:
        return []

    def keep_alive(self) -> bytes | None:
        """Make a chunk without candidates, as Google's SDKs read every line as JSON; None before the first."""
        return self.framing.write({"candidates": [], **self.head}, None, first=True) if self.head else None

    def _start(self, start: Start) -> None:
        if not self.head:
            self.native = start.own is not None
            self.head = start.own.value if start.own else {"responseId": start.id, "modelVersion": start.model}


def _called(call: ToolCall) -> Json:
    """Write a call; as text where its arguments are cut or no object, which this API has no word for."""
    if object_in(call.arguments) is None:
        return {"text": f"{call.name} {call.arguments}".strip()}
    return part_of_call(call)


def _reason(end: Finish) -> str:
    """Write the finish reason; upstream's own word where it is one of this API and says the same."""
    if end.said.isupper() and reason_of(end.said) == end.reason:
        return end.said
    return {"length": "MAX_TOKENS", "halted": "SAFETY"}.get(end.reason, "STOP")


def _usage(usage: Usage) -> Json:
    counts = (usage.prompt, usage.completion - usage.reasoning, usage.cached, usage.reasoning)
    return {**dict(zip(COUNTS, counts, strict=True)), "totalTokenCount": usage.prompt + usage.completion}
