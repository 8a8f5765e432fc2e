r"""Replies of generateContent as they come: chunks of a stream. A whole reply is one such chunk.

    data: {"candidates": [{"content": {"role": "model", "parts": [{"text": " word"}]}, "index": 0}], "responseId": …}
    data: {…, "parts": [{"functionCall": {"name": "read", "args": {"path": …}}, "thoughtSignature": …}]}
    data: {…, "parts": [{"text": "Let me see.", "thought": true}]}
    data: {…, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5}}

A call comes whole. The format is that of ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import Decoded, Json
from vtc.apis.fields import cleaned, count_of, object_of, part_of
from vtc.apis.gemini.words import FRAMING, HEAD, NAME, REASONS
from vtc.apis.tool_calls import arguments_text
from vtc.events import Beside, CallDelta, Delta, Failure, Finish, Origin, ReasoningDelta, Seal, Start, TextDelta, Usage
from vtc.wire.framing import Frame
from vtc.wire.sse import EventStream

_HARMLESS = (
    *("promptFeedback", "safetyRatings", "citationMetadata", "tokenCount", "groundingMetadata", "avgLogprobs"),
    *("logprobsResult", "urlContextMetadata", "finishMessage"),
)
"""Fields in which no client finds a call."""
_READ = {*HEAD, "candidates", "usageMetadata", "content", "finishReason", "index"}


class Decoder(msgspec.Struct):
    """The chunks of a streamed reply; `drop` names fields to leave out."""

    framing: ClassVar[EventStream] = FRAMING
    drop: frozenset[str] = frozenset()
    begun: frozenset[int] = frozenset()
    """The candidates that began."""

    def decode(self, frame: Frame) -> Decoded | None:
        chunk = object_of(frame.data)
        if chunk is None:
            return Decoded(at_once=True) if frame.data is None else None
        if error := part_of(chunk, "error"):
            return Decoded((Failure(str(error.get("message") or ""), str(error.get("status") or "")),))
        entries = chunk.get("candidates", [])
        if not isinstance(entries, list) or not chunk.keys() & {"candidates", "usageMetadata", "promptFeedback"}:
            return None
        deltas: list[Delta] = []
        beside: list[Beside] = []
        came, (frame, chunk) = frame, cleaned(frame, chunk, self.drop, self.framing)
        first = count_of(entries[0], "index") if entries else 0
        for entry in entries:
            index = count_of(entry, "index")
            if index not in self.begun:
                self.begun |= {index}
                head = {key: chunk[key] for key in HEAD if key in chunk}
                own = Origin(NAME, "head", head, index, harmless=True)
                beside.append(
                    Start(str(head.get("responseId") or ""), str(head.get("modelVersion") or ""), 0, index, own)
                )
            for part in part_of(entry, "content").get("parts") or ():
                _read(part, index, deltas, beside)
            beside += _origins("candidate", entry, index)
            if reason := entry.get("finishReason"):
                deltas.append(Finish(REASONS.get(reason, "other"), index, reason))
        beside += _origins("chunk", chunk, first)
        if usage := part_of(chunk, "usageMetadata"):
            names = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "thoughtsTokenCount")
            prompt, said, cached, thoughts = (count_of(usage, name) for name in names)
            own = Origin(NAME, "usage", usage, first, harmless=True)
            beside.append(Usage(prompt, said + thoughts, cached, thoughts, first, own))
        return Decoded((*deltas,), (*beside,), None if frame is came else frame)


def _read(part: Json, index: int, deltas: list[Delta], beside: list[Beside]) -> None:
    """Read one part of a message."""
    call, known = part.get("functionCall"), {"text", "thought", "functionCall", "thoughtSignature"}
    if isinstance(call, dict):
        arguments = arguments_text(call.get("args")) or "{}"
        deltas.append(CallDelta(None, call.get("id"), str(call.get("name") or ""), arguments, part, index))
    elif isinstance(text := part.get("text"), str):
        deltas.append(ReasoningDelta(text, index) if part.get("thought") else TextDelta(text, index))
        if signature := part.get("thoughtSignature"):
            beside.append(Seal(str(signature), choice=index))
    if part.keys() - known:
        beside.append(Origin(NAME, "part", part, index, harmless=part.keys() <= {"inlineData", "fileData"}))


def _origins(place: str, fields: Json, index: int) -> Iterator[Origin]:
    for key, value in fields.items():
        if key not in _READ and value is not None:
            yield Origin(NAME, f"{place}.{key}", value, index, key in _HARMLESS)


def parts_of(content: Any) -> list[dict[str, Any]]:
    """The parts of a message. Raises TypeError if it is none."""
    parts = content.get("parts") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise TypeError("`parts` is no list of parts")
    return parts
