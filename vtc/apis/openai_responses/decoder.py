"""Decoding of streamed Responses replies.

    response.created, response.in_progress
    response.output_item.added, response.content_part.added, response.output_text.delta, …
    response.output_text.done, response.content_part.done, response.output_item.done
    response.completed                                            repeats all items

Items are identified by the order in which they started, because some servers do not number them, or send a different
id in each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import format_arguments
from vtc.apis.citations import read_url_citation
from vtc.apis.clean import BLANK, WRITTEN, Table, is_clean
from vtc.apis.contract import WRONG_TYPE, Decoded, Json, TextChain, join_chain
from vtc.apis.fields import count_of, drop_frame_fields, is_error, object_of, part_of, split_entries, text_at
from vtc.apis.openai_chat.words import CACHE_WRITES
from vtc.apis.openai_responses.items import (
    ANNOTATION_ADDED,
    CALL_KINDS,
    END_EVENTS,
    FAILED_STATUSES,
    FRAMING,
    ITEM_ADDED,
    ITEM_DONE,
    NAME,
    PART_KINDS,
    SERVER_KINDS,
    ResponseForm,
    is_as_declared,
    is_call,
    name_of,
    read_call,
    render_action,
    split_namespace,
    text_of,
)
from vtc.events import (
    CUT_OFF,
    BlockEnd,
    BlockStart,
    CallDelta,
    Delta,
    Failure,
    Finish,
    FrameMetadata,
    Origin,
    Reason,
    ReasoningDelta,
    Seal,
    Start,
    TextDelta,
    Usage,
)
from vtc.wire import sse
from vtc.wire.framing import Frame


def decode_usage(usage: Any) -> Iterator[Usage]:
    """Decode the token counts, if there are any."""
    if isinstance(usage, Mapping):
        prompt = part_of(usage, "input_tokens_details")
        cached, written = count_of(prompt, "cached_tokens"), count_of(prompt, CACHE_WRITES)
        thoughts = count_of(part_of(usage, "output_tokens_details"), "reasoning_tokens")
        own = Origin(NAME, "usage", usage, harmless=True)
        counts = count_of(usage, "input_tokens"), count_of(usage, "output_tokens"), cached, thoughts, written
        yield Usage(*counts, own=own)


def read_failure(value: Json) -> Failure:
    """Parse an error event; some servers put its fields under `error`."""
    response = part_of(value, "response")
    error = part_of(response, "error") or part_of(value, "error") or value
    own = {key: value[key] for key in ("type", "code", "message", "param") if key in value}
    own |= {"error": {**error}} if part_of(value, "error") else {}
    kind = str(error.get("code") or error.get("type") or "")
    harmless = value["type"] == "error"
    status = str(response.get("status") or "failed")
    reason = str(error.get("message") or f"The server ended the reply as {status} and gave no reason.")
    return Failure(
        reason, "" if kind == "error" else kind, own=Origin(NAME, "error", own, harmless=True) if harmless else None
    )


def decode_item(item: Json, number: int, form: ResponseForm, calls: int) -> Iterator[Delta | Origin | Seal]:
    """Decode a whole item into deltas and metadata; `calls` is the number of calls before it.

    This is for items without a start event: some servers send only the end event of an item, or list the item only in
    the last event of the reply. Clients of this API find them there; for clients of another API they are sent then.
    """
    kind = str(item.get("type") or "message")
    if kind in CALL_KINDS:
        call = read_call(item, form)
        complete = item.get("status") != "incomplete"
        arguments = call.arguments if complete or item.get(CALL_KINDS[kind][1]) else ""
        yield CallDelta(number, call.id, call.name, arguments, item, last=True, complete=complete)
    elif is_call(kind):
        name = kind.removesuffix("_call")
        id_ = text_at(item, "call_id") or text_at(item, "id")
        yield CallDelta(number, id_, name, render_action(item), item, last=True)
    elif kind == "reasoning":
        texts = [str(text_of(part) or "") for part in (*_list_parts(item, "summary"), *_list_parts(item, "content"))]
        yield ReasoningDelta("".join(texts))
        if isinstance(item.get("encrypted_content"), str):
            yield Seal(encrypted=item["encrypted_content"], calls=calls)
    elif kind == "message":
        for part in _list_parts(item, "content"):
            text = str(text_of(part) or "")
            yield TextDelta(text, refusal=part.get("type") == "refusal")
        yield BlockEnd()
    else:
        yield Origin(NAME, "event", (number, {"type": ITEM_DONE, "output_index": number, "item": item}), lost=kind)


def find_remaining_items(output: Any, begun: Sequence[str]) -> list[Json]:
    """Return the items of `output` after the `begun` ones, whose types are compared; none if the types differ."""
    items = [entry for entry in output if isinstance(entry, Mapping)] if isinstance(output, list) else []
    kinds = [str(entry.get("type") or "message") for entry in items]
    return items[len(begun) :] if kinds[: len(begun)] == [*begun] else []


def _list_parts(item: Json, key: str) -> list[Json]:
    listed = item.get(key)
    return [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []


_INCOMPLETE_REASONS: Mapping[str, Reason] = {
    **dict.fromkeys(("", "max_output_tokens", "max_tokens", "length"), "length"),
    "content_filter": "halted",
}
"""Reasons why a reply is incomplete; any other word denotes a fault."""
TEXT_DELTA = "response.output_text.delta"
_REASONING_DELTAS = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_PART_EVENTS = ("response.content_part", "response.reasoning_summary_part")
_TEXT_EVENTS = tuple(f"response.{events}" for _, events, _ in PART_KINDS.values())
_FAILURE_EVENTS = ("error", *(f"response.{status}" for status in FAILED_STATUSES))

_ERROR_FIELDS = ("response", "error", "code", "message", "param")
_METADATA_TYPES = (Origin, Start, BlockStart, Seal, Usage)
_REQUIRED_FIELDS = {"type", "role", "error", "item_id", "content", "delta", "response", "output", "item", "part"}
"""Fields that a reply cannot do without; they are never dropped."""
_COMMON_FIELDS = {
    *("type", "sequence_number", "output_index", "item_id", "content_index", "summary_index", "obfuscation")
}
_FIELDS_OF_EVENT = {
    **{type_: {"response"} for type_ in ("response.created", "response.in_progress", "response.queued", *END_EVENTS)},
    **{type_: {"item"} for type_ in (ITEM_ADDED, ITEM_DONE)},
    **{f"{around}.{action}": {"part"} for around in _PART_EVENTS for action in ("added", "done")},
    **{f"{events}.delta": {"delta", "logprobs"} for events in _TEXT_EVENTS},
    **{f"{events}.done": {"text", "refusal", "logprobs"} for events in _TEXT_EVENTS},
    ANNOTATION_ADDED: {"annotation", "annotation_index"},
    "keepalive": set[str](),
}
"""Known events with their specific fields; events of calls are decoded with their items."""
_FIELDS_OF_OBJECT = {
    "item": {"id", "type", "status", "role", "content", "summary", "phase", "encrypted_content"},
    "part": {"type", "text", "refusal", "annotations", "logprobs"},
    "response": {
        *("id", "object", "created_at", "completed_at", "status", "model", "output", "usage", "error", "background"),
        *("incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "moderation"),
        *("parallel_tool_calls", "previous_response_id", "conversation", "prompt", "prompt_cache_key", "reasoning"),
        *("prompt_cache_retention", "safety_identifier", "service_tier", "store", "temperature", "text", "user"),
        *("tool_choice", "tools", "top_logprobs", "top_p", "truncation", "billing", "output_text"),
        *("frequency_penalty", "presence_penalty", "kv_transfer_params"),
    },
}
"""Fields that are decoded or in which no client finds a call, by the object that holds them."""
_TYPE_OF_FIELD: Mapping[str, type] = {
    **dict.fromkeys(("item", "part", "response"), dict),
    **dict.fromkeys(("delta", "text", "refusal"), str),
    "logprobs": list,
}
"""The types of the decoded fields of an event."""

_CLEAN_CALL: Mapping[str, Table] = {
    "arguments": {"id": (WRITTEN,), "call_id": (WRITTEN,), "name": (WRITTEN,), "arguments": (BLANK, WRITTEN)},
    "input": {"id": (WRITTEN,), "call_id": (WRITTEN,), "name": (WRITTEN,), "input": (BLANK, WRITTEN)},
    "": {"id": (WRITTEN,), "call_id": (WRITTEN,)},
}
"""The kinds of value in a clean item of a call at its start, by the field of its arguments."""
_CLEAN_REPEATED_CALL: Table = {"call_id": (WRITTEN,), "name": (WRITTEN,)}
"""The same for an item that the last event repeats."""


class _TextEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["response.output_text.delta"]
    delta: str
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    sequence_number: int | None = None
    logprobs: Any = None
    obfuscation: str | None = None


_decode_text = msgspec.json.Decoder(_TextEvent).decode


class Decoder(msgspec.Struct):
    """Decoder of a streamed reply; fields named in `drop` are removed."""

    framing: ClassVar[sse.EventStream] = FRAMING

    form: ResponseForm = ResponseForm()
    drop: frozenset[str] = frozenset()
    items: tuple[str, ...] = ()
    """Types of the server's items, in order; an item's number is its place here."""
    number_of_key: dict[str | int, int] = {}
    """Numbers of items by each id or index that can identify them."""
    items_with_text: frozenset[int] = frozenset()
    """Numbers of items whose newest part contains text."""
    pieces: dict[int, TextChain] = {}
    """Arguments of calls, by item."""
    call_heads: dict[int, tuple[str, str | None]] = {}
    """Name and id at the start of each call, by item."""
    in_text: bool = False
    """True inside a text that is shown to the user."""
    done_count: int = 0
    """Number of items that are done."""
    done_calls: frozenset[int] = frozenset()
    """Numbers of calls that are done."""

    def decode(self, frame: Frame) -> Decoded | None:
        """Decode an event.

        Nearly all events are a piece of text in a part that already holds some, so these are parsed by their schema.
        """
        data = frame.data
        if data is None:
            return Decoded(keep_alive=True)
        if self.in_text and not self.drop:
            try:
                event = _decode_text(data)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                pass
            else:
                is_last_item = self.number_of_key.get(event.item_id or "") == len(self.items) - 1
                if event.delta and not event.logprobs and is_last_item:
                    return Decoded((TextDelta(event.delta),))
        return self._decode_any(frame, data)

    def _decode_any(self, frame: Frame, data: bytes) -> Decoded | None:
        # Step 1: handle values that are not events.
        value = object_of(data)
        if value is None or not isinstance(value.get("type"), str):
            if value and is_error(value):
                return _make_decoded([*_decode_failure({**value, "type": "error"})], frame, frame)
            return Decoded(ends=True) if data.strip() == b"[DONE]" else None
        received = frame
        frame, value = drop_frame_fields(frame, value, self.drop - _REQUIRED_FIELDS, FRAMING)
        type_, names_item = value["type"], bool(value.keys() & {"item_id", "item", "output_index"})
        # Step 2: decode items that had no start event.
        if events := self._decode_unannounced_items(value, type_):
            return _make_decoded(events, frame, received)
        # Step 3: register a new item; text outside of a message starts one as well.
        in_message = names_item and self._get_item_type(value) == "message"
        if type_ == ITEM_ADDED or (type_ == TEXT_DELTA and not in_message):
            item_type = str(part_of(value, "item").get("type") or "message")
            self.number_of_key = {**self.number_of_key, **dict.fromkeys(_list_item_keys(value), len(self.items))}
            self.items = (*self.items, item_type)
        if not (names_item or "sequence_number" in value or type_.startswith("response.") or type_ in _FAILURE_EVENTS):
            return None
        # Step 4: decode the event.
        kind = self._get_item_type(value) if names_item else ""
        events = [*self._decode_event(value, self._find_item(value), kind)]
        return _make_decoded(events, frame, received, clean=type_ not in END_EVENTS or _is_clean(value))

    def _decode_unannounced_items(self, value: Json, type_: str) -> list[Delta | FrameMetadata]:
        """Decode the items of an event that had no start event; empty if it has none.

        For an event that ends the reply, its other content is included.
        """
        if type_ == ITEM_DONE:
            is_known = any(key in self.number_of_key for key in _list_item_keys(value))
            is_new = not is_known and self.done_count == len(self.items)
            self.done_count += 1
            items = [part_of(value, "item")] if is_new else []
        elif type_ in END_EVENTS:
            items = find_remaining_items(part_of(value, "response").get("output"), self.items)
        else:
            items = []
        events: list[Delta | FrameMetadata] = [self._end_text()] if items and self.in_text else []
        for item in items:
            events += decode_item(item, len(self.items), self.form, self._count_calls(len(self.items)))
            self.done_calls |= {len(self.items)}
            self.items = (*self.items, str(item.get("type") or "message"))
        if items and type_ in END_EVENTS:
            return [*events, *self._decode_response(value, type_)]
        return [*events, *_find_unread_fields(value, type_)] if items else events

    def _count_calls(self, number: int) -> int:
        """Count the calls before an item."""
        return sum(map(is_call, self.items[:number]))

    def _find_item(self, value: Json) -> int:
        """Return the number of the item that an event belongs to: the last item, if the event names none."""
        return next(
            (self.number_of_key[key] for key in _list_item_keys(value) if key in self.number_of_key),
            len(self.items) - 1,
        )

    def _get_item_type(self, value: Json) -> str:
        return self.items[self._find_item(value)] if self.items else ""

    def _decode_event(self, value: Json, number: int, kind: str) -> Iterator[Delta | FrameMetadata]:
        """Decode an event of item `number` of type `kind`; `kind` is empty for an event of the whole reply."""
        type_, (name, _, action) = value["type"], value["type"].rpartition(".")
        # A place of -1 differs from every number at the client, so the frame is re-encoded (`encoder.FrameTracker`).
        place = number if value.get("output_index") == number else -1
        # Step 1: decode errors and calls.
        if type_ in _FAILURE_EVENTS:
            yield from _decode_failure(value)
            return
        if self.in_text and type_ == ITEM_ADDED:
            yield self._end_text()
        if is_call(kind):
            yield from self._decode_call(value, number, kind)
            return
        # Step 2: pass on an event that only this API knows.
        is_item_event = type_ in (ITEM_ADDED, ITEM_DONE)
        if type_ not in _FIELDS_OF_EVENT or (is_item_event and kind not in ("message", "reasoning")):
            yield from _make_event_origins(value, number, kind)
            return
        # Step 3: decode a known event of the reply, a message or reasoning.
        known = {key: entry for key, entry in value.items() if _is_known_field(type_, key, entry)}
        if type_ == "keepalive":
            yield Origin(NAME, "event", (None, known), harmless=True)
        elif "response" in _FIELDS_OF_EVENT[type_]:
            yield from self._decode_response(value, type_)
        elif type_ == ITEM_ADDED:
            item = part_of(value, "item")
            is_empty = not item.get("content") and not item.get("summary")
            has_required = "summary" in item if kind == "reasoning" else item.get("role") == "assistant"
            is_valid = isinstance(item.get("id"), str) and is_empty and has_required
            yield from _decode_start(kind, number, str(item.get("id") or ""), "item", place if is_valid else -1, item)
        elif name in _PART_EVENTS and action == "added":
            self.items_with_text -= {number}
            part = part_of(value, "part")
            is_valid = place == number and isinstance(part.get("type"), str)
            at = value.get("content_index", value.get("summary_index")) if is_valid else -1
            yield from _decode_start(kind, number, str(value.get("item_id") or ""), "part", at, part)
        elif action == "delta":
            yield from self._decode_text_delta(value, number, type_)
        elif type_ == ITEM_DONE:
            item = part_of(value, "item")
            yield from _decode_end("item", number, item)
            if kind == "reasoning" and isinstance(item.get("encrypted_content"), str):
                yield Seal(encrypted=item["encrypted_content"], calls=self._count_calls(number))
        elif name in _PART_EVENTS:
            yield from _decode_end("part", number, part_of(value, "part"))
        elif action == "done":
            text = _get_string(value.get("text", value.get("refusal")))
            is_reasoning = f"{name}.delta" in _REASONING_DELTAS
            if number not in self.items_with_text and text and not is_reasoning:  # the server sent no deltas
                yield from self._decode_text_delta({"delta": text}, number, f"{name}.delta")
            if self.in_text and not is_reasoning:
                yield self._end_text()
            yield Origin(NAME, "text_done", (number, text), harmless=True)
        else:
            cited = read_url_citation(part_of(value, "annotation"))
            lost = "" if cited else "annotations"
            yield Origin(NAME, "annotation", (number, known), harmless=True, lost=lost, citations=cited)
        # Step 4: find the fields that were not decoded.
        yield from _find_unread_fields(value, type_)

    def _end_text(self) -> BlockEnd:
        self.in_text = False
        return BlockEnd()

    def _decode_text_delta(self, value: Json, number: int, type_: str) -> Iterator[Delta | FrameMetadata]:
        text = _get_string(value.get("delta"))
        if text:
            self.items_with_text |= {number}
        if type_ in _REASONING_DELTAS:
            yield ReasoningDelta(text)
        else:
            self.in_text = self.in_text or bool(text)
            yield TextDelta(text, refusal=type_ != TEXT_DELTA)
            if value.get("logprobs") and isinstance(value["logprobs"], list):
                yield Origin(NAME, "logprobs", value["logprobs"], harmless=True)
        if not text:
            yield Origin(NAME, "empty_text", None, harmless=True)

    def _decode_call(self, value: Json, number: int, kind: str) -> Iterator[CallDelta | Origin]:
        """Decode an event of a call. The raw input of a custom tool is re-encoded as JSON, piece by piece."""
        type_, item = value["type"], part_of(value, "item")
        in_order = value.get("output_index") == number and self._find_item(value) == number
        events, field = CALL_KINDS.get(kind, ("", ""))
        raw = field == "input"
        if type_ == ITEM_ADDED:
            id_ = text_at(item, "call_id") or text_at(item, "id")
            name = name_of(item, self.form) if events else kind.removesuffix("_call")
            clean = in_order and is_clean(item, _CLEAN_CALL[field]) and is_as_declared(item, self.form)
            self.call_heads = {**self.call_heads, number: (name, id_)}
            yield CallDelta(number, id_, name, '{"input": "' if raw else "", item, clean=clean)
        elif not events:
            yield CallDelta(number, arguments=render_action(item) if type_ == ITEM_DONE else "", source=item or None)
        elif type_ == f"response.{events}.delta":
            yield from _find_wrong_types({"delta": value.get("delta")})
            yield self._add_piece(number, _get_string(value.get("delta")), in_order, raw)
        elif type_ in (f"response.{events}.done", ITEM_DONE):
            # The event repeats all arguments: send the rest of them, and re-encode the frame if they differ.
            is_item_done = type_ == ITEM_DONE
            so_far, repeated = join_chain(self.pieces.get(number)), value.get(field) or item.get(field)
            whole = _get_string(repeated) if raw else format_arguments(repeated)
            rest = whole.removeprefix(so_far) if whole.startswith(so_far) else ""
            is_same = not whole or so_far + rest == whole or _is_same_json(so_far, whole)
            has_own_name = is_item_done or split_namespace(value, self.form) is value
            clean = in_order and is_same and isinstance(repeated, str | None) and has_own_name
            name, is_same_head = self._compare_call_head(item or value, number, is_item=is_item_done)
            piece = self._add_piece(number, rest, clean and is_same_head, raw)
            complete = item.get("status") != "incomplete" if is_item_done else None
            text = piece.arguments
            if raw and complete:
                text += '"}'  # the end of the JSON around the raw input
            if is_item_done:
                self.done_calls |= {number}
            last = is_item_done or not raw
            yield replace(piece, name=name, arguments=text, source=item or None, last=last, complete=complete)
            if not is_item_done:
                yield Origin(NAME, "text_done", (number, whole), harmless=True)
        else:
            yield Origin(NAME, "event", (number, value))

    def _compare_call_head(self, item: Json, number: int, *, is_item: bool) -> tuple[str, bool]:
        """Return the name of a call that started without one, and whether its end matches its start."""
        name, (begun, id_) = name_of(item, self.form), self.call_heads.get(number, ("", None))
        if not begun and name:
            self.call_heads = {**self.call_heads, number: (name, id_)}
            return name, False
        if not is_item:
            return "", not name or name == begun
        return "", name == begun and item.get("call_id", id_) == id_

    def _add_piece(self, number: int, piece: str, clean: bool, raw: bool) -> CallDelta:
        self.pieces = {**self.pieces, number: (self.pieces.get(number), piece)} if piece else self.pieces
        return CallDelta(number, arguments=json.dumps(piece, ensure_ascii=False)[1:-1] if raw else piece, clean=clean)

    def _decode_response(self, value: Json, type_: str) -> Iterator[Delta | FrameMetadata]:
        response = part_of(value, "response")
        id_, model = str(response.get("id") or ""), str(response.get("model") or "")
        known = {key: value for key, value in response.items() if key in _FIELDS_OF_OBJECT["response"]}
        if type_ not in END_EVENTS and known.get("output"):
            del known["output"]  # the reply has no content yet, so this is an unknown field
        if type_ in END_EVENTS:
            finish = self._decode_finish(response, type_)
            yield from self._complete_calls(response.get("output"), complete=finish.reason not in CUT_OFF)
            yield finish
            yield from decode_usage(response.get("usage"))
            yield Origin(NAME, "end", (0, known), harmless=True)
            yield from self._find_unknown_output_fields(response.get("output"))
        elif type_ == "response.created":
            number = value.get("sequence_number")
            own = Origin(NAME, "head", (number if isinstance(number, int) else None, known), harmless=True)
            yield Start(id_, model, count_of(response, "created_at"), own=own)
        else:
            yield Origin(NAME, "status", (0, {"type": type_, "id": id_}), harmless=True)
        kind = "end" if type_ in END_EVENTS else "head"
        yield from (Origin(NAME, f"{kind}.{key}", value) for key, value in response.items() if key not in known)

    def _find_unknown_output_fields(self, output: Any) -> Iterator[Origin]:
        """Find unknown fields in the items that the last event repeats."""
        items, others = split_entries(output)
        if others:
            yield Origin(NAME, f"{WRONG_TYPE}.output", None)
        for item in items:
            if item.get("type") in ("message", "reasoning"):
                unknown = [*(item.keys() - _FIELDS_OF_OBJECT["item"]), *_list_unknown_part_fields(item)]
                yield from (Origin(NAME, f"output.{key}", None) for key in unknown)

    def _complete_calls(self, output: Any, *, complete: bool) -> Iterator[CallDelta]:
        """Complete the calls that are not done from their copies in the last event; a call without a copy is cut.

        Some servers send the arguments, the name or the id of a call in their last event only.
        """
        repeated: dict[int, Json] = {}
        listed = output if isinstance(output, list) else []
        for place, item in enumerate(listed):
            if isinstance(item, Mapping) and str(item.get("type")) in CALL_KINDS:
                keys = (text_at(item, "call_id"), text_at(item, "id"), place)
                key = next((key for key in keys if key in self.number_of_key), None)
                repeated.setdefault(place if key is None else self.number_of_key[key], item)
        for number, kind in enumerate(self.items):
            if kind in CALL_KINDS and number not in self.done_calls:
                yield self._complete_call(number, kind, repeated.get(number, {}), complete=complete)

    def _complete_call(self, number: int, kind: str, item: Json, *, complete: bool) -> CallDelta:
        """Return the rest of a call that its repeated item adds to the received pieces, which are never changed."""
        raw = kind == "custom_tool_call"
        so_far, whole = join_chain(self.pieces.get(number)), text_at(item, CALL_KINDS[kind][1]) or ""
        is_known = item.get("type") == kind and whole.startswith(so_far)
        complete = complete and is_known and item.get("status") != "incomplete"
        piece = self._add_piece(number, whole.removeprefix(so_far) if is_known else "", False, raw)
        begun, id_ = self.call_heads.get(number, ("", None))
        name = name_of(item, self.form) if is_known and not begun else ""
        id_ = (text_at(item, "call_id") if is_known else None) or id_
        ends = '"}' if raw and complete else ""
        return replace(piece, name=name, id=id_, arguments=piece.arguments + ends, last=True, complete=complete)

    def _decode_finish(self, response: Json, type_: str) -> Finish:
        """Decode the end of a reply.

        Some servers report a reply that was cut off as complete; then it is recognized by its length. If an event has
        no status, its type implies it.
        """
        why = str(part_of(response, "incomplete_details").get("reason") or "")
        status = str(response.get("status") or type_.removeprefix("response."))
        status = "incomplete" if why and not response.get("status") else status
        used = part_of(response, "usage").get("output_tokens")
        reason: Reason = "other"  # the API reports calls with the same status, so they do not change the reason
        max_tokens = self.form.max_tokens
        if status != "completed":
            reason = _INCOMPLETE_REASONS.get(why, "failed") if status == "incomplete" else "failed"
        elif max_tokens and isinstance(used, int) and used >= max_tokens:
            reason = "length"
        return Finish(reason, native_reason=f"{status} ({why})" if why else status)


def _is_clean(value: Json) -> bool:
    """True if the calls repeated in the last event have the fields that clients rely on."""
    output = part_of(value, "response").get("output")
    items = [item for item in output if isinstance(item, Mapping)] if isinstance(output, list) else []
    return all(is_clean(item, _CLEAN_REPEATED_CALL) for item in items if str(item.get("type")) in CALL_KINDS)


def _make_decoded(
    events: Sequence[Delta | FrameMetadata], frame: Frame, received: Frame, *, clean: bool = True
) -> Decoded:
    deltas = tuple(event for event in events if not isinstance(event, _METADATA_TYPES))
    metadata = tuple(event for event in events if isinstance(event, _METADATA_TYPES))
    return Decoded(deltas, metadata, None if frame is received else frame, clean=clean)


def _is_known_field(type_: str, key: str, value: Any) -> bool:
    """True for a field of a known event that is decoded or in which no client finds a call."""
    return key in _FIELDS_OF_EVENT[type_] or (key in _COMMON_FIELDS and not isinstance(value, dict | list))


def _find_unread_fields(value: Json, type_: str) -> Iterator[Origin]:
    """Find the unknown fields of a known event, and fields that are not decoded because of their type."""
    known = {key: entry for key, entry in value.items() if _is_known_field(type_, key, entry)}
    yield from (Origin(NAME, f"event.{key}", entry) for key, entry in value.items() if key not in known)
    yield from _find_wrong_types(known)


def _decode_failure(value: Json) -> Iterator[Failure | Origin]:
    """Decode an error and the unknown fields of its event."""
    yield read_failure(value)
    response = part_of(value, "response")
    unknown = [*(value.keys() - {*_ERROR_FIELDS, *_COMMON_FIELDS})]
    unknown += response.keys() - _FIELDS_OF_OBJECT["response"]
    if value.get("response") and not response:  # a value of a wrong type
        unknown.append("response")
    if response.get("output"):
        unknown.append("output")
    yield from (Origin(NAME, f"failed.{key}", None) for key in unknown)


def _decode_start(kind: str, number: int, id_: str, place: str, at: Any, fields: Json) -> Iterator[FrameMetadata]:
    """Decode the start of an item or of a part."""
    known = {key: value for key, value in fields.items() if key in _FIELDS_OF_OBJECT[place]}
    own = Origin(NAME, place, (at, known), harmless=True)
    yield BlockStart("reasoning" if kind == "reasoning" else "text", number, id_, own=own)
    yield from (Origin(NAME, f"{place}.{key}", value) for key, value in fields.items() if key not in known)
    if place == "part" and isinstance(fields.get("type"), str) and fields["type"] not in PART_KINDS:
        yield Origin(NAME, "unknown_part", None)


def _list_unknown_part_fields(item: Json) -> list[str]:
    """List the unknown fields of an item's parts, and the lists that hold anything but parts."""
    unknown: list[str] = []
    for name in ("content", "summary"):
        parts, others = split_entries(item.get(name))
        unknown += [key for part in parts for key in part if key not in _FIELDS_OF_OBJECT["part"]]
        if others:
            unknown.append(name)
    return unknown


def _decode_end(place: str, number: int, fields: Json) -> Iterator[Origin]:
    """Decode the end of an item or of a part."""
    known = {key: value for key, value in fields.items() if key in _FIELDS_OF_OBJECT[place]}
    yield from (Origin(NAME, f"output.{key}", None) for key in _list_unknown_part_fields(fields))
    yield Origin(NAME, f"{place}_done", (number, known), harmless=True)
    yield from (Origin(NAME, f"{place}_done.{key}", value) for key, value in fields.items() if key not in known)


def _list_item_keys(value: Json) -> list[str | int]:
    """List the ids and the index that identify the item of an event, the most reliable first."""
    item = part_of(value, "item")
    names = (value.get("item_id"), item.get("id"), item.get("call_id"), value.get("output_index"))
    return [name for name in names if isinstance(name, str | int)]


def _make_event_origins(value: Json, number: int, kind: str) -> Iterator[Origin]:
    """Pass on an event that only this API knows, and its objects and lists as unknown fields.

    The event is harmless if it belongs to an item that the server runs.
    """
    type_ = value["type"]
    if type_ in (ITEM_ADDED, ITEM_DONE):
        has_kind = part_of(value, "item").get("type") == kind  # an item that changes its type may be a call
    else:
        has_kind = type_.startswith(f"response.{kind.partition('_')[0]}")
    harmless = kind in SERVER_KINDS and has_kind
    plain = {key: entry for key, entry in value.items() if key == "item" or not isinstance(entry, dict | list)}
    yield Origin(NAME, "event", (number if kind else None, plain), harmless=harmless, lost=kind or type_)
    yield from (Origin(NAME, f"event.{key}", entry) for key, entry in value.items() if key not in plain)


def _find_wrong_types(fields: Json) -> Iterator[Origin]:
    """Find the fields of an event whose values have a wrong JSON type, so that they are not decoded."""
    for key, value in fields.items():
        if value is not None and not isinstance(value, _TYPE_OF_FIELD.get(key, object)):
            yield Origin(NAME, f"{WRONG_TYPE}.{key}", value)


def _get_string(text: Any) -> str:
    return text if isinstance(text, str) else ""


def _is_same_json(text: str, other: str) -> bool:
    """True if two texts are the same JSON."""
    try:
        return bool(json.loads(text) == json.loads(other))
    except ValueError:
        return False
