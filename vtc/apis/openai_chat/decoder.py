r"""Decode replies of chat completions: chunks of a stream. A whole reply is decoded as the equivalent stream.

    data: {"id": …, "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": null}]}
    data: {…, "delta": {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": …,
                                                                                        "arguments": "{\"path"}}]}}
    {"id": …, "choices": [{"index": 0, "message": {"content": …, "tool_calls": […]}, "finish_reason": "tool_calls"}]}

A call of a custom tool has `custom` with `name` and `input` instead of `function`. The older form of a call,
`{"function_call": {"name": …, "arguments": …}}`, is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.calls import OpenCalls
from vtc.apis.citations import read_url_citation
from vtc.apis.clean import BLANK_TEXTS, MISSING, NULL, NUMBER, OPTIONAL, WRITTEN, Table, is_clean
from vtc.apis.contract import Decoded, Json
from vtc.apis.fields import count_of, drop_frame_fields, is_error, object_of, part_of, split_entries
from vtc.apis.openai_chat import words
from vtc.apis.openai_chat.words import FRAMING, NAME, REASON_OF, EntryChain, read_call
from vtc.events import (
    BlockStart,
    CallDelta,
    Delta,
    Failure,
    Finish,
    FrameMetadata,
    Origin,
    ReasoningDelta,
    Seal,
    Start,
    TextDelta,
    Usage,
)
from vtc.json_text import decode_json
from vtc.wire import sse
from vtc.wire.framing import Frame

_HEAD_FIELDS = {"id", "object", "created", "model", "system_fingerprint", "service_tier", "provider"}
_LATE_HEAD_FIELDS = ("system_fingerprint", "service_tier", "provider")
"""Fields of the head that may change, or arrive in a later chunk than the first one."""
_HARMLESS_FIELDS = {
    "chunk": {
        "obfuscation",
        "prompt_token_ids",
        "prompt_logprobs",
        "timings",
        "nonce",
        "kv_transfer_params",
        "x_groq",
        "prompt_filter_results",
    },
    "choice": {
        "logprobs",
        "stop_reason",
        "token_ids",
        "matched_stop",
        "native_finish_reason",
        "hidden_states",
        "content_filter_results",
    },
    "delta": {"annotations", *words.SEALED_FIELDS, "token_ids"},
}
"""Fields in which no client finds a call, by the object that contains them."""
_DECODED_FIELDS = {
    "chunk": {*_HEAD_FIELDS, "choices", "usage", "error"},
    "choice": {"index", "delta", "finish_reason"},
    "delta": {"content", "role", *REASONING_FIELDS, "refusal", "tool_calls"},
}
_REPORTED_IF_LOST = ("annotations", "audio", "logprobs", "images", "citations", "function_call")
"""Fields with content that is named in the report if the client's API cannot express it."""
_HARMLESS_PART_TYPES = ("image_url", "reference")
"""Types of parts in which no client finds a call."""

_CLEAN_VALUES: Mapping[str, Table] = {
    "choice": {"finish_reason": (MISSING, NULL, WRITTEN)},
    "delta": {"role": (MISSING, "assistant"), "content": (*OPTIONAL, NUMBER)},
}
"""Kinds of value that clients rely on, by the object that contains them (calls: `words.read_call`).

The structs below accept only chunks that are clean by this table.
"""


class _ChunkDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str | None = None
    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Any = None


class _ChunkChoice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    delta: _ChunkDelta
    index: int | None = None
    finish_reason: Annotated[str, msgspec.Meta(pattern="^(?!null$)\\S")] | None = None
    logprobs: Any = None
    stop_reason: Any = None
    token_ids: Any = None
    matched_stop: Any = None
    native_finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    choices: list[_ChunkChoice]
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    system_fingerprint: Any = None
    service_tier: Any = None
    provider: Any = None
    usage: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class Decoder(msgspec.Struct):
    """Decodes the chunks of a reply; `drop` names fields to remove."""

    framing: ClassVar[sse.EventStream] = FRAMING

    drop: frozenset[str] = frozenset()
    begun_choices: frozenset[int] = frozenset()
    """The choices that have begun."""
    head: Json = {}
    """The fields of every chunk, from the first one."""
    reasoning_fields: tuple[str, ...] = ()
    """The fields in which the client gets reasoning; empty for the server's own fields."""
    wants_one_choice: bool = False
    """True if the client asks for one choice."""
    next_call_numbers: dict[int, int] = {}
    """By choice, the expected number of the server's next call."""
    open_calls: dict[int, OpenCalls] = {}
    """By choice, the calls whose arguments are incomplete."""
    choices_with_field: frozenset[int] = frozenset()
    """The choices with a separate field for reasoning: their entries of reasoning repeat it."""
    unsealed_entries: dict[int, EntryChain] = {}
    """By choice, the entries of reasoning since the last seal; None directly after a seal."""

    def decode(self, frame: Frame) -> Decoded | None:
        """Decode a chunk.

        The fast case is a chunk with only text, or only reasoning, of one choice that has begun; nearly all chunks are.
        Parsing it with `_Chunk` costs a third of parsing plain data. `_decode_any` decodes all other frames.
        """
        data = frame.data
        if data is None:
            return Decoded(keep_alive=True)
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._decode_any(frame, data)
        choice = chunk.choices[0] if len(chunk.choices) == 1 else None
        if (
            self.drop
            or self.reasoning_fields
            or choice is None
            or (choice.index or 0) not in self.begun_choices
            or choice.finish_reason is not None
        ):
            return self._decode_any(frame, data, matches_schema=True)
        delta, index = choice.delta, choice.index or 0
        thought = delta.reasoning_content or delta.reasoning
        is_more = delta.tool_calls or delta.function_call or delta.refusal or chunk.usage is not None
        if is_more or choice.logprobs is not None or choice.token_ids is not None:
            return self._decode_any(frame, data, matches_schema=True)
        if choice.stop_reason is not None or choice.matched_stop is not None:
            return self._decode_any(frame, data, matches_schema=True)
        if bool(thought) == bool(delta.content):  # both, or neither
            return self._decode_any(frame, data, matches_schema=True)
        if delta.content:
            return Decoded((TextDelta(delta.content, index),))
        if index not in self.choices_with_field:
            self.choices_with_field |= {index}
        return Decoded(
            (_make_reasoning("reasoning_content" if delta.reasoning_content else "reasoning", thought, index),)
        )

    def _decode_any(self, frame: Frame, data: bytes, *, matches_schema: bool = False) -> Decoded | None:
        """Decode any frame. `matches_schema`: `_Chunk` parsed it, so only its calls can be unclean."""
        # Step 1: return for the end mark, for an error without choices, and for a frame that is no chunk (None).
        if data.strip() == b"[DONE]":
            return Decoded(ends=True)
        chunk = object_of(data)
        if chunk is None and _is_json(data):
            return Decoded(dropped="an event that is no object")  # clients would look for choices in it
        is_null = chunk is not None and "choices" in chunk and chunk["choices"] is None
        if chunk and is_null:
            chunk = {**chunk, "choices": []}
        entries = chunk.get("choices") if chunk else None
        failed = (_read_failure(chunk),) if chunk and is_error(chunk) else ()
        if chunk and failed and not entries:
            rest = {key: value for key, value in chunk.items() if key not in ("error", "object", "message")}
            return Decoded(failed, (*_make_origins("chunk", rest, 0),))
        if not (chunk and isinstance(entries, list)) or not {*map(type, entries)} <= {dict}:
            return None
        if any(isinstance(entry.get("index"), dict | list) for entry in entries):
            return None
        # Step 2: if the client asks for one choice, treat all choices as that one.
        is_renumbered = self.wants_one_choice and any(entry.get("index") for entry in entries)
        if is_renumbered or (self.wants_one_choice and len(entries) > 1):
            entries = [{**entry, "index": 0} for entry in entries]
            chunk = {**chunk, "choices": entries}
        # Step 3: decode the content of each choice.
        seals = [
            seal for entry in entries for seal in self._read_seals(entry.get("index") or 0, part_of(entry, "delta"))
        ]
        deltas = [delta for entry in entries for delta in self._read_choice(entry)]
        clean = matches_schema or all(
            is_clean(part, _CLEAN_VALUES[place])
            for entry in entries
            for place, part in (("choice", entry), ("delta", part_of(entry, "delta")))
        )
        if self.wants_one_choice and len(entries) > 1:
            deltas = _merge_choices(deltas)
        # Step 4: drop fields and copy reasoning for the client, then collect the metadata.
        received = frame
        frame, chunk = drop_frame_fields(frame, self._copy_reasoning(chunk), self.drop, self.framing, chunk)
        starts = [*self._begin_choices(chunk)]
        changed_head = {
            key: value
            for key, value in chunk.items()
            if key in _LATE_HEAD_FIELDS and value not in (None, self.head.get(key))
        }
        metadata = [
            *starts,
            *(Origin(NAME, f"chunk.{key}", value, harmless=True) for key, value in changed_head.items()),
            *seals,
            *_read_metadata(chunk),
        ]
        return Decoded(
            (*deltas, *failed),
            (*metadata,),
            None if frame is received else frame,
            clean=clean and not (is_renumbered or is_null),
        )

    def _copy_reasoning(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Move reasoning from the server's field to all fields in which the client expects it."""
        if not self.reasoning_fields:
            return chunk
        entries = []
        for entry in chunk["choices"]:
            part = part_of(entry, "delta")
            thought = next((part[key] for key in REASONING_FIELDS if part.get(key)), None) or words.text_of(
                words.entries_of(part)
            )
            rest = {key: value for key, value in part.items() if key not in REASONING_FIELDS}
            named = {**rest, **dict.fromkeys(self.reasoning_fields, thought)} if thought else part
            entries.append({**entry, "delta": named} if named != part else entry)
        return {**chunk, "choices": entries}

    def _read_choice(self, entry: Json) -> list[Delta]:
        """Decode one choice of a chunk."""
        index, part = entry.get("index") or 0, part_of(entry, "delta")
        called = split_entries(part["tool_calls"])[0] if part.get("tool_calls") else []
        calls = [self._read_call_piece(call, index) for call in called]
        has_no_call = self.wants_one_choice and not self.next_call_numbers.get(index)
        deltas = _read_deltas(index, entry, part, calls, has_no_call=has_no_call)
        entries = [] if index in self.choices_with_field else words.entries_of(part)
        if text := words.text_of(entries):
            # The list of the origin is empty, because the entries are a separate origin of `_read_metadata`.
            own = Origin(NAME, f"delta.{words.field_of(entries[0])}", [], harmless=True)
            return [ReasoningDelta(text, index, own), *deltas]
        return deltas

    def _read_seals(self, choice: int, part: Json) -> Iterator[BlockStart | Seal]:
        """Add a delta's entries of reasoning to `unsealed_entries`; yield them all as one seal when one is sealed.

        An entry after a seal starts another block. `unsealed_entries` has no key for a choice before its first entry,
        and the value None directly after a seal.
        """
        if choice not in self.choices_with_field and any(part.get(key) for key in REASONING_FIELDS):
            self.choices_with_field |= {choice}
        calls = self.next_call_numbers.get(choice, 0)
        if entries := words.entries_of(part):
            is_sealed, earlier = words.is_sealed(entries), self.unsealed_entries.get(choice)
            unsealed = (earlier, entries)
            if choice in self.unsealed_entries and earlier is None:
                yield BlockStart("reasoning", -1, choice=choice)
            self.unsealed_entries = {**self.unsealed_entries, choice: None if is_sealed else unsealed}
            if is_sealed:
                yield Seal(encrypted=words.pack_entries(unsealed), choice=choice, calls=calls)
        for begun, entry in words.find_call_seals(part):
            yield BlockStart("reasoning", -1, choice=choice)
            yield Seal(
                encrypted=words.pack_entries((None, [entry])), choice=choice, calls=max(calls + begun, 0), on="call"
            )

    def _begin_choices(self, chunk: Json) -> Iterator[FrameMetadata]:
        """Yield the starts of the choices that begin with this chunk."""
        for entry in chunk["choices"]:
            index = entry.get("index") or 0
            if index not in self.begun_choices:
                self.begun_choices |= {index}
                head = self.head = self.head or {key: value for key, value in chunk.items() if key in _HEAD_FIELDS}
                id_, created = str(head.get("id") or ""), count_of(head, "created")
                own = Origin(NAME, "head", head, index, harmless=True)
                yield Start(id_, str(head.get("model") or ""), created, index, own)

    def _read_call_piece(self, entry: Json, choice: int) -> CallDelta:
        """Decode a piece of a call; one that skips or reuses a number is not clean.

        Arguments without a name and with a new number continue the last incomplete call, because servers lose count.
        """
        next_ = self.next_call_numbers.get(choice, 0)
        piece = read_call(entry, choice, next_)
        if piece.index is None:
            return piece
        open_calls = self.open_calls.get(choice, OpenCalls())
        number, last = piece.index, open_calls.last
        if number >= next_ and piece.arguments and not piece.name and last is not None:
            number, piece = last, replace(piece, index=last, clean=False)
        self.open_calls = {**self.open_calls, choice: open_calls.advance(piece)}
        if not piece.name:
            return piece
        self.next_call_numbers = {**self.next_call_numbers, choice: max(next_, number + 1)}
        return replace(piece, clean=False) if number != next_ else piece


def _is_json(data: bytes) -> bool:
    try:
        decode_json(data)
    except (ValueError, RecursionError):
        return False
    return bool(data.strip())


def _read_failure(chunk: Json) -> Failure:
    """Decode an error; OpenRouter sends one together with the end of a choice."""
    error = part_of(chunk, "error") or chunk
    reason = error.get("message") or chunk.get("error") or ""
    return Failure(str(reason), str(error.get("type") or error.get("code") or ""))


def _merge_choices(deltas: Sequence[Delta]) -> list[Delta]:
    """Merge the deltas of several choices into one: Copilot sends the text and the calls of a reply as two choices."""
    merged: list[Delta] = [delta for delta in deltas if not isinstance(delta, Finish)]
    ends = [delta for delta in deltas if isinstance(delta, Finish)]
    has_calls = any(isinstance(delta, CallDelta) for delta in merged)
    after_calls = next((end for end in ends if end.reason == "tool_calls"), None)
    if has_calls and after_calls:
        merged.append(replace(after_calls, is_early=False))
    elif ends:
        merged.append(ends[0])
    return merged


def _read_deltas(choice: int, entry: Json, part: Json, calls: Sequence[CallDelta], *, has_no_call: bool) -> list[Delta]:
    """Decode one choice of a chunk; `part` is its delta, `calls` are the pieces of calls in it.

    If the choice `has_no_call` so far, the finish reason `tool_calls` is early: the calls are still to come.
    """
    deltas: list[Delta] = []
    content = part.get("content")
    entries = _list_part_objects(content) if isinstance(content, list) else []
    for key in REASONING_FIELDS:
        if part.get(key):
            deltas.append(_make_reasoning(key, part[key], choice))
            break
    else:
        deltas += [ReasoningDelta(_join_text(entry["thinking"]), choice) for entry in entries if entry.get("thinking")]
    deltas += calls
    deltas.append(TextDelta(_join_text(part.get("content")), choice))
    if refusal := "".join(str(entry["refusal"]) for entry in (part, *entries) if entry.get("refusal")):
        deltas.append(TextDelta(refusal, choice, refusal=True))
    reason = str(entry.get("finish_reason") or "")
    if reason and reason not in BLANK_TEXTS:
        deltas.append(Finish(REASON_OF[reason], choice, reason, has_no_call and reason == "tool_calls"))
    return deltas


def _read_metadata(chunk: Json) -> Iterator[FrameMetadata]:
    """Yield the metadata of a chunk."""
    entries = chunk["choices"]
    first = (entries[0].get("index") or 0) if entries else 0
    yield from _make_origins("chunk", chunk, first)
    for entry in entries:
        index, delta = entry.get("index") or 0, part_of(entry, "delta")
        yield from _make_origins("choice", entry, index)
        yield from _make_origins("delta", delta, index)
        if delta.get("tool_calls"):
            _, others = split_entries(delta["tool_calls"])
            if others:
                yield Origin(NAME, "delta.tool_calls", others, index)
        parts = [
            entry
            for entry in _list_part_objects(delta.get("content"))
            if not (entry.get("text") or entry.get("refusal"))
        ]
        if parts := [entry for entry in parts if entry.get("type") != "thinking"]:
            harmless = all(entry.get("type") in _HARMLESS_PART_TYPES for entry in parts)
            yield Origin(NAME, "delta.content", parts, index, harmless, lost=str(parts[0].get("type") or "part"))
    if isinstance(usage := chunk.get("usage"), Mapping):
        prompt = part_of(usage, "prompt_tokens_details")
        cached, written = count_of(prompt, "cached_tokens"), count_of(prompt, words.CACHE_WRITES)
        thoughts = count_of(part_of(usage, "completion_tokens_details"), "reasoning_tokens")
        counts = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens"), cached, thoughts
        yield Usage(*counts, written, first, Origin(NAME, "usage", usage, first, harmless=True))


def _make_origins(place: str, fields: Json, choice: int) -> Iterator[Origin]:
    """Yield fields that only this API knows, as `place.field`."""
    for key, value in fields.items():
        is_read = key in _DECODED_FIELDS[place] and (key != "delta" or isinstance(value, dict))
        if not is_read and value is not None:
            entries = split_entries(value)[0] if key == "annotations" else []
            cited = [found for entry in entries for found in read_url_citation(part_of(entry, "url_citation"))]
            lost = key if key in _REPORTED_IF_LOST and value and not (cited and len(cited) == len(value)) else ""
            harmless = key in _HARMLESS_FIELDS[place]
            yield Origin(NAME, f"{place}.{key}", value, choice, harmless, lost=lost, citations=(*cited,))


def _join_text(content: Any) -> str:
    """Return the text of a message, which some servers send in parts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "".join(
        [entry if isinstance(entry, str) else str(entry.get("text") or "") for entry in _list_parts(content)]
    )


def _make_reasoning(key: str, text: Any, choice: int) -> ReasoningDelta:
    """Make a delta of reasoning, for either field name."""
    own = None if key == "reasoning_content" else Origin(NAME, f"delta.{key}", text, choice, harmless=True)
    return ReasoningDelta(text if isinstance(text, str) else "", choice, own)


def _list_part_objects(content: Any) -> list[dict[str, Any]]:
    return [entry for entry in _list_parts(content) if isinstance(entry, dict)]


def _list_parts(content: Any) -> list[str | dict[str, Any]]:
    return [entry for entry in content if isinstance(entry, str | dict)] if isinstance(content, list) else []
