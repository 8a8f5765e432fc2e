"""Replies of generateContent as they leave: the chunks of a stream (`decoder.py` shows them)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import Json, Said
from vtc.apis.gemini.words import FRAMING, NAME
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
    Seal,
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

    def follow(self, said: Sequence[Said], choice: int) -> bool:
        for one in said:
            if isinstance(one, Start):
                self._start(one)
        return True

    def write(self, said: Sequence[Said], choice: int) -> list[Json]:
        parts: list[Json] = []
        chunk: dict[str, Any] = {}
        entry: dict[str, Any] = {}
        for one in said:
            match one:
                case Start():
                    self._start(one)
                case Text(text) | Rewritten(text=text) | Refused(text) if text:
                    parts.append({"text": text})
                case Reasoning(text) | ReasoningDelta(text) if text and "thought" not in self.drop:
                    parts.append({"text": text, "thought": True})
                case Seal(signature=signature) if signature:
                    parts.append({"text": "", "thoughtSignature": signature})
                case Call(call=call):
                    parts.append(part_of_call(call))
                case CallDelta(id=id_, name=name, arguments=arguments, source=source):
                    parts.append(part_of_call(ToolCall(name, arguments or "{}", id_, source)))
                case Origin(api=api, kind=kind, value=value) if api == NAME:
                    place, _, key = kind.partition(".")
                    if place == "part":
                        parts.append(value)
                    else:
                        (chunk if place == "chunk" else entry)[key] = value
                case Finish():
                    entry["finishReason"] = _reason(one)
                case Usage():
                    chunk["usageMetadata"] = one.own.value if one.own else _usage(one)
                case Failure(message=message, kind=kind):
                    return [{"error": {"code": 500, "message": message, "status": kind or "INTERNAL"}}]
        if not (parts or chunk or entry):
            return []
        candidate = {"content": {"role": "model", "parts": parts}, **entry, "index": choice}
        return [{"candidates": [candidate] if parts or entry else [], **chunk, **self.head}]

    def end(self) -> list[Json]:
        return []

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def _start(self, start: Start) -> None:
        if not self.head:
            self.head = start.own.value if start.own else {"responseId": start.id, "modelVersion": start.model}


def part_of_call(call: ToolCall) -> dict[str, Any]:
    """Write a call as a part, with the fields that VTC does not know (`thoughtSignature`)."""
    source = call.source if isinstance(call.source, dict) and "functionCall" in call.source else {}
    said = {"name": call.name, "args": json.loads(call.arguments)}
    own = source.get("functionCall", {}).get("id")
    return {**source, "functionCall": {"id": own, **said} if own else said}


def _reason(end: Finish) -> str:
    """Write the finish reason; upstream's own word where it may be one of this API."""
    if end.reason == "length":
        return "MAX_TOKENS"
    return end.said if end.reason == "other" and end.said.isupper() else "STOP"


def _usage(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.completion - usage.reasoning,
        "totalTokenCount": usage.prompt + usage.completion,
        "cachedContentTokenCount": usage.cached,
        "thoughtsTokenCount": usage.reasoning,
    }
