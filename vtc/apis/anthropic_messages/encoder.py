"""Encoding of Anthropic Messages replies as a stream of events (`decoder.py` shows them).

One block is open at a time, and each call has a separate block. An empty text block is never started, because the
server would reject it when the client sends the conversation back.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.anthropic_messages.reply import (
    DELTA,
    FRAMING,
    NO_BLOCK,
    START,
    STOP,
    block_number_of,
    render_citation,
    render_error_event,
    render_stop,
    render_usage,
)
from vtc.apis.calls import JsonNesting, parse_object
from vtc.apis.contract import Json, ReplyEvent, TextChain, join_chain, list_chain
from vtc.apis.fields import count_of, part_of
from vtc.events import (
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    Citations,
    Failure,
    Finish,
    Origin,
    Reasoning,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.wire.sse import EventStream

type Queue = tuple[Queue, ReplyEvent] | None
"""Linked list of events, newest first: appending copies nothing."""


class OutgoingCall(msgspec.Struct, frozen=True):
    """The call, or native block, that is being sent."""

    number: int
    name: str
    id: str | None
    nesting: JsonNesting
    forwarded: TextChain = None
    """Argument pieces that were forwarded in their frames; parsed only when another event arrives between them."""

    def with_forwarded_pieces(self) -> OutgoingCall:
        """Return the call with its JSON nesting advanced over the forwarded pieces."""
        if not self.forwarded:
            return self
        return replace(self, nesting=self.nesting.advance(join_chain(self.forwarded)), forwarded=None)


class CallsInOrder(msgspec.Struct):
    """Serializes interleaved calls: the pieces of one call are contiguous, the delta with its name and id first.

    The first call is streamed as it arrives. All other events are queued until its arguments are complete; then the
    queued calls are sent in the order of their numbers. A block that only this API defines is handled like a call,
    and is complete at its stop event.
    """

    open: OutgoingCall | None = None
    begun: frozenset[int] = frozenset()
    """The server's numbers of all calls that have started; pieces without a name belong to them."""
    queue: Queue = None
    """Events that are buffered until the end of the call, and pieces of calls that have no name yet."""
    unnumbered: int = 0

    def follow(self, event: CallDelta | Origin) -> None:
        """Record a piece of a call, or an event of a native block, that was forwarded in its frame."""
        match event, self.open:
            case CallDelta(int() as number, name=name), _ if name:
                self.begun |= {number}
                self.open = OutgoingCall(number, name, event.id, JsonNesting(), (None, event.arguments))
            case CallDelta(number), OutgoingCall() as call if number == call.number:
                self.open = replace(call, forwarded=(call.forwarded, event.arguments))
            case Origin(value={"type": "content_block_start"}), _:
                self.open = OutgoingCall(block_number_of(event), "", None, JsonNesting())
            case Origin(value={"type": "content_block_stop"}), OutgoingCall(number) if number == block_number_of(event):
                self.open = None

    def feed(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """Accept the next event; yield the events that can be sent now."""
        self.open = self.open and self.open.with_forwarded_pieces()
        if isinstance(event, Start | Usage | Finish | Failure) or (
            isinstance(event, Origin) and block_number_of(event) == NO_BLOCK
        ):
            yield event  # outside of blocks, so never queued
        elif self.open and not self._continues(self.open, event):
            # An event for another block arrives inside the call: only a complete call can end here.
            if not self.open.nesting.is_whole:
                self.queue = self.queue, event
                return
            yield from self._end_call()
            yield from self.feed(event)
        elif isinstance(event, CallDelta):
            yield from self._feed_piece(event)
        else:
            yield event
            if isinstance(event, Origin) and event.value["type"] != DELTA:
                self.follow(event)
                if not self.open:
                    yield from self._end_call()

    def finish(self) -> Iterator[ReplyEvent]:
        """End the message: yield all queued events. Arguments of a call without a name become text."""
        while self.open or self.queue:
            if self.open:
                yield from self._end_call()
                continue
            entry, *rest = self._take_queued()
            self._enqueue(rest)
            if not isinstance(entry, CallDelta):
                yield from self.feed(entry)
            elif entry.name:
                yield from self._begin_call([entry], can_wait=False)
            elif entry.arguments:
                yield Text(entry.arguments)

    def _take_queued(self) -> list[ReplyEvent]:
        """Empty the queue and return its events in order."""
        queued, self.queue = list_chain(self.queue), None
        return queued

    def _enqueue(self, some: Iterable[ReplyEvent]) -> None:
        for event in some:
            self.queue = self.queue, event

    def _continues(self, call: OutgoingCall, event: ReplyEvent) -> bool:
        """True if an event belongs to the call that is being sent."""
        if not isinstance(event, CallDelta):
            return isinstance(event, Origin) and block_number_of(event) == call.number
        if event.index not in (None, call.number):
            return False
        if not event.name or (event.id and event.id == call.id):
            return True
        # A piece with a name of the same number starts another call if this one is complete, or its name must differ.
        is_identified = event.index is None or bool(event.id and call.id)
        return not call.nesting.is_whole and not (is_identified and event.name != call.name)

    def _feed_piece(self, piece: CallDelta) -> Iterator[ReplyEvent]:
        """Add a piece to the open call, or to one that starts as soon as its name and id are known."""
        if self.open:
            self.open = replace(self.open, nesting=self.open.nesting.advance(piece.arguments))
            yield CallDelta(self.open.number, arguments=piece.arguments)
            if self.queue and self.open.nesting.is_whole:
                yield from self._end_call()
        elif piece.index in self.begun and not piece.name:
            yield piece
        else:
            queued = self._take_queued()
            parts = [event for event in queued if isinstance(event, CallDelta) and event.index == piece.index]
            self._enqueue(event for event in queued if event not in parts)
            yield from self._begin_call([*parts, piece])

    def _begin_call(self, parts: Sequence[CallDelta], *, can_wait: bool = True) -> Iterator[ReplyEvent]:
        """Start a call, or queue its pieces until its name and id are known; without an id it starts when complete."""
        named = next((part for part in parts if part.name), parts[0])
        id_ = next((part.id for part in parts if part.id), None)
        arguments = "".join([part.arguments for part in parts])
        call = replace(named, id=id_, arguments=arguments)
        nesting = JsonNesting().advance(arguments)
        if can_wait and not (call.name and (call.id or nesting.is_whole)):
            self.queue = self.queue, call
            return
        number = call.index
        if number is None:
            self.unnumbered += 1
            number = NO_BLOCK - self.unnumbered
        self.begun |= {number}
        self.open = OutgoingCall(number, call.name, call.id, nesting)
        yield replace(call, index=number)

    def _end_call(self) -> Iterator[ReplyEvent]:
        """End the open call, and yield the events that were queued behind it."""
        self.open = None
        for entry in sorted(self._take_queued(), key=_queue_order):
            yield from self.feed(entry)


def _queue_order(event: ReplyEvent) -> int:
    """Return the sort key of a queued event: text and reasoning first, then blocks by number."""
    number = None
    if isinstance(event, Origin):
        number = block_number_of(event)
    elif isinstance(event, CallDelta):
        number = event.index
    return 0 if number in (None, NO_BLOCK) else number + 1


ADDED_BLOCK = -1
"""The number of a block that VTC adds: the server has none for it."""
_REASONING_FIELDS = {"thinking", "reasoning", "reasoning_content"}
"""Names in `drop` that hide reasoning."""
type DeferredEvent = BlockStart | BlockEnd | Origin


class ContentBlock(msgspec.Struct, frozen=True, gc=False):
    """An open block of text or reasoning."""

    kind: str
    number: int
    """The server's number."""
    index: int
    """The client's number."""
    unsigned: bool = False
    """True for reasoning without a `signature` field until one is sent, because clients require the field."""


class SentEvents(msgspec.Struct):
    """State of the client's stream: the blocks that it was sent, by the server's number and by its own.

    Forwarded frames are tracked here (`follow`), so that the encoder can continue after them. `thinks` is True if the
    request asked for thinking; `drop` names kinds of blocks to remove.
    """

    framing: ClassVar[EventStream] = FRAMING
    counts: ClassVar[bool] = False
    call_fields: ClassVar[frozenset[str]] = frozenset(("type", "id", "name", "input", "caller"))

    thinks: bool = False
    drop: frozenset[str] = frozenset()
    in_step: bool = True
    id: str = ""
    started: bool = False
    native: bool = False
    """True if the server speaks this API as well."""
    block_count: int = 0
    """Number of blocks that have started at the client, which is also the client's number of the next block."""
    open_indices: dict[int, int] = {}
    """The open blocks: the client's number by the server's."""
    open: ContentBlock | None = None
    deferred: tuple[DeferredEvent, ...] = ()
    """Starts and ends of blocks that are not yet sent to the client."""
    is_frame_deferred: bool = False
    """True if the relay buffers the frames of the deferred events."""
    calls: CallsInOrder = msgspec.field(default_factory=CallsInOrder)
    has_calls: bool = False
    has_refusal: bool = False
    blank: str = ""
    """White space that is buffered until text follows."""
    usage: Json = {}
    message_delta: Json = {}
    """The server's `message_delta` event; its other fields are sent with the stop reason."""
    finish: Finish | None = None
    """The end of the message, until it is sent."""
    finished: bool = False
    ended: bool = False

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        self.native = True
        # Step 1: if the client's numbers already differ from the server's, the frame must be re-encoded.
        if not self._is_aligned and Failure not in map(type, events):
            self.in_step = False
            return True
        # Step 2: defer the starts and ends of text blocks; track all other events. A frame without events has content.
        has_content, self.in_step = not events, True
        for event in events:
            match event:
                case BlockStart(number=number):
                    expected = self.block_count + sum(isinstance(earlier, BlockStart) for earlier in self.deferred)
                    self._compare_index(number if not self._is_hidden(event.kind) else ADDED_BLOCK, expected)
                    self._defer(event)
                case BlockEnd():
                    is_begun = any(isinstance(earlier, BlockStart) for earlier in self.deferred)
                    self.in_step = self.in_step and (is_begun or self.open is not None)
                    self._defer(event)
                case Origin(kind="other_block"):  # a delta of a block that is not the open one
                    self.in_step, has_content = False, True
                case Origin(kind="fields"):
                    pass
                case Origin():
                    has_content = self._follow_event(event) or has_content
                case Text(text) | ReasoningDelta(text) if not text:
                    pass
                case Seal(encrypted=data) if data and "redacted_thinking" in self.drop:
                    self.in_step = False
                case _:
                    has_content = True
                    self._mark_deferred_sent()
                    self._follow(event)
        if not events:
            self._mark_deferred_sent()
        self.started = self.started or has_content
        return has_content or not self.in_step

    @property
    def _is_aligned(self) -> bool:
        """True if nothing is queued, deferred events are buffered by the relay, and open blocks have equal numbers."""
        if self.calls.queue or (self.deferred and not self.is_frame_deferred):
            return False
        return all(number == index for number, index in self.open_indices.items())

    def _compare_index(self, number: int, index: int | None) -> None:
        self.in_step = self.in_step and number == index

    def _defer(self, event: DeferredEvent) -> None:
        self.deferred, self.is_frame_deferred = (*self.deferred, event), True

    def _mark_deferred_sent(self) -> None:
        """Record that the frames of the deferred events, which the relay buffered, are sent now."""
        for event in self.deferred:
            if isinstance(event, BlockStart):
                unsigned = event.kind == "reasoning" and bool(event.own) and "signature" not in _get_block(event)
                self.open = ContentBlock(event.kind, event.number, self._assign_index(event.number), unsigned)
            elif isinstance(event, BlockEnd) and self.open:
                self._remove_block(self.open.number)
        self.deferred = ()

    def _follow(self, event: ReplyEvent) -> None:
        open_ = self.open
        match event:
            case Start():
                self._record_message_start(event)
            case Text() | ReasoningDelta() | Seal():
                self._compare_index(*((open_.number, open_.index) if open_ else (ADDED_BLOCK, 0)))
                if open_ and isinstance(event, Seal):
                    self.open = replace(open_, unsigned=False)
            case CallDelta(int() as number, name=name) if name:
                self._compare_index(number, self._assign_index(number))
                self.open, self.has_calls = None, True
                self._follow_call(event)
            case CallDelta(int() as number):
                self._compare_index(number, self.open_indices.get(number))
                self._follow_call(event)
            case Usage():
                self.usage = event.own.value if event.own else {}
            case Finish():
                self.in_step, self.finished = self.in_step and not self.open_indices, True
            case Failure():
                self.ended = True

    def _follow_event(self, event: Origin) -> bool:
        """Record an API-specific event; False if it is deferred with the start of its block."""
        data, number = event.value, block_number_of(event)
        if data["type"] == DELTA and self._is_start_deferred(number):
            self._defer(event)
            return False
        self._mark_deferred_sent()
        self._follow_call(event)
        if data["type"] == START:
            self._compare_index(ADDED_BLOCK if self._is_hidden(event.kind) else number, self._assign_index(number))
            self.open = None
        elif data["type"] in (DELTA, STOP):
            self._compare_index(number, self.open_indices.get(number))
        if data["type"] == STOP:
            self._remove_block(number)
        return True

    def _follow_call(self, event: CallDelta | Origin) -> None:
        self.calls = copy.copy(self.calls)
        self.calls.follow(event)

    def _assign_index(self, number: int) -> int:
        """Assign the client's next number to a block of the server; in step only if no other block is open."""
        self.in_step = self.in_step and not self.open_indices
        index, self.block_count = self.block_count, self.block_count + 1
        self.open_indices = {**self.open_indices, number: index}
        return index

    def _remove_block(self, number: int) -> None:
        self.open_indices = {key: index for key, index in self.open_indices.items() if key != number}
        self.open = None if self.open and self.open.number == number else self.open

    def _is_start_deferred(self, number: int) -> bool:
        return any(isinstance(event, BlockStart) and event.number == number for event in self.deferred)

    def _is_hidden(self, kind: str) -> bool:
        """True if blocks of this kind are not sent to the client."""
        return kind in self.drop or (kind in _REASONING_FIELDS and bool(self.drop & _REASONING_FIELDS))

    def _record_message_start(self, start: Start) -> None:
        """Record the start of the message."""
        self.started, self.native = True, start.own is not None
        self.id = start.id if self.native and start.id else f"msg_{start.id or 'vtc'}"
        if start.own:
            usage = part_of(part_of(start.own.value, "message"), "usage")
            self.usage = {"output_tokens": count_of(usage, "output_tokens")}


_STARTS: dict[str, Json] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}


class Encoder(SentEvents):
    """Encoder of a streamed reply.

    If the request did not ask for thinking, only thinking blocks from a server of this API are shown.
    """

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        if choice:
            return []  # a message has only one choice
        # Step 1: encode the events: calls one after the other, and the ends of blocks after all other events.
        started = self.started
        self.deferred = _drop_empty_blocks(self.deferred)
        self.calls = copy.copy(self.calls)
        written = [
            event
            for item in sorted(events, key=_is_stop)
            for part in self.calls.feed(item)
            for event in self._encode(part)
        ]
        # Step 2: end the message. A server of another API may send its usage later, so that waits for `end`.
        if self.finish and self.native:
            written += self._finish_message()
        # Step 3: start the message before its first event, if the server has not.
        if written and not started and not self.started and written[0]["type"] not in ("ping", "error"):
            written = [*self._start_message(Start()), *written]
        self.is_frame_deferred = False
        # Step 4: add the unknown fields of the frame to its first delta.
        unknown = [event.value for event in events if isinstance(event, Origin) and event.kind == "fields"]
        first = next((place for place, event in enumerate(written) if event["type"] == DELTA), None)
        if unknown and first is not None:
            written[first] = {
                **written[first],
                **unknown[0],
                "delta": {**written[first]["delta"], **unknown[0].get("delta", {})},
            }
        return written

    def _encode(self, event: ReplyEvent) -> Iterator[Json]:
        if self.ended or (self.finished and not isinstance(event, Failure)):
            return
        match event:
            case Start():
                yield from self._start_message(event)
            case BlockStart() if not self._is_hidden(event.kind):
                self.deferred = _drop_empty_blocks((*self.deferred, event))
            case BlockEnd() if self.open or self.deferred:
                self.deferred = _drop_empty_blocks((*self.deferred, event))
            case Text(text) | Rewritten(text=text) | RefusalText(text) if text:
                self.has_refusal = self.has_refusal or isinstance(event, RefusalText)
                if text := self._buffer_blank_text(text):
                    yield from self._open_block("text")
                    yield self._make_delta("text", text)
            case Reasoning(text) | ReasoningDelta(text) if text and self._is_shown(event):
                yield from self._open_block("reasoning")
                yield self._make_delta("thinking", text)
            case Citations(entries) if self.open and self.open.kind == "text":
                for entry in entries:
                    yield {"type": DELTA, "index": self.open.index, "delta": render_citation(entry)}
            case Seal() if self._is_shown(event):
                yield from self._encode_seal(event)
            case Call(call=call) if not (self.native or _is_object_or_prefix(call.arguments)):
                yield from self._encode(Text(f"{call.name} {call.arguments}"))
            case Call(call=call):
                yield from self._start_call(CallDelta(ADDED_BLOCK, call.id, call.name, call.arguments, call.source))
                yield from self._close_blocks()
            case CallDelta(name=name) if name:
                yield from self._start_call(event)
            case CallDelta(number, arguments=arguments) if arguments and number in self.open_indices:
                yield self._make_arguments_delta(number, arguments)
            case Origin(kind="message_delta", value=data):
                if part_of(data, "delta").get("stop_reason") or self.has_calls:
                    self.message_delta = data
                else:
                    yield data
            case Origin(kind=kind) if kind not in ("other_block", "fields"):
                yield from self._encode_origin(event)
            case Usage():
                self.usage = event.own.value if event.own else render_usage(event)
            case Finish():
                self.finish = event
            case Failure():
                for part in self.calls.finish():
                    yield from self._encode(part)
                self.ended = self.in_step = True
                yield event.own.value if event.own else render_error_event(event)

    def _buffer_blank_text(self, text: str) -> str:
        """Buffer white space at the start of a text block, because Anthropic's server rejects blank blocks.

        Blocks of a server of this API keep it.
        """
        start = self._find_deferred_start("text")
        if (self.open and self.open.kind == "text" and start is None) or (start and start.own):
            return text
        text = self.blank + text
        self.blank = text if text.isspace() else ""
        return "" if self.blank else text

    def _start_message(self, start: Start) -> Sequence[Json]:
        if self.started:
            return []
        self._record_message_start(start)
        if start.own:
            return [start.own.value]
        head = {"id": self.id, "type": "message", "role": "assistant", "model": start.model, "content": []}
        rest = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        return [{"type": "message_start", "message": {**head, **rest}}]

    def _find_deferred_start(self, kind: str) -> BlockStart | None:
        """Find the start of a block that is not yet sent to the client."""
        return next((event for event in self.deferred if isinstance(event, BlockStart) and event.kind == kind), None)

    def _open_block(self, kind: str, block: Json | None = None) -> Iterator[Json]:
        """Ensure that a block of text or reasoning is open; `block` replaces the usual content of its start."""
        start = self._find_deferred_start(kind)
        if start is None and self.open and self.open.kind == kind:
            self.deferred = _drop_block_ends(self.deferred)
            return
        yield from self._close_blocks()
        number = start.number if start else ADDED_BLOCK
        self.open = ContentBlock(kind, number, self._assign_index(number))
        self.in_step = number == self.open.index
        own = start.own.value if start and start.own else {}
        block = {**_get_block(start), **(block or _STARTS[kind])}
        yield {"type": START, **own, "index": self.open.index, "content_block": block}
        if start:
            origins, self.deferred = [event for event in self.deferred if isinstance(event, Origin)], ()
            for origin in origins:
                if block_number_of(origin) == number:
                    yield {**origin.value, "index": self.open.index}

    def _make_delta(self, field: str, text: str) -> Json:
        assert self.open is not None
        self.in_step = self.open.number == self.open.index
        return {"type": DELTA, "index": self.open.index, "delta": {"type": f"{field}_delta", field: text}}

    def _close_blocks(self) -> Iterator[Json]:
        """End all blocks that are open at the client."""
        if self.open and self.open.unsigned:
            yield self._make_delta("signature", "")
        for index in self.open_indices.values():
            yield {"type": STOP, "index": index}
        self.open, self.open_indices, self.deferred = None, {}, _drop_block_ends(self.deferred)

    def _encode_seal(self, seal: Seal) -> Iterator[Json]:
        """Send a signature in the block of its reasoning; encrypted reasoning without text gets a separate block."""
        begins = self._find_deferred_start("reasoning") is not None
        is_open = self.open is not None and self.open.kind == "reasoning" and not begins
        if seal.encrypted and not is_open:
            if "redacted_thinking" not in self.drop:
                yield from self._open_block("reasoning", {"type": "redacted_thinking", "data": seal.encrypted})
                self.open = None
        elif seal.value and (is_open or begins):
            yield from self._open_block("reasoning")
            yield self._make_delta("signature", seal.value)
            self.open = self.open and replace(self.open, unsigned=False)

    def _encode_origin(self, event: Origin) -> Iterator[Json]:
        """Send an API-specific event with the client's number of its block."""
        data, number = event.value, block_number_of(event)
        if number == NO_BLOCK:
            yield data
        elif data["type"] == START:
            if not self._is_hidden(event.kind):
                yield from self._close_blocks()
                index = self._assign_index(number)
                self.in_step = number == index
                yield {**data, "index": index}
        elif data["type"] == DELTA and self._is_start_deferred(number):
            self.deferred = (*self.deferred, event)
        elif number in self.open_indices:
            self.in_step = number == self.open_indices[number]
            yield {**data, "index": self.open_indices[number]}
            if data["type"] == STOP:
                self._remove_block(number)

    def _start_call(self, call: CallDelta) -> Iterator[Json]:
        """Start the block of a call."""
        yield from self._close_blocks()
        number = ADDED_BLOCK if call.index is None else call.index
        index, self.has_calls = self._assign_index(number), True
        self.in_step = number == index
        id_ = call.id or "toolu_" + re.sub(r"[^A-Za-z0-9]", "", f"{self.id}{index}")
        source = call.source if isinstance(call.source, dict) and call.source.get("type") == "tool_use" else {}
        block = {**source, "type": "tool_use", "id": id_, "name": call.name, "input": {}}
        yield {"type": START, "index": index, "content_block": block}
        if call.arguments:
            yield self._make_arguments_delta(number, call.arguments)

    def _make_arguments_delta(self, number: int, arguments: str) -> Json:
        self.in_step = number == self.open_indices[number]
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return {"type": DELTA, "index": self.open_indices[number], "delta": delta}

    def _finish_message(self) -> Iterator[Json]:
        """End the open blocks, and send the stop reason."""
        for item in self.calls.finish():
            yield from self._encode(item)
        yield from self._close_blocks()
        end, self.finish, self.deferred = self.finish, None, ()
        if end and not self.finished:
            self.finished = self.in_step = True
            delta = part_of(self.message_delta, "delta")
            changes = render_stop(
                end, delta, has_calls=self.has_calls, has_refusal=self.has_refusal, native=self.native
            )
            used = {"usage": self.usage or part_of(self.message_delta, "usage") or {"output_tokens": 0}}
            event = {"type": "message_delta", **used, **self.message_delta, **used}
            yield {**event, "delta": {**delta, **changes}}

    def end(self) -> list[Json]:
        if self.ended or not self.started:
            return []
        in_step = self.in_step and not self.finish and self._is_aligned
        self.finish = self.finish or Finish("stop")
        self.calls = copy.copy(self.calls)
        written = [*self._finish_message(), {"type": "message_stop"}]
        self.ended, self.in_step = True, in_step
        return written

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def _is_shown(self, event: ReplyEvent) -> bool:
        """True if reasoning is sent to the client; reasoning split off from text only if it asked for thinking."""
        wanted = self.thinks or (self.native and not isinstance(event, Reasoning))
        return wanted and not self._is_hidden("reasoning")


def _is_stop(event: ReplyEvent) -> bool:
    """True for the end of a block, which is sent after the other events of its frame."""
    return isinstance(event, Origin) and block_number_of(event) != NO_BLOCK and event.value["type"] == STOP


def _is_object_or_prefix(arguments: str) -> bool:
    """True for an object or the start of one; clients accept the latter when the message was cut off."""
    begun = arguments.lstrip().startswith("{") and JsonNesting().advance(arguments).is_cut
    return begun or parse_object(arguments) is not None


def _get_block(start: BlockStart | None) -> Json:
    """Return the `content_block` of a start from this API; empty for a start from another one."""
    return part_of(start.own.value, "content_block") if start and start.own else {}


def _drop_block_ends(events: Iterable[DeferredEvent]) -> tuple[DeferredEvent, ...]:
    return tuple(event for event in events if not isinstance(event, BlockEnd))


def _drop_empty_blocks(events: Iterable[DeferredEvent]) -> tuple[DeferredEvent, ...]:
    """Remove the starts and ends of blocks that ended without text, since they need not be sent."""
    kept: list[DeferredEvent] = []
    for event in events:
        if isinstance(event, BlockStart | BlockEnd):
            # An earlier start had no text: drop it and its deltas. Keep the end of a block that the client was sent.
            has_start = any(isinstance(earlier, BlockStart) for earlier in kept)
            kept = [earlier for earlier in kept if isinstance(earlier, BlockEnd)]
            if isinstance(event, BlockEnd) and (has_start or kept):
                continue
        kept.append(event)
    return (*kept,)
