"""Encoding of streamed Responses replies (`decoder.py` shows them).

An item starts with its first text. The sent text is kept, since the events that end an item repeat it. Calls that
arrive in interleaved pieces are sent one after the other; the first one is streamed as it arrives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import JsonNesting, RawInput, parse_raw_input
from vtc.apis.citations import render_url_citation
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json, ReplyEvent, TextChain, join_chain
from vtc.apis.errors import find_kind
from vtc.apis.fields import part_of, split_entries, text_at
from vtc.apis.openai_responses.items import (
    ANNOTATION_ADDED,
    CALL_KINDS,
    FRAMING,
    ID_PREFIXES,
    ITEM_ADDED,
    ITEM_DONE,
    NAME,
    SAFE_CALL_FIELDS,
    ResponseForm,
    clear_part,
    compared_fields,
    is_call,
    make_item_id,
    make_response,
    part_names_of,
    render_action,
    render_done_item,
    render_item,
    render_usage,
    text_of,
    unfold_item,
)
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
    ToolCall,
    Usage,
)
from vtc.json_text import decode_json
from vtc.wire import sse


class CallProgress(msgspec.Struct, frozen=True, gc=False):
    """The pieces of one call that have been received."""

    number: int
    """The server's number, which identifies its pieces."""
    id: str = ""
    name: str = ""
    source: Mapping[str, Any] = {}
    pieces: TextChain = None
    """Pieces of its arguments."""
    nesting: JsonNesting = JsonNesting()
    ended: bool = False
    """True if the server ended the call."""

    @property
    def is_whole(self) -> bool:
        """True if the call has ended or its arguments are a complete JSON value."""
        return self.ended or self.nesting.is_whole

    @property
    def can_begin(self) -> bool:
        """True if its start event can be sent: its name is known, and its id or the start of its arguments."""
        return bool(self.name and (self.id or self.nesting.begun or self.ended))

    @property
    def arguments(self) -> str:
        """The arguments received so far; an empty object for a complete call without arguments."""
        return join_chain(self.pieces) or ("{}" if self.is_whole else "")

    def add_piece(self, piece: CallDelta) -> CallProgress:
        """Return the call with a piece added."""
        source = piece.source if isinstance(piece.source, Mapping) else {}
        call = replace(
            self,
            id=self.id or piece.id or "",
            name=self.name if piece.name == self.name else self.name + piece.name,
            source={**self.source, **source} if source else self.source,
            ended=self.ended or (not piece.name and is_call(str(source.get("type")))),
        )
        if not piece.arguments:
            return call
        return replace(call, pieces=(self.pieces, piece.arguments), nesting=self.nesting.advance(piece.arguments))

    @property
    def is_special(self) -> bool:
        """True for a call that has a dedicated kind of item (`shell_call`)."""
        kind = str(self.source.get("type"))
        return is_call(kind) and kind not in CALL_KINDS and kind == f"{self.name}_call"


_TEXT_ITEMS = ("message", "reasoning")
"""Kinds of items that hold text."""
_PART_LISTS = {"reasoning_summary_part": "summary", "content_part": "content"}


class OpenItem(msgspec.Struct, frozen=True, gc=False):
    """An item that has started and not ended at the client."""

    kind: str
    number: int
    """The server's number."""
    index: int
    """The client's number."""
    fields: Json
    parts: tuple[tuple[str, Json], ...] = ()
    """Finished parts, each with the name of its list."""
    part: Json | None = None
    """The open part."""
    is_text_done: bool = False
    """True if the event that completes its text or its arguments has been sent."""

    @property
    def part_list(self) -> str:
        """The name of the list that holds the open part."""
        return _PART_LISTS[part_names_of(self.part)[0]]

    @property
    def location(self) -> dict[str, Any]:
        """The fields of an event that identify the open item and part."""
        at = {"item_id": self.fields["id"], "output_index": self.index}
        if self.part is None:
            return at
        return {**at, f"{self.part_list}_index": sum(entry == self.part_list for entry, _ in self.parts)}


class OpenItems(msgspec.Struct):
    """The items of a reply at the client, and the events that open and close them.

    It is copied for each frame, so fields are assigned new values and never changed in place.
    """

    form: ResponseForm = ResponseForm()
    drop: frozenset[str] = frozenset()
    id: str = ""
    """The id of the response."""
    item_count: int = 0
    """Number of items that have started."""
    open: OpenItem | None = None
    sent_text: TextChain = None
    """Text of the open part, or arguments of the open call, that have been sent."""
    raw_input: RawInput = RawInput()
    """Raw input of the open call, if its tool is a custom one."""
    calls: dict[int, CallProgress] = {}
    """Unfinished calls that arrive in pieces, by the server's number."""
    server_fields: dict[str, Json] = {}
    """The server's fields for the start or end of an item or part, until that event is sent."""
    done: tuple[tuple[int, Json], ...] = ()
    """Finished items, each with its index at the client."""

    def _pop_server_fields(self, key: str) -> Json | None:
        """Remove a note and return it."""
        taken = self.server_fields.get(key)
        if taken is not None:
            self.server_fields = {name: note for name, note in self.server_fields.items() if name != key}
        return taken

    def _begin_item(self, kind: str, number: int, fields: Json) -> Iterator[Json]:
        own = f"{ID_PREFIXES[kind]}_vtc{self.item_count}_{self.id.removeprefix('resp_')}"
        lists = {"role": "assistant", "content": []} if kind == "message" else {"summary": []}
        about = {"id": own, "type": kind}
        about |= {} if kind == "reasoning" and fields else {"status": "in_progress"}
        rest = {key: value for key, value in fields.items() if key not in ("content", "summary", "id")}
        if (id_ := text_at(fields, "id")) and not any(item.get("id") == id_ for _, item in self.done):
            rest["id"] = id_
        lists |= {"content": []} if "content" in fields else {}
        self.open = OpenItem(kind, number, self.item_count, {**about, **rest, **lists})
        self.item_count += 1
        yield {"type": ITEM_ADDED, "output_index": self.open.index, "item": self.open.fields}

    def _begin_part(self, part: Json) -> Iterator[Json]:
        assert self.open is not None
        around, _, field = part_names_of(part)
        more: Json = {"annotations": [], "logprobs": []} if field == "text" and self.open.kind == "message" else {}
        part = {**({field: "", **more} if field else {}), **part}
        self.open, self.sent_text = replace(self.open, part=part, is_text_done=False), None
        yield {"type": f"response.{around}.added", **self.open.location, "part": part}

    def _add_text(self, text: str, logprobs: Any = ()) -> Iterator[Json]:
        assert self.open is not None
        self.sent_text = (self.sent_text, text)
        _, events, _ = part_names_of(self.open.part)
        more: Json = {"logprobs": [*logprobs]} if events == "output_text" else {}
        yield {"type": f"response.{events}.delta", **self.open.location, "delta": text, **more}

    def _add_citations(self, cited: Citations) -> Iterator[Json]:
        """Add citations to the open part, whose own text their places refer to."""
        if self.open is None or self.open.part is None:
            return
        start, before = cited.length - len(join_chain(self.sent_text)), self.open.part.get("annotations") or ()
        added = [{"type": "url_citation", **render_url_citation(entry, start)} for entry in cited.entries]
        for number, annotation in enumerate(added, len(before)):
            about = {"annotation_index": number, "annotation": annotation}
            yield {"type": ANNOTATION_ADDED, **self.open.location, **about}
        self.open = replace(self.open, part={**self.open.part, "annotations": [*before, *added]})

    def _end_part(self) -> Iterator[Json]:
        """End the open part, with the server's fields for its end if its text is the same."""
        open_, server_part = self.open, self._pop_server_fields("part_done")
        if open_ is None or open_.part is None:
            return
        text, (around, events, field) = join_chain(self.sent_text), part_names_of(open_.part)
        is_same = server_part is None or not field or server_part.get(field) == text
        part = {**open_.part, **(server_part or {})} if is_same else clear_part(open_.part)
        if field:
            part = {**part, field: text}
            if not open_.is_text_done:
                more: Json = {"logprobs": part.get("logprobs", [])} if events == "output_text" else {}
                yield {"type": f"response.{events}.done", **open_.location, field: text, **more}
        yield {"type": f"response.{around}.done", **open_.location, "part": part}
        self.open = replace(open_, part=None, parts=(*open_.parts, (open_.part_list, part)))

    def _end_item(self, status: str = "completed") -> Iterator[Json]:
        """End the open item or call."""
        if self.open is not None and self.open.number in self.calls and self.open.kind not in _TEXT_ITEMS:
            yield from self._end_call()
            return
        yield from self._end_part()
        open_, server_item = self.open, self._pop_server_fields("item_done") or {}
        if open_ is None:
            return
        rest = {key: value for key, value in server_item.items() if key not in ("id", "type", "content", "summary")}
        lists = {key: [part for place, part in open_.parts if place == key] for key in ("summary", "content")}
        kept = {key: parts for key, parts in lists.items() if parts or key in open_.fields}
        status_fields = {"status": status} if "status" in open_.fields else {}
        item = {**open_.fields, **status_fields, **rest, **kept}
        self._record_done(open_.index, item)
        yield {"type": ITEM_DONE, "output_index": open_.index, "item": item}

    def _record_done(self, index: int, item: Json) -> None:
        self.done, self.open, self.sent_text = (*self.done, (index, item)), None, None

    def _begin_call(self, call: CallProgress) -> Iterator[Json]:
        id_ = call.id or f"call_vtc{self.item_count}_{self.id.removeprefix('resp_')}"
        arguments = render_action(call.source) if call.is_special else "{}"
        item = render_item(ToolCall(call.name, arguments, id_, call.source), self.form)
        if item["type"] in CALL_KINDS:
            item[CALL_KINDS[item["type"]][1]] = ""
        item = {**item, "id": item.get("id") or make_item_id(item), "status": "in_progress"}
        self.open, self.item_count = OpenItem(item["type"], call.number, self.item_count, item), self.item_count + 1
        self.sent_text, self.raw_input = None, RawInput()
        yield {"type": ITEM_ADDED, "output_index": self.open.index, "item": item}
        if call.nesting.begun:
            yield from self._add_arguments(join_chain(call.pieces))

    def _add_arguments(self, arguments: str) -> Iterator[Json]:
        """Send a piece of the open call's arguments; for a custom tool, the raw input that it holds."""
        assert self.open is not None
        piece = arguments
        if self.open.kind == "custom_tool_call":
            self.raw_input, piece = self.raw_input.feed(arguments)
        if self.open.kind in CALL_KINDS and piece:
            self.sent_text = (self.sent_text, piece)
            yield {"type": f"response.{CALL_KINDS[self.open.kind][0]}.delta", **self.open.location, "delta": piece}

    def _end_call(self) -> Iterator[Json]:
        """End the open call: send the rest of its arguments, and repeat all of them if the server has not."""
        open_ = self.open
        assert open_ is not None
        call = self._pop_call(open_.number)
        item = {**open_.fields, "status": "completed" if call.is_whole else "incomplete"}
        ours = call.source if str(call.source.get("type")) == open_.kind else {}
        item |= {key: value for key, value in ours.items() if key not in (*open_.fields, "arguments", "input")}
        if open_.kind in CALL_KINDS:
            events, field = CALL_KINDS[open_.kind]
            sent, text = (
                join_chain(self.sent_text),
                call.arguments if field == "arguments" else parse_raw_input(call.arguments),
            )
            item[field] = text = text if text.startswith(sent) else sent
            if len(text) > len(sent) and not open_.is_text_done:
                yield {"type": f"response.{events}.delta", **open_.location, "delta": text[len(sent) :]}
            if not open_.is_text_done:
                yield {"type": f"response.{events}.done", **open_.location, "name": item["name"], field: text}
        else:
            item |= ours
        self._record_done(open_.index, item)
        yield {"type": ITEM_DONE, "output_index": open_.index, "item": item}

    def _pop_call(self, number: int) -> CallProgress:
        call = self.calls[number]
        self.calls = {key: value for key, value in self.calls.items() if key != number}
        return call

    def _is_output(self, output: Any) -> bool:
        """True if `output`, from the last event, matches the items that were sent."""
        sent = [compared_fields(item) for _, item in self.done]
        items, others = split_entries(output)
        return isinstance(output, list) and not others and [*map(compared_fields, items)] == sent

    @property
    def _output(self) -> list[Json]:
        """The finished items, in the client's order."""
        return [item for _, item in sorted(self.done, key=lambda pair: pair[0])]

    @property
    def _output_text(self) -> str:
        """All text of the sent messages, which some servers repeat in `output_text`."""
        parts = [part for item in self._output for part in split_entries(item.get("content"))[0]]
        return "".join(str(part.get("text") or "") for part in parts if part.get("type") == "output_text")


ITEM_KINDS = {"text": "message", "reasoning": "reasoning"}
_SEQUENCE_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,18})')
_DEFERRED_KINDS = ("text_done", "part_done", "item_done", "item", "part", "empty_text")
_REQUIRED_FIELDS = ("id", "object", "created_at", "status", "model", "output")
"""Fields of a response that some client requires in its first event."""
_REASONING_FIELDS = frozenset({"thinking", "reasoning", "reasoning_content"})


class FrameTracker(OpenItems):
    """Keeps the state of the client's stream up to date for forwarded frames, and numbers the events.

    A frame of this API that can be forwarded unchanged is tracked event by event. If a strict client would fail at one
    of them, `in_step` becomes False, and the relay re-encodes this frame and all later ones.
    """

    in_step: bool = True
    head: Json = msgspec.field(default_factory=dict)
    """Fields of the response; empty until its first event is sent."""
    next_number: int | None = 0
    """Sequence number of the next event; None if events have none."""
    deferred: tuple[Sequence[ReplyEvent], ...] = ()
    """Events of each buffered frame that is sent together with the next one."""
    last_message: tuple[int, Json] = (-1, {})
    """Number and fields of the server's newest message. If its text continues after a call, that is another message at
    the client, with the same fields."""
    indices: dict[int, int] = msgspec.field(default_factory=dict)
    """The client's index of items that are neither text nor calls, by the server's number."""
    ended: bool = False
    passed_data: bytes = b""
    """The frames with numbers that were forwarded last."""

    def record_passed(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Record frames that were forwarded (`contract.FrameFollower`)."""
        # As in `follow`, numbers do not count without a beginning.
        if (self.head or self.next_number) and b'"sequence_number"' in data:
            self.passed_data = data
        if texts and self.open is not None and self.open.part is not None:
            self.sent_text = (self.sent_text, decode_json(b'"%b"' % b"".join(texts), "replace"))

    def _number_events(self, events: Sequence[Json], frames: int = 0) -> list[Json]:
        """Number events; `frames` frames were forwarded with their own numbers since the last call."""
        if self.passed_data:
            numbers = _SEQUENCE_NUMBER.findall(self.passed_data)
            if numbers:
                self.next_number = int(numbers[-1]) + 1
        self.passed_data = b""
        if self.next_number is None:
            return [*events]
        first, self.next_number = self.next_number + frames, self.next_number + frames + len(events)
        return [{**event, "sequence_number": first + place} for place, event in enumerate(events)]

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        if events and all(map(_is_deferred, events)):
            self.deferred = (*self.deferred, events)
            return False
        deferred, self.deferred = self.deferred, ()
        # Count the forwarded frames; the first event of the reply sets the number itself.
        self._number_events((), len(deferred) + 1 if self.head or self.next_number else 0)
        for frame in (*deferred, events):
            for event in frame:
                self.in_step = self._track(event) and self.in_step
        return True

    def _track(self, event: ReplyEvent) -> bool:
        """Track an event of a forwarded frame; False if a strict client would fail at it.

        The methods that open and close items run here for their changes of state alone; their events are discarded.
        """
        open_ = self.open
        match event:
            case Start(own=Origin(value=(number, fields))):
                self._begin_response(event, fields)
                self.next_number = None if number is None else number + 1
                has_required = isinstance(fields.get("created_at"), int | float) and isinstance(
                    fields.get("model"), str
                )
                return has_required and bool(event.id) and fields.get("output") == []
            case BlockStart(own=Origin(kind="item", value=(place, fields))):
                is_expected = open_ is None and place == self.item_count and not self._is_hidden(event.kind)
                self.last_message = (event.number, fields) if event.kind == "text" else self.last_message
                [*self._begin_item(ITEM_KINDS[event.kind], event.number, fields)]
                return is_expected
            case BlockStart(own=Origin(kind="part", value=(place, fields))):
                if open_ is None or open_.part is not None:
                    return False
                (begun,) = self._begin_part(fields)
                at = begun.get("content_index", begun.get("summary_index"))
                return bool(place == at and event.id == open_.fields["id"])
            case Text(raw=text) | ReasoningDelta(text=text) | RefusalText(text=text):
                self.sent_text = (self.sent_text, text)
                return not text or (open_ is not None and (open_.part or {}).get("type") in _part_types_of(event))
            case CallDelta():
                return self._track_call(event)
            case Origin(kind=kind, value=(number, value)) if kind in ("text_done", "part_done", "item_done"):
                if open_ is None or open_.number != number:
                    return False
                return self._track_end(kind, value)
            case Origin(kind="event", value=(number, value)):
                if value["type"] == ITEM_ADDED:
                    self.indices = {**self.indices, number: self.item_count}
                    self.item_count += 1
                    return open_ is None and value.get("output_index") == self.item_count - 1
                if value["type"] == ITEM_DONE and number is not None:
                    self._assign_index(number)
                    self.done = (*self.done, (self.indices[number], part_of(value, "item")))
            case Origin(kind="status", value=(_, fields)):
                return bool(fields["id"] == self.id)
            case Origin(kind="end", value=(_, fields)):
                self.ended = True
                is_same = fields.get("id") == self.id and fields.get("output_text") in (None, self._output_text)
                return open_ is None and is_same and self._is_output(fields.get("output"))
            case Failure():
                self.ended = True
            case Call() | Reasoning() | Rewritten():
                return False
        return True

    def _track_end(self, kind: str, value: Any) -> bool:
        """Track the end of a text, a part or an item; False if it differs from the content that the client was sent."""
        open_ = self.open
        assert open_ is not None
        if kind == "text_done":
            self.open = replace(open_, is_text_done=True)
            return open_.part is None or value == join_chain(self.sent_text)
        if kind == "part_done":
            if open_.part is None:
                return False
            is_same = text_of(value) in (None, join_chain(self.sent_text))
            self.server_fields = {**self.server_fields, "part_done": value}
            [*self._end_part()]
            return is_same
        if open_.part is not None or value.get("id") != open_.fields["id"]:
            return False
        sent = [text_of(part) for _, part in open_.parts]
        lists = [split_entries(value.get(key)) for key in ("summary", "content")]
        self._record_done(open_.index, {**open_.fields, **value})
        return [text_of(part) for parts, _ in lists for part in parts] == sent and not any(odd for _, odd in lists)

    def _track_call(self, piece: CallDelta) -> bool:
        """Track a piece of a call; False if a strict client would fail at it."""
        number, open_ = piece.index or 0, self.open
        if piece.name:
            self.calls = {**self.calls, number: CallProgress(number).add_piece(piece)}
            [*self._begin_call(self.calls[number])]
            return open_ is None and piece.clean and number == self.item_count - 1
        if open_ is None or open_.number != number or number not in self.calls:
            return False
        call = self.calls[number].add_piece(piece)
        self.calls = {**self.calls, number: call}
        [*self._add_arguments(piece.arguments)]
        if call.ended:
            self._pop_call(number)
            self._record_done(open_.index, {**open_.fields, **(piece.source or {})})
        return piece.clean

    def _is_hidden(self, kind: str) -> bool:
        return kind == "reasoning" and bool(self.drop & _REASONING_FIELDS)

    def _assign_index(self, number: int) -> None:
        """Assign the next index to an item that is neither text nor a call, unless it has one."""
        if number not in self.indices:
            self.indices = {**self.indices, number: self.item_count}
            self.item_count += 1

    def _begin_response(self, start: Start, fields: Json | None = None) -> Iterator[Json]:
        """Send the first events of the response, once."""
        if self.head:
            return iter(())
        id_ = start.id if start.id.startswith("resp_") or fields else f"resp_{start.id or 'vtc'}"
        head = make_response(id_, self.form.model or start.model, start.created)
        if fields:
            own = {key: value for key, value in fields.items() if value is not None or key not in _REQUIRED_FIELDS}
            head = {**{key: head[key] for key in _REQUIRED_FIELDS}, **own}
        self.head = self._drop_fields(head)
        self.id = self.head["id"] = text_at(self.head, "id") or "resp_vtc"
        types = ("response.created",) if fields else ("response.created", "response.in_progress")
        return iter([{"type": type_, "response": self.head} for type_ in types])

    def _drop_fields(self, response: Json) -> dict[str, Any]:
        return {key: value for key, value in response.items() if key not in self.drop}


def _is_deferred(event: ReplyEvent) -> bool:
    """True for events that are sent together with the next one."""
    if isinstance(event, Origin):
        return event.kind.partition(".")[0] in _DEFERRED_KINDS
    if isinstance(event, BlockStart | BlockEnd):
        return True
    return isinstance(event, RefusalText | ReasoningDelta) and not event.text


def _part_types_of(event: ReplyEvent) -> tuple[str, ...]:
    if isinstance(event, RefusalText):
        return ("refusal",)
    return ("output_text",) if isinstance(event, Text) else ("reasoning_text", "summary_text")


_SAME_PART_TYPES = {"reasoning_text": ("reasoning_text", "summary_text")}


class Encoder(FrameTracker):
    """Encoder of a streamed reply; fields named in `drop` are removed, and so is reasoning if it is named."""

    framing: ClassVar[sse.EventStream] = FRAMING
    counts: ClassVar[bool] = True
    call_fields: ClassVar[frozenset[str]] = SAFE_CALL_FIELDS

    deferred_start: BlockStart | None = None
    """Start of an item that is sent with its first text."""
    queue: tuple[ReplyEvent, ...] = ()
    """Events that are buffered until the end of a call."""
    finish: Finish | None = None
    usage: Usage | None = None
    closing_fields: Json | None = None
    """The server's fields of the response in its last event."""
    on_response: Callable[[Json], None] | None = None
    """Called with the whole response at its end (`contract.ReferableReply`)."""

    def keep_alive(self) -> bytes:
        """Make an event of an unknown type, because comments do not reset the timer of Codex."""
        if self.ended or not self.head:
            return b": keep-alive\n\n"  # openai-python fails at events before the first, other clients after the last
        self.in_step = False
        (event,) = self._number_events([{"type": "keepalive"}])
        return self.framing.encode([event])[0]

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        if self.ended:
            return []
        # Step 1: encode the deferred events and these. Log probabilities are kept if the frame has a single text.
        deferred, self.deferred = self.deferred, ()
        all_logprobs = [event.value for event in events if isinstance(event, Origin) and event.kind == "logprobs"]
        texts = [event for event in events if isinstance(event, Text | Rewritten | Call)]
        logprobs = all_logprobs[0] if all_logprobs and len(texts) == 1 else ()
        out = [event for frame in (*deferred, events) for item in frame for event in self._encode(item, logprobs)]
        # Step 2: add the unknown fields of the frame to the first event.
        unknown = {
            event.kind.removeprefix("event."): event.value
            for event in events
            if isinstance(event, Origin) and event.kind.startswith("event.")
        }
        if out and unknown:
            out[0] = {**unknown, **out[0]}
        # Step 3: end the reply, unless its usage may still arrive.
        if self.finish and (self.usage or self.closing_fields is not None or not self.finish.native_reason):
            out += self._end_response()
        return self._number_with_head(out)

    def end(self) -> list[Json]:
        return [] if self.ended else self._number_with_head([*self._end_response()])

    def _number_with_head(self, out: list[Json]) -> list[Json]:
        begun = [] if self.head or not out else [*self._begin_response(Start())]
        return self._number_events([*begun, *out])

    def _encode(self, event: ReplyEvent, logprobs: Any = ()) -> Iterator[Json]:
        # Buffer other events inside a call. A `text_done` is the call's, whose end sends its own.
        if self._is_in_call and not isinstance(event, CallDelta | Finish | Usage | Failure | Start | BlockEnd):
            if not (isinstance(event, Origin) and event.kind == "text_done"):
                self.queue = (*self.queue, event)
            return
        match event:
            case Start(own=own):
                yield from self._begin_response(event, own.value[1] if own else None)
            case BlockStart():
                self._record_start(event)
            case Text(raw=text) | Rewritten(text=text) | RefusalText(text=text) if text:
                type_ = "refusal" if isinstance(event, RefusalText) else "output_text"
                yield from self._open_part("message", type_)
                yield from self._add_text(text, logprobs)
            case Reasoning(raw=text) | ReasoningDelta(text=text) if text and not self._is_hidden("reasoning"):
                yield from self._open_part("reasoning", "reasoning_text")
                yield from self._add_text(text)
            case Citations():
                yield from self._add_citations(event)
            case Seal() if not self._is_hidden("reasoning"):
                yield from self._render_seal(event)
            case Call(call=call):
                yield from self._end_item()
                item = render_done_item(call, self.form)
                yield from unfold_item(item, self.item_count)
                self._record_done(self.item_count, item)
                self.item_count += 1
            case CallDelta():
                yield from self._encode_piece(event)
            case Finish():
                self.finish = event
            case Usage():
                self.usage = event
            case Failure():
                yield from self._render_failure(event)
            case Origin(api=api, kind=kind, value=value) if api == NAME:
                yield from self._encode_origin(kind, value)

    def _record_start(self, start: BlockStart) -> None:
        own = start.own
        if own is not None and own.kind == "part":
            self.server_fields = {**self.server_fields, "part": own.value[1]}
            return
        fields = own.value[1] if own else {"id": start.id if start.id.startswith(("msg_", "rs_")) else ""}
        self.deferred_start, self.server_fields = start, {**self.server_fields, "item": fields}
        self._pop_server_fields("part")
        self.last_message = (start.number, fields) if start.kind == "text" else self.last_message

    def _open_part(self, kind: str, type_: str) -> Iterator[Json]:
        """Ensure that a part of type `type_` is open in an item of `kind`, preferring the item that started last."""
        if self.deferred_start is not None and ITEM_KINDS[self.deferred_start.kind] == kind:
            yield from self._end_item()
            number, self.deferred_start = self.deferred_start.number, None
            yield from self._begin_item(kind, number, self._pop_server_fields("item") or {})
        elif self.open is None or self.open.kind != kind:
            yield from self._end_item()
            number, fields = self.last_message if kind == "message" else (-1, {})
            about = {key: value for key, value in fields.items() if key not in ("id", "status")}
            yield from self._begin_item(kind, number, about)
        server_part, types = self.server_fields.get("part"), _SAME_PART_TYPES.get(type_, (type_,))
        if server_part is not None and server_part.get("type") in types:
            self._pop_server_fields("part")
            yield from self._end_part()
            yield from self._begin_part(server_part)
        assert self.open is not None
        if self.open.part is None or self.open.is_text_done or self.open.part.get("type") not in types:
            yield from self._end_part()
            yield from self._begin_part({"type": type_})

    def _encode_origin(self, kind: str, value: Any) -> Iterator[Json]:
        """Encode an origin of this API."""
        place, is_field, key = kind.partition(".")  # a field's name may be empty
        start, open_ = self.deferred_start, self.open
        match place:
            case "item" | "part" | "item_done" | "part_done" if is_field:
                if place in self.server_fields:
                    self.server_fields = {**self.server_fields, place: {**self.server_fields[place], key: value}}
            case "head" | "end" if is_field:
                self.head = {**self.head, key: value}
            case "unknown_part":
                yield from self._open_part("message", str(self.server_fields.get("part", {}).get("type")))
            case "item_done" | "part_done":
                number, fields = value
                if start is not None and start.number == number:
                    if place == "item_done" and start.kind == "reasoning" and not self._is_hidden("reasoning"):
                        yield from self._begin_reasoning(start)  # the client must send it back, even without text
                        self.server_fields = {**self.server_fields, place: fields}
                    elif place == "item_done":
                        self.deferred_start = None
                    self._pop_server_fields("part")
                elif open_ is not None and open_.number == number:
                    self.server_fields = {**self.server_fields, place: fields}
            case "annotation" if open_ is not None and open_.part is not None:
                rest = {
                    key: entry for key, entry in value[1].items() if key not in ("sequence_number", *open_.location)
                }
                yield {**rest, **open_.location}
            case "event" if not is_field:
                yield from self._encode_native_event(*value)
            case "status" if not self.item_count:  # a later status belongs to a second reply
                yield {"type": value[1]["type"], "response": self.head}
            case "end":
                self.closing_fields = value[1]

    def _begin_reasoning(self, start: BlockStart) -> Iterator[Json]:
        yield from self._end_item()
        self.deferred_start = None
        yield from self._begin_item("reasoning", start.number, self._pop_server_fields("item") or {})

    def _render_seal(self, seal: Seal) -> Iterator[Json]:
        """Add encrypted content to its reasoning item, which may have no text; the client must send it back."""
        is_sealed = self.server_fields.get("item_done", {}).keys() == {"encrypted_content"}  # by an earlier seal
        if self.deferred_start is not None and self.deferred_start.kind == "reasoning":
            yield from self._begin_reasoning(self.deferred_start)
        elif self.open is None or self.open.kind != "reasoning" or is_sealed:
            yield from self._end_item()
            yield from self._begin_item("reasoning", -1, {})
        sealed = {"encrypted_content": seal.value}
        self.server_fields = {**self.server_fields, "item_done": {**self.server_fields.get("item_done", {}), **sealed}}

    def _encode_native_event(self, number: int | None, event: Json) -> Iterator[Json]:
        """Send an API-specific event with the client's index of its item."""
        more: dict[str, Any] = {}
        if number is not None and event["type"] in (ITEM_ADDED, ITEM_DONE):
            yield from self._end_item()
            self._assign_index(number)
        if number in self.indices:
            more["output_index"] = self.indices[number]
        elif self.open is not None and self.open.number == number:
            more = {key: value for key, value in self.open.location.items() if key in event}
        if event["type"] == ITEM_DONE and number in self.indices:
            self.done = (*self.done, (self.indices[number], part_of(event, "item")))
        yield {**event, **more}

    @property
    def _is_in_call(self) -> bool:
        """True while a call is open whose arguments are incomplete."""
        open_ = self.open
        return open_ is not None and open_.kind not in ITEM_KINDS.values() and not self.calls[open_.number].is_whole

    def _encode_piece(self, piece: CallDelta) -> Iterator[Json]:
        """Send a piece of a call, or buffer it: calls are sent one after the other, the first one at once."""
        # Step 1: find the call, which is the last one if the piece has no index.
        number = piece.index if piece.index is not None else max(self.calls, default=self.item_count - 1)
        known = self.calls.get(number)
        is_open = self.open is not None and known is not None and self.open.number == number
        # Step 2: another name starts another call, if the piece has no index or the known call is complete.
        if piece.name and known and known.name and (piece.index is None or known.is_whole):
            if is_open:
                yield from self._end_item()
            number, known, is_open = (number, None, False) if is_open else (max(self.calls) + 1, None, False)
        # Step 3: ignore an empty piece of an unknown call, and arguments after the end.
        if known is None and not (piece.name or piece.arguments or piece.id):
            return
        if known is not None and known.is_whole and piece.arguments:
            piece = replace(piece, arguments="")
        # Step 4: add the piece; send it if its call is open, and start the calls that can start now.
        self.calls = {**self.calls, number: (known or CallProgress(number)).add_piece(piece)}
        if is_open and piece.arguments:
            yield from self._add_arguments(piece.arguments)
        yield from self._begin_calls()

    def _begin_calls(self, *, end_all: bool = False) -> Iterator[Json]:
        """Start buffered calls, in order; with `all_`, also end them."""
        while waiting := [call for key, call in sorted(self.calls.items()) if not self._is_open_call(key)]:
            ready = next((call for call in waiting if call.can_begin or (end_all and call.name)), None)
            if ready is None or (self._is_in_call and not end_all):
                break
            yield from self._end_item()
            yield from self._begin_call(ready)
        if end_all:
            yield from self._end_item()
            for call in [*self.calls.values()]:  # calls without a name
                yield from self._encode(Text(join_chain(self._pop_call(call.number).pieces)))
        if self.queue and not self._is_in_call:
            queued, self.queue = self.queue, ()
            for event in queued:
                yield from self._encode(event)

    def _is_open_call(self, number: int) -> bool:
        return self.open is not None and self.open.kind not in ITEM_KINDS.values() and self.open.number == number

    def _end_response(self) -> Iterator[Json]:
        """End the reply. Without an end from the server it was cut off; if it is also empty, it failed."""
        # Step 1: find the status. A cut-off reply is incomplete even if the server says `completed`.
        end, closing = self.finish, self.closing_fields or {}
        cut, filtered = end is None or end.reason == "length", end is not None and end.reason == "halted"
        status = closing.get("status")
        if not status or (cut and status == "completed"):
            status = "incomplete" if cut or filtered else "completed"
        # Step 2: end the open item, which is incomplete if the reply is, and all calls.
        item_status = "incomplete" if status == "incomplete" else "completed"
        yield from self._end_item(item_status)
        yield from self._begin_calls(end_all=True)
        yield from self._end_item(item_status)
        if end is None and not self.done:
            yield from self._render_failure(Failure("The server ended the reply before it sent any content."))
            return
        self.ended = True
        why = {"reason": "max_output_tokens" if cut else "content_filter"} if status == "incomplete" else None
        # Step 3: repeat the items that the client was sent, which can differ from the server's.
        final = {"status": status, "incomplete_details": closing.get("incomplete_details") or why}
        final |= {"id": self.id, "output": self._output, "usage": render_usage(self.usage or Usage())}
        if "output_text" in closing:
            final["output_text"] = self._output_text
        response = {**self.head, **closing, **final}
        if self.on_response:
            self.on_response(response)
        yield {"type": f"response.{status}", "response": self._drop_fields(response)}

    def _render_failure(self, failure: Failure) -> Iterator[Json]:
        self.ended = True
        if failure.own is not None and failure.own.api == NAME:
            yield failure.own.value
            return
        known = find_kind(failure.kind)
        code = failure.kind if failure.kind == CONTEXT_LENGTH_EXCEEDED or not known else known.responses
        error = {"code": code or "server_error", "message": failure.message}
        if not self.head:
            yield from self._begin_response(Start())
        if failure.kind == CONTEXT_LENGTH_EXCEEDED:  # some clients read this event; OpenAI's server sends both
            own = {**error, "type": "invalid_request_error", "param": "input"}
            yield {"type": "error", **error, "param": "input", "error": own}
        yield {
            "type": "response.failed",
            "response": {**self.head, "status": "failed", "error": error, "output": self._output},
        }
