r"""Decoding of Anthropic Messages replies, which are streams of events. A whole reply is first unfolded to a stream.

    {"type": "message_start", "message": {"id": "msg_1", "content": [], …}}
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    {"type": "content_block_stop", "index": 0}
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": …, "name": …, "input": {}}}
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"path"}}
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {…}}
    {"type": "message_stop"}

Blocks of other types, with their deltas and ends, are passed on as whole events (`Origin`). Some servers let blocks
overlap, or write text into the block of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.anthropic_messages.reply import DELTA, FRAMING, NAME, START, STOP, STOP_REASON_TABLE, WEB_CITATION
from vtc.apis.calls import format_arguments
from vtc.apis.clean import HOLLOW, MISSING, WRITTEN, Table, get_text, is_clean
from vtc.apis.contract import Decoded, Json
from vtc.apis.fields import count_of, drop_frame_fields, is_error, object_of, part_of
from vtc.events import (
    BlockEnd,
    BlockStart,
    CallDelta,
    Citation,
    Delta,
    Failure,
    Finish,
    Origin,
    ReasoningDelta,
    Seal,
    Start,
    TextDelta,
    Usage,
)
from vtc.wire.framing import Frame
from vtc.wire.sse import EventStream

_REQUIRED_FIELDS = {
    *("type", "index", "role", "stop_reason", "error", "message", "content", "content_block", "delta"),
}
"""Fields that a reply cannot do without; they are never dropped."""
_SERVER_TOOLS = ("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution")
_HARMLESS_BLOCKS = {
    *(f"{tool}_tool_result" for tool in (*_SERVER_TOOLS, "tool_search", "mcp", "advisor")),
    *("mcp_tool_result", "server_tool_use", "mcp_tool_use", "container_upload", "compaction"),
}
"""Blocks that hold no call for the client: the server has already run the calls that they describe."""
_KNOWN_FIELDS = {
    START: {"type", "index", "content_block"},
    DELTA: {"type", "index", "delta"},
    STOP: {"type", "index"},
    "message_start": {"type", "message"},
    "message_delta": {"type", "delta", "usage", "context_management"},
    "error": {"type", "error", "request_id"},
    "content_block": {"type", "text", "citations", "thinking", "signature", "data"},
    "text_delta": {"type", "text"},
    "thinking_delta": {"type", "thinking"},
    "signature_delta": {"type", "signature"},
    "input_json_delta": {"type", "partial_json"},
    "delta": {"stop_reason", "stop_sequence", "stop_details", "container"},
    "message": {
        *("id", "type", "role", "model", "usage", "stop_reason", "stop_sequence", "stop_details"),
        *("container", "context_management"),
    },
}
"""Known fields of each event and of the objects inside events."""

_DELTAS_OF_BLOCK = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}
"""The deltas of the blocks of every reply. Clients fail at others of these, and at a delta of a block without start."""
_BLOCK_DELTAS = {delta for deltas in _DELTAS_OF_BLOCK.values() for delta in deltas}

_CLEAN_CALL: Table = {"id": (WRITTEN,), "name": (WRITTEN,), "input": (MISSING, HOLLOW)}
"""The kinds of value in a clean start of a call.

It has no arguments: some clients drop those in the start, others join them with the deltas that follow.
"""


class _TextBlock(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text_delta"):
    text: str


class _ThinkingBlock(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="thinking_delta"):
    thinking: str


class _ContentDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag=DELTA):
    index: int
    delta: _TextBlock | _ThinkingBlock


_decode_content_delta = msgspec.json.Decoder(_ContentDelta).decode


class Decoder(msgspec.Struct):
    """Decoder of a streamed reply; fields named in `drop` are removed."""

    framing: ClassVar[EventStream] = FRAMING

    drop: frozenset[str] = frozenset()
    begun: bool = False
    """True once the message has started."""
    block_types: dict[int, str] = {}
    """Types of the open blocks, by number."""
    current_block: int | None = None
    """Number of the newest block; None after its end."""
    initial_inputs: dict[int, Any] = {}
    """By block, the arguments in the start of a call (usually an empty object); None once a delta brought others."""
    usage: Json = {}
    call_count: int = 0
    """Number of calls that have started."""

    def decode(self, frame: Frame) -> Decoded | None:
        """Decode an event.

        Nearly all events are a piece of text or thinking, so these are parsed by a schema that has only their fields.
        """
        data = frame.data
        if data is None:
            return Decoded(keep_alive=True)
        if not self.drop:
            try:
                piece = _decode_content_delta(data)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                return self._decode_any(frame, data)
            if piece.index == self.current_block:
                kind, delta = self.block_types[piece.index], piece.delta
                if isinstance(delta, _TextBlock):
                    if kind == "text" and delta.text:
                        return Decoded((TextDelta(delta.text),))
                elif kind == "thinking" and delta.thinking:
                    return Decoded((ReasoningDelta(delta.thinking),))
        return self._decode_any(frame, data)

    def _decode_any(self, frame: Frame, data: bytes) -> Decoded | None:
        event = object_of(data)
        if event is None or not isinstance(event.get("type"), str):
            if event and is_error(event):
                return self._decode_event({**event, "type": "error"})
            return Decoded(ends=True) if data.strip() == b"[DONE]" else None
        received = frame
        frame, event = drop_frame_fields(frame, event, self.drop - _REQUIRED_FIELDS, self.framing)
        decoded = self._decode_event(event)
        return decoded if frame is received else replace(decoded, frame=frame)

    def _decode_event(self, event: Json) -> Decoded:
        number = event.get("index")
        match event["type"]:
            case "ping":
                return Decoded(keep_alive=True)
            case "message_start":
                message = part_of(event, "message")
                self.usage = {**self.usage, **part_of(message, "usage")}
                if self.begun:
                    return Decoded(dropped="a second message_start")
                self.begun = True
                known = {*_KNOWN_FIELDS["message"], *(() if message.get("content") else ("content",))}
                own = Origin(NAME, "message_start", event, harmless=_is_known(event) and message.keys() <= known)
                return Decoded((), (Start(str(message.get("id") or ""), str(message.get("model") or ""), own=own),))
            case "content_block_start" if isinstance(number, int):
                return self._decode_block_start(event, number, part_of(event, "content_block"))
            case "content_block_delta" if isinstance(number, int):
                return self._decode_block_delta(event, number, part_of(event, "delta"))
            case "content_block_stop" if isinstance(number, int):
                return self._decode_block_stop(event, number)
            case "message_delta":
                return self._decode_message_delta(event, part_of(event, "delta"))
            case "message_stop":
                return Decoded(ends=True)
            case "error":
                error = part_of(event, "error")
                harmless = _is_known(event) and error.keys() <= {"type", "message", "details"}
                own = Origin(NAME, "error", event, harmless=harmless)
                return Decoded((Failure(str(error.get("message") or ""), str(error.get("type") or ""), own=own),))
        return Decoded((), (Origin(NAME, event["type"], event),))

    def _decode_block_start(self, event: Json, number: int, block: Json) -> Decoded:
        kind = str(block.get("type") or "")
        self.block_types, self.current_block = {**self.block_types, number: kind}, number
        harmless = _is_known(event) and block.keys() <= _KNOWN_FIELDS["content_block"]
        own = Origin(NAME, kind, event, harmless=harmless)
        match kind:
            case "text":
                return Decoded((TextDelta(str(block.get("text") or "")),), (BlockStart("text", number, own=own),))
            case "thinking":
                seal = (Seal(str(block["signature"]), calls=self.call_count),) if block.get("signature") else ()
                thought = ReasoningDelta(str(block.get("thinking") or ""))
                return Decoded((thought,), (BlockStart("reasoning", number, own=own), *seal))
            case "redacted_thinking":
                metadata = (
                    BlockStart("reasoning", number, own=own),
                    Seal(encrypted=str(block.get("data") or ""), calls=self.call_count),
                )
                return Decoded((TextDelta(""),), metadata)
            case "tool_use":
                self.initial_inputs = {**self.initial_inputs, number: block.get("input", "")}
                self.call_count += 1
                clean = is_clean(block, _CLEAN_CALL)
                call = CallDelta(
                    number, get_text(block.get("id")) or None, get_text(block.get("name")), source=block, clean=clean
                )
                return Decoded((call,), (*_find_unknown_fields(event),))
        # An empty delta, because the block completes the text before it.
        own = Origin(NAME, kind, event, harmless=kind in _HARMLESS_BLOCKS and _is_known(event), lost=kind)
        return Decoded((TextDelta(""),), (own,))

    def _decode_block_delta(self, event: Json, number: int, delta: Json) -> Decoded:
        kind, delta_type = self.block_types.get(number, ""), str(delta.get("type") or "")
        unknown = (*_find_unknown_fields(event, delta),)
        fits = delta_type in _DELTAS_OF_BLOCK.get(kind, (delta_type,))
        # `other_block` tells the encoder that the delta arrived in a block where it does not belong.
        place = () if fits and number == self.current_block else (Origin(NAME, "other_block", number),)
        match kind, delta_type:
            case _, "text_delta":
                text = TextDelta(str(delta.get("text") or ""))
                if text.text or place:
                    return Decoded((text,), (*place, *unknown))
            case _, "thinking_delta" if delta.get("thinking"):
                return Decoded((ReasoningDelta(str(delta["thinking"])),), (*place, *unknown))
            case "thinking" | "text", "signature_delta" if number == self.current_block:
                seal = Seal(str(delta.get("signature") or ""), calls=self.call_count)
                return Decoded((), (seal, *place, *unknown))
            case "tool_use", "input_json_delta":
                arguments = str(delta.get("partial_json") or "")
                if arguments and self.initial_inputs.get(number) is not None:
                    self.initial_inputs = {**self.initial_inputs, number: None}
                return Decoded((CallDelta(number, arguments=arguments),), unknown)
        if number not in self.block_types or (delta_type in _BLOCK_DELTAS and not fits):
            return Decoded(dropped=f"{delta_type} outside of its block")
        # Other deltas are passed on. One is harmless if it is of text, or belongs to a block that holds no call.
        is_known_type = delta_type == "citations_delta" or delta_type in _KNOWN_FIELDS
        is_harmless_delta = is_known_type and delta_type != "input_json_delta" and not unknown
        harmless = _is_known(event) and (kind in _HARMLESS_BLOCKS or is_harmless_delta)
        cited = _read_citation(part_of(delta, "citation")) if delta_type == "citations_delta" else ()
        lost = "citations" if delta_type == "citations_delta" and not cited else ""
        own = Origin(NAME, delta_type or DELTA, event, harmless=harmless, lost=lost, citations=cited)
        return Decoded((), (own,))

    def _decode_block_stop(self, event: Json, number: int) -> Decoded:
        kind = self.block_types.get(number, "")
        self.block_types = {key: kind for key, kind in self.block_types.items() if key != number}
        is_current = number == self.current_block
        if is_current:
            self.current_block = None
        unknown = (*_find_unknown_fields(event),)
        if kind == "text" and is_current:
            return Decoded((BlockEnd(),), unknown)
        deltas: tuple[Delta, ...] = ()
        if kind == "tool_use":
            deltas = (replace(self._make_initial_arguments(number), last=True),)
            self.initial_inputs = {key: input_ for key, input_ in self.initial_inputs.items() if key != number}
        return Decoded(
            deltas, (Origin(NAME, "stop", {"type": STOP, "index": number}, harmless=True, ends=True), *unknown)
        )

    def _decode_message_delta(self, event: Json, delta: Json) -> Decoded:
        harmless = _is_known(event) and delta.keys() <= _KNOWN_FIELDS["delta"]
        reason = get_text(delta.get("stop_reason"))
        ends = reason or (self.call_count and "stop_reason" in delta)  # after a call, clients accept a null reason
        own = Origin(NAME, "message_delta", event, harmless=harmless, ends=bool(ends and not reason))
        metadata: list[Any] = [own]
        if usage := part_of(event, "usage"):
            self.usage = {**self.usage, **usage}
            metadata.append(_decode_usage(self.usage, Origin(NAME, "usage", usage, harmless=True)))
        if not ends:
            return Decoded((), (*metadata,))
        finish = Finish(STOP_REASON_TABLE[reason] if reason else "stop", native_reason=reason)
        # A call whose block has not ended and that received no arguments stays incomplete at the end of the message.
        unstreamed = [
            number
            for number, kind in self.block_types.items()
            if kind == "tool_use" and self.initial_inputs[number] is not None
        ]
        cut = [replace(self._make_initial_arguments(number), complete=False) for number in unstreamed]
        return Decoded((*cut, finish), (*metadata,))

    def _make_initial_arguments(self, number: int) -> CallDelta:
        """Make a delta of the arguments in the start of a call; they apply only if no delta brought others."""
        input_ = self.initial_inputs.get(number)
        return CallDelta(number, arguments=format_arguments(input_), clean=input_ != "")


def _is_known(event: Json) -> bool:
    """True if an event has only known fields, and its object fields hold objects."""
    objects = (event[key] for key in ("message", "content_block", "delta", "usage", "error") if key in event)
    return event.keys() <= _KNOWN_FIELDS[event["type"]] and all(isinstance(entry, dict | None) for entry in objects)


def _find_unknown_fields(event: Json, delta: Json | None = None) -> Iterator[Origin]:
    """Collect the fields of an event and of its delta that the API does not define."""
    more: dict[str, Any] = {key: value for key, value in event.items() if key not in _KNOWN_FIELDS[event["type"]]}
    known = _KNOWN_FIELDS.get(str(delta.get("type"))) if delta else None
    if delta and known and not delta.keys() <= known:
        more["delta"] = {key: value for key, value in delta.items() if key not in known}
    if more:
        yield Origin(NAME, "fields", more)


def _read_citation(fields: Json) -> tuple[Citation, ...]:
    """Decode the citation of a web page, which supports the whole of its block."""
    url, title, quote = (get_text(fields.get(key)) for key in ("url", "title", "cited_text"))
    return (Citation(url, title, quote),) if url and fields.get("type") == WEB_CITATION else ()


def _decode_usage(usage: Json, own: Origin) -> Usage:
    """Decode the token counts; the API counts cached tokens of the prompt separately."""
    cached = count_of(usage, "cache_read_input_tokens")
    written = count_of(usage, "cache_creation_input_tokens")
    prompt = count_of(usage, "input_tokens") + cached + written
    thoughts = count_of(part_of(usage, "output_tokens_details"), "thinking_tokens")
    return Usage(prompt, count_of(usage, "output_tokens"), cached, thoughts, written, own=own)
