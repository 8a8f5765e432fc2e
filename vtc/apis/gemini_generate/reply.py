"""Replies of Gemini's API: server-sent events, each a partial reply with more parts.

    {"candidates": [{"content": {"parts": [{"text": " word"}], "role": "model"}, "index": 0}], "usageMetadata": {…},
     "modelVersion": …, "responseId": …}
    {"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}], …}

Calls are never split, and do not change the finish reason `STOP`. A whole reply has the shape of one such event, and no
event marks the end of the stream. The format is that of ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import ToolCallAccumulator, render_as_text
from vtc.apis.clean import HOLLOW, MISSING, NULL, OBJECT, WRITTEN, Table, is_clean
from vtc.apis.contract import WRONG_TYPE, Decoded, Json, ReplyEvent, find_missing_start
from vtc.apis.errors import INTERNAL, find_kind, find_kind_of_status
from vtc.apis.fields import count_of, drop_frame_fields, is_error, object_of, part_of, split_entries
from vtc.apis.gemini_generate.parts import (
    FINISH_REASONS,
    FRAMING,
    NAME,
    SIGNATURE,
    make_origin,
    read_call,
    render_call,
    to_camel_case,
)
from vtc.apis.request import Request
from vtc.events import (
    Call,
    CallDelta,
    Delta,
    Failure,
    Finish,
    FrameMetadata,
    Origin,
    Reasoning,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Seal,
    SealPlace,
    Start,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)
from vtc.wire.framing import Frame
from vtc.wire.sse import EventStream

_COMMON_FIELDS = ("modelVersion", "responseId", "createTime")
_REPLY_FIELDS = ("candidates", "promptFeedback", "usageMetadata")
_CLEAN_CALL: Table = {"name": (WRITTEN,), "args": (MISSING, NULL, HOLLOW, OBJECT)}
"""The kinds of value in a clean call."""
_HARMLESS_FIELDS = (
    *("safetyRatings", "citationMetadata", "groundingMetadata", "groundingAttributions", "urlContextMetadata"),
    *("avgLogprobs", "logprobsResult", "tokenCount", "finishMessage", "promptFeedback", "modelStatus"),
    *("inlineData", "fileData", "codeExecutionResult", "videoMetadata"),
)
"""Fields of events, candidates and parts in which no client finds a call."""


class Decoder(msgspec.Struct):
    """Decoder of a reply; fields named in `drop` are removed."""

    framing: ClassVar[EventStream] = FRAMING
    drop: frozenset[str] = frozenset()
    begun: bool = False
    call_count: int = 0
    """Number of calls received."""

    def decode(self, frame: Frame) -> Decoded | None:
        event = object_of(frame.data)
        if event and is_error(event):
            reason = part_of(event, "error")
            failure = Failure(str(reason.get("message") or event.get("error") or ""), str(reason.get("status") or ""))
            unknown = event.keys() - {"error", *_COMMON_FIELDS}
            return Decoded((failure,), tuple(make_origin(f"event.{key}", event[key]) for key in unknown))
        if not event or not any(key in event for key in _REPLY_FIELDS):
            return Decoded(keep_alive=True) if frame.data is None else None
        received = frame
        if self.drop:
            frame, event = drop_frame_fields(frame, event, self.drop, self.framing)
        event = to_camel_case(event)
        deltas: list[Delta] = []
        metadata: list[FrameMetadata] = [*self._decode_metadata(event)]
        for entry in _decode_candidates(event):
            if isinstance(entry, Seal):
                metadata.append(replace(entry, calls=self.call_count))
            elif isinstance(entry, Origin):
                metadata.append(entry)
            else:
                if isinstance(entry, CallDelta):
                    entry = replace(entry, index=self.call_count)
                    self.call_count += 1
                deltas.append(entry)
        return Decoded((*deltas,), (*metadata,), None if frame is received else frame)

    def _decode_metadata(self, event: Json) -> Iterator[FrameMetadata]:
        if not self.begun:
            self.begun = True
            head = {key: event[key] for key in _COMMON_FIELDS if key in event}
            own = make_origin("head", head, harmless=True)
            yield Start(str(event.get("responseId") or ""), str(event.get("modelVersion") or ""), own=own)
        for key in event.keys() - {*_COMMON_FIELDS, "candidates", "usageMetadata"}:
            yield make_origin(f"event.{key}", event[key], harmless=key in _HARMLESS_FIELDS)
        usage = event.get("usageMetadata")
        if usage and not isinstance(usage, dict):
            yield make_origin(f"{WRONG_TYPE}.usageMetadata", usage)
        elif usage:
            thought = count_of(usage, "thoughtsTokenCount")
            yield Usage(
                count_of(usage, "promptTokenCount") + count_of(usage, "toolUsePromptTokenCount"),
                count_of(usage, "candidatesTokenCount") + thought,
                count_of(usage, "cachedContentTokenCount"),
                thought,
                own=make_origin("usage", usage, harmless=True),
            )


def _decode_candidates(event: Json) -> Iterator[Delta | Seal | Origin]:
    """Decode the candidates of an event."""
    candidates, others = split_entries(event.get("candidates"))
    if others:
        yield make_origin(f"{WRONG_TYPE}.candidates", others)
    block_reason = part_of(event, "promptFeedback").get("blockReason")
    if block_reason and not candidates:  # the server rejected the prompt
        yield Finish("halted", native_reason=str(block_reason))
    for candidate in candidates:
        choice = count_of(candidate, "index")
        content = part_of(candidate, "content")
        parts, others = split_entries(content.get("parts"))
        for part in parts:
            yield from _decode_part(part, choice)
        if others:
            yield make_origin(f"{WRONG_TYPE}.parts", others, choice)
        has_bad_content = not content and bool(candidate.get("content"))  # a value of a wrong type
        known = {"index"} if has_bad_content else {"content", "index", "finishReason"}
        for key in candidate.keys() - known:
            yield make_origin(f"candidate.{key}", candidate[key], choice, harmless=key in _HARMLESS_FIELDS)
        for key in content.keys() - {"parts", "role"}:
            yield make_origin(f"content.{key}", content[key], choice)
        if reason := candidate.get("finishReason"):
            yield Finish(FINISH_REASONS.get(str(reason), "failed"), choice, str(reason))


def _decode_part(part: Json, choice: int) -> Iterator[Delta | Seal | Origin]:
    """Decode a part, its seal first."""
    signature = part.get(SIGNATURE)
    has_call = isinstance(part.get("functionCall"), dict)
    on: SealPlace = ""
    if has_call:
        on = "call"
    elif _has_text(part):
        on = "text"
    if isinstance(signature, str):
        yield Seal(encrypted=signature, choice=choice, on=on)
    known = {"thought", SIGNATURE}
    if isinstance(text := part.get("text"), str):
        known.add("text")
        yield ReasoningDelta(text, choice) if part.get("thought") is True else TextDelta(text, choice)
    if has_call:
        known.add("functionCall")
        call = read_call({key: part[key] for key in part.keys() & ("functionCall", SIGNATURE)})
        clean = is_clean(part["functionCall"], _CLEAN_CALL)
        yield CallDelta(None, call.id, call.name, call.arguments, call.source, choice, clean, last=True)
    for key in part.keys() - known:
        yield make_origin(f"part.{key}", part[key], choice, harmless=key in _HARMLESS_FIELDS)


def _has_text(part: Json) -> bool:
    """True if a part holds text for the user."""
    return bool(part.get("text")) and part.get("thought") is not True


class Encoder(msgspec.Struct):
    """Encoder of a reply; `thinks` is True if the request asked for reasoning, `drop` names fields to remove."""

    framing: ClassVar[EventStream] = FRAMING
    counts: ClassVar[bool] = False
    call_fields: ClassVar[frozenset[str]] = frozenset(("functionCall", SIGNATURE))
    in_step: ClassVar[bool] = True
    thinks: bool = False
    drop: frozenset[str] = frozenset()
    head: Json = {}
    native: bool = False
    """True if the server speaks this API, whose last event contains the usage."""
    finish: Finish | None = None
    """The end of another API's reply, which can arrive before the usage."""
    usage: Json = {}
    ended: bool = False
    """True after the last event, or the error, of another API's reply."""
    call_count: int = 0
    """Number of calls sent."""
    seals: tuple[Seal, ...] = ()
    """Seals whose place is between calls that are not yet sent."""
    pieces: dict[int, tuple[CallDelta, ...]] = {}
    """Pieces of incomplete calls, by choice: this API sends only whole calls."""

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        for event in events:
            if isinstance(event, Start):
                self._record_start(event)
        return True

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        if self.ended:
            return []
        if not self.head and (start := find_missing_start(events)):
            self._record_start(start)
        # Step 1: collect the parts, and the additional fields of the event, the candidate and its content.
        parts: list[Json] = []
        own: dict[str, dict[str, Any]] = {"event": {}, "candidate": {}, "content": {}}
        end: Finish | None = None
        failed: Failure | None = None
        signed = {_get_signature(event) for event in events}  # these seals are rendered with their calls
        for event in events:
            match event:
                case Start():
                    self._record_start(event)
                case Origin(api=api, kind=kind, value=value) if api == NAME:
                    place, _, key = kind.partition(".")
                    if place == "part":
                        parts.append({key: value})
                    elif place != WRONG_TYPE:
                        own[place][key] = value
                case Usage():
                    self.usage = event.own.value if event.own and event.own.api == NAME else _render_usage(event)
                    own["event"]["usageMetadata"] = self.usage
                case Seal() if event.value not in signed:
                    self.seals = (*self.seals, event)
                    parts += self._render_seals(self.call_count)
                case Reasoning(text) | ReasoningDelta(text) if text and self._is_shown(event):
                    parts.append({"text": text, "thought": True})
                case CallDelta(name=name, index=index):
                    parts += self._render_ended_call(choice) if name else ()
                    if index is None or (name and event.last):
                        call = ToolCall(name, event.arguments or "{}", event.id, event.source)
                        parts += self._render_calls([call])
                    else:
                        self.pieces = {**self.pieces, choice: (*self.pieces.get(choice, ()), event)}
                case Call(call=call):
                    parts += [*self._render_collected_calls(choice), *self._render_calls([call])]
                case Text(text) | Rewritten(text=text) | RefusalText(text) if text:
                    parts += [*self._render_ended_call(choice), {"text": text}]
                case Finish():
                    end = event
                    parts += self._render_collected_calls(choice)
                case Failure():
                    failed = event
                    parts += self._render_collected_calls(choice)
        # Step 2: render one event with them, and an error after it.
        out = self._render_event(parts, own, end, choice)
        if failed:
            self.ended = not self.native
            known = find_kind(failed.kind) or INTERNAL
            out.append({"error": {"code": known.status, "message": failed.message, "status": known.gemini}})
        return out

    def _render_event(
        self, parts: list[Json], own: dict[str, dict[str, Any]], end: Finish | None, choice: int
    ) -> list[Json]:
        """Render one event; the end of another API's reply is deferred until the usage arrives."""
        if not self.native:
            self.finish = end or self.finish
            end = self.finish if own["event"] else None
            own["event"] = {"usageMetadata": self.usage} if end else {}
        if not (parts or own["candidate"] or own["content"] or end):
            return [{**own["event"], **self.head}] if own["event"] else []
        self.ended = end is not None and not self.native
        candidate = _render_candidate(parts, choice, end, own["candidate"], own["content"])
        return [{"candidates": [candidate], **own["event"], **self.head}]

    def end(self) -> list[Json]:
        if not self.head or self.ended or self.native:
            return []
        end, self.ended = self.finish or Finish("stop"), True
        usage = {"usageMetadata": self.usage} if self.usage else {}
        candidate = _render_candidate(self._render_collected_calls(end.choice), end.choice, end)
        return [{"candidates": [candidate], **usage, **self.head}]

    def keep_alive(self) -> bytes | None:
        """Make an event without text, because Google's client parses even comments as events.

        None before the first event and after the last one.
        """
        frame = {"candidates": [_render_candidate([], 0)], **self.head}
        return self.framing.encode([frame])[0] if self.head and not self.ended else None

    def _render_ended_call(self, choice: int) -> list[Json]:
        """Render the collected call before other content, if there is only one and the server has ended it."""
        pieces = self.pieces.get(choice)
        if not pieces or not pieces[-1].last or any(piece.index != pieces[-1].index for piece in pieces):
            return []
        return self._render_collected_calls(choice) if any(piece.arguments for piece in pieces) else []

    def _render_collected_calls(self, choice: int) -> list[Json]:
        """Render the calls that arrived in pieces."""
        calls = ToolCallAccumulator(self.pieces.get(choice, ())).calls(complete=False)
        self.pieces = {key: value for key, value in self.pieces.items() if key != choice}
        return self._render_calls(calls)

    def _render_calls(self, calls: Sequence[ToolCall]) -> list[Json]:
        """Render calls, each preceded by its seals."""
        parts: list[Json] = []
        for call in calls:
            parts += [*self._render_seals(self.call_count), _render_call_or_text(call)]
            self.call_count += 1
        return parts

    def _render_seals(self, calls: int) -> list[Json]:
        """Render the seals that precede call number `calls`, each once."""
        here = [seal for seal in self.seals if seal.calls <= calls]
        self.seals = tuple(seal for seal in self.seals if seal.calls > calls)
        return [{"text": "", SIGNATURE: seal.value} for seal in here]

    def _is_shown(self, event: Reasoning | ReasoningDelta) -> bool:
        wanted = self.thinks or (self.native and not isinstance(event, Reasoning))
        return wanted and "thought" not in self.drop

    def _record_start(self, start: Start) -> None:
        if not self.head:
            self.native = start.own is not None
            head = {"modelVersion": start.model, "responseId": start.id}
            self.head = start.own.value if start.own else head


def _get_signature(event: ReplyEvent) -> str | None:
    """Return the signature in the original part of a call."""
    source = None
    if isinstance(event, Call):
        source = event.call.source
    elif isinstance(event, CallDelta):
        source = event.source
    return source.get(SIGNATURE) if isinstance(source, dict) else None


def _render_call_or_text(call: ToolCall) -> Json:
    """Render a call; as text if its arguments are cut off or no object, because this API cannot express that."""
    text = render_as_text(call)
    return render_call(call) if text is None else {"text": text}


def _render_candidate(
    parts: Collection[Json],
    choice: int,
    end: Finish | None = None,
    own: Json | None = None,
    content_fields: Json | None = None,
) -> Json:
    """Render a candidate with its `own` additional fields; `content_fields` are added to its content."""
    content = {**(content_fields or {}), "parts": [*parts] or [{"text": ""}], "role": "model"}
    reason = {"finishReason": _render_reason(end)} if end else {}
    return {"content": content, **reason, "index": choice, **(own or {})}


def _render_reason(end: Finish) -> str:
    """Render the finish reason; the server's own word if it is one of this API with the same meaning."""
    if end.native_reason and FINISH_REASONS.get(end.native_reason, "failed") == end.reason:
        return end.native_reason
    return {"length": "MAX_TOKENS", "halted": "SAFETY"}.get(end.reason, "STOP")


def _render_usage(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.completion - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cached,
        "totalTokenCount": usage.prompt + usage.completion,
    }


def unfold_reply(reply: Any, _: Request | None) -> Iterator[Mapping[str, Any]]:
    """Unfold a whole reply to events, one for each part of each candidate.

    Raises KeyError if it has neither candidates nor `promptFeedback`.
    """
    fields = to_camel_case(reply)
    candidates = fields.get("candidates") or []
    if not candidates and "promptFeedback" not in fields:
        raise KeyError("candidates")
    rest = {key: value for key, value in fields.items() if key != "candidates"}
    pieces = [piece for candidate in candidates for piece in _split_candidate(candidate)]
    for piece in pieces[:-1]:
        yield {"candidates": [piece]}
    last = pieces[-1] if pieces else None
    yield {"candidates": [last], **rest} if last else rest


def _split_candidate(candidate: Json) -> Iterator[Json]:
    """Split a candidate into candidates of one part each, which preserves the order; the last has all other fields."""
    content = part_of(candidate, "content")
    parts = content.get("parts") or []
    for part in parts[:-1]:
        yield {"content": {"role": "model", "parts": [part]}, "index": count_of(candidate, "index")}
    yield {**candidate, "content": {**content, "parts": parts[-1:]}} if parts[1:] else candidate


def fold_events(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Fold events to a whole reply."""
    reply: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for event in events:
        reply.update(event)
        for item in event.get("candidates") or ():
            candidate = candidates.setdefault(item.get("index") or 0, {"content": {"parts": [], "role": "model"}})
            fields = item.get("content") or {}
            for part in fields.get("parts") or ():
                _append_part(candidate["content"]["parts"], part)
            candidate.update((key, value) for key, value in item.items() if key != "content")
    return {**reply, "candidates": [*candidates.values()]} if candidates else reply


def _append_part(parts: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Append a part; consecutive texts of one kind are joined."""
    last = parts[-1] if parts else {}
    if "text" not in part or part.keys() - {"text", "thought"}:
        parts.append({**part})
    elif "text" in last and not last.keys() - {"text", "thought"} and last.get("thought") == part.get("thought"):
        last["text"] += part["text"]
    elif part["text"] or not parts:
        parts.append({**part})


def build_error(failure: Failure, status: int) -> Json:
    """Render an error for an HTTP status."""
    code = 500 if status == 200 else status
    return {"error": {"code": code, "message": failure.message, "status": find_kind_of_status(code).gemini}}
