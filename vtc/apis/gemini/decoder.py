r"""Replies of generateContent as they come: chunks of a stream. A whole reply is one such chunk.

    data: {"candidates": [{"content": {"role": "model", "parts": [{"text": " word"}]}, "index": 0}], "responseId": …}
    data: {…, "parts": [{"functionCall": {"name": "read", "args": {"path": …}}, "thoughtSignature": …}]}
    data: {…, "parts": [{"text": "Let me see.", "thought": true}]}
    data: {…, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5}}

A call comes whole, often without an id. Every chunk counts the tokens so far; the last count is the reply's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import Decoded, Json
from vtc.apis.fields import cleaned, count_of, object_of, part_of
from vtc.apis.gemini.words import COUNTS, FRAMING, HEAD, NAME, reason_of
from vtc.apis.tool_calls import arguments_text
from vtc.events import Beside, CallDelta, Delta, Failure, Finish, Origin, ReasoningDelta, Start, TextDelta, Usage
from vtc.wire.framing import Frame
from vtc.wire.sse import EventStream

_HARMLESS = {
    *("promptFeedback", "usageMetadata", "modelStatus", "safetyRatings", "citationMetadata", "tokenCount"),
    *("groundingMetadata", "groundingAttributions", "avgLogprobs", "logprobsResult", "urlContextMetadata"),
    *("finishMessage", "inlineData", "fileData", "thoughtSignature"),
}
"""Fields of a chunk, a candidate or a part in which no client finds a call."""
_CHUNK = {*HEAD, "candidates", "usageMetadata"}
_CANDIDATE = {"content", "finishReason", "index"}
_PART = {"text", "thought", "functionCall", "thoughtSignature"}


class Decoder(msgspec.Struct):
    """The chunks of a streamed reply; `drop` names fields to leave out."""

    framing: ClassVar[EventStream] = FRAMING
    drop: frozenset[str] = frozenset()
    begun: frozenset[int] = frozenset()
    """The candidates that began."""
    calls: Mapping[int, int] = {}
    """By candidate, how many calls came."""

    def decode(self, frame: Frame) -> Decoded | None:
        chunk = object_of(frame.data)
        if chunk is None:
            return Decoded(at_once=True) if frame.data is None else None
        if error := part_of(chunk, "error"):
            failure = Failure(str(error.get("message") or ""), str(error.get("status") or ""))
            return Decoded((failure,), (*_origins("chunk", chunk, {"error"}, 0),))
        entries, feedback = chunk.get("candidates", []), part_of(chunk, "promptFeedback")
        if not isinstance(entries, list) or not chunk.keys() & {"candidates", "usageMetadata", "promptFeedback"}:
            return None
        deltas: list[Delta] = [delta for entry in entries for delta in self._deltas(entry)]
        if not entries and feedback.get("blockReason"):
            deltas.append(Finish("halted", said=str(feedback["blockReason"])))
        came, (frame, chunk) = frame, cleaned(frame, chunk, self.drop, self.framing)
        beside = [one for entry in chunk.get("candidates") or () for one in self._beside(chunk, entry)]
        first = count_of(entries[0], "index") if entries else 0
        beside += _origins("chunk", chunk, _CHUNK, first)
        if usage := part_of(chunk, "usageMetadata"):
            own = Origin(NAME, "chunk.usageMetadata", usage, first, harmless=True)
            prompt, said, cached, thoughts = (count_of(usage, name) for name in COUNTS)
            is_last = not entries or any(isinstance(one, Finish) for one in deltas)
            beside.append(Usage(prompt, said + thoughts, cached, thoughts, first, own) if is_last else own)
        return Decoded((*deltas,), (*beside,), None if frame is came else frame)

    def _deltas(self, entry: Json) -> Iterator[Delta]:
        """Read what a candidate says. Raises TypeError for a call in pieces, which is told only where asked for."""
        index = count_of(entry, "index")
        for part in part_of(entry, "content").get("parts") or ():
            text, call = part.get("text"), part.get("functionCall")
            if isinstance(text, str):
                yield ReasoningDelta(text, index) if part.get("thought") else TextDelta(text, index)
            if isinstance(call, dict):
                if call.keys() & {"partialArgs", "willContinue"}:
                    raise TypeError("a call in pieces (`streamFunctionCallArguments`) is not read")
                number = self.calls.get(index, 0)
                self.calls = {**self.calls, index: number + 1}
                name, arguments = str(call.get("name") or ""), arguments_text(call.get("args")) or "{}"
                yield CallDelta(number, call.get("id"), name, arguments, part, index, last=True)
        if reason := entry.get("finishReason"):
            yield Finish(reason_of(reason), index, reason)

    def _beside(self, chunk: Json, entry: Json) -> Iterator[Beside]:
        index = count_of(entry, "index")
        if index not in self.begun:
            self.begun |= {index}
            head = {key: chunk[key] for key in HEAD if key in chunk}
            own = Origin(NAME, "head", head, index, harmless=True)
            yield Start(str(head.get("responseId") or ""), str(head.get("modelVersion") or ""), 0, index, own)
        yield from _origins("candidate", entry, _CANDIDATE, index)
        for part in part_of(entry, "content").get("parts") or ():
            signature = {key: part[key] for key in ("thought", "thoughtSignature") if key in part}
            if "thoughtSignature" in part and not isinstance(part.get("functionCall"), dict):
                yield Origin(NAME, "part.thoughtSignature", {"text": "", **signature}, index, harmless=True, ends=True)
            rest = {key: value for key, value in part.items() if key not in _PART}
            if rest or not part.keys() & _PART:
                yield Origin(NAME, f"part.{next(iter(rest), '')}", rest, index, rest.keys() <= _HARMLESS)


def _origins(place: str, fields: Json, read: Collection[str], index: int) -> Iterator[Origin]:
    """Take fields that only this API knows, as `place.field`."""
    for key, value in fields.items():
        if key not in read and value is not None:
            yield Origin(NAME, f"{place}.{key}", value, index, key in _HARMLESS)


def parts_of(content: Any) -> list[dict[str, Any]]:
    """The parts of a content. Raises TypeError if it is none."""
    if isinstance(content, str):
        return [{"text": content}]
    parts = content.get("parts") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise TypeError("`parts` is no list of parts")
    return parts
