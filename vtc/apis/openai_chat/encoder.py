"""Encode replies of chat completions: the chunks of a stream (`decoder.py` shows them)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.calls import RawInput, parse_raw_input
from vtc.apis.citations import render_url_citation
from vtc.apis.contract import Json, ReplyEvent
from vtc.apis.fields import remove_fields
from vtc.apis.openai_chat import words
from vtc.apis.openai_chat.words import FRAMING, HARMLESS_CALL_FIELDS, NAME, REASON_OF, REASONS, ChatForm, entry_of
from vtc.events import (
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
from vtc.wire import sse


class Encoder(msgspec.Struct):
    """Encodes the chunks of a reply; `drop` names fields to remove."""

    framing: ClassVar[sse.EventStream] = FRAMING
    counts: ClassVar[bool] = False
    call_fields: ClassVar[frozenset[str]] = HARMLESS_CALL_FIELDS

    form: ChatForm = ChatForm()
    drop: frozenset[str] = frozenset()
    in_step: bool = True
    head: Json = {}
    """The fields of every chunk."""
    begun_choices: frozenset[int] = frozenset()
    """The choices whose role was sent."""
    call_counts: dict[int, int] = {}
    """By choice, the number of calls that were sent."""
    client_numbers: dict[tuple[int, int | None], int] = {}
    """By choice and the server's number of a native call, the number that the client got for it."""
    native: bool = False
    """True if the server speaks this API, too."""
    seals: tuple[Seal, ...] = ()
    """Seals of another API's server that belong to a later call."""
    raw_inputs: dict[tuple[int, int], RawInput] = {}
    """The inputs of custom tools that the server calls as functions, by choice and the client's number."""
    usage: Usage | None = None
    """The usage of another API's server, in whichever event it arrived: it is sent once, at the end."""

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        self.in_step = True
        for event in events:
            if isinstance(event, Start):
                self._start(event)
                self.begun_choices |= {event.choice}
            elif isinstance(event, CallDelta):
                self.in_step = self.in_step and self._find_number(event, choice) == (event.index or 0)
        return True

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        chunks: list[dict[str, Any]] = []

        def add_chunk(delta: Json, finish: str | None = None, /, **fields: Any) -> None:
            if choice not in self.begun_choices:
                self.begun_choices |= {choice}
                delta = {"role": "assistant", **delta}
            entry = {"index": choice, "delta": delta, "finish_reason": finish, **fields}
            chunks.append({**self.head, "choices": [entry]})

        own_fields: dict[str, dict[str, Any]] = {}
        for event in events:  # Step 1: start the choice, and collect this API's own fields of chunk, choice and delta.
            match event:
                case Start():
                    self._start(event)
                    if choice not in self.begun_choices:
                        add_chunk({"content": ""})
                case Origin(api=api, kind=kind, value=value) | ReasoningDelta(own=Origin(api, kind, value)) if (
                    api == NAME and not self._needs_other_reasoning_field(event)
                ):
                    place, _, key = kind.partition(".")
                    fields = own_fields.setdefault(place, {})
                    fields[key] = _join_lists(fields.get(key), value)
        # Step 2: send the fields in the first chunk, unless the choice ends here: then the last chunk has them.
        ends = any(isinstance(event, Finish) for event in events)
        if own_fields.keys() & {"delta"} or (own_fields and not ends):
            add_chunk(own_fields.pop("delta", {}), **own_fields.pop("choice", {}))
            chunks[-1].update(own_fields.pop("chunk", {}))
        # Step 3: write the events in order.
        for event in events:
            match event:
                case Text(text) | Rewritten(text=text) if text:
                    add_chunk({"content": text})
                case RefusalText() | Citations():
                    add_chunk(_render_separate(event))
                case Reasoning(text) | ReasoningDelta(text) if text and self._must_write_reasoning(event):
                    add_chunk(dict.fromkeys(self.form.reasoning_fields or REASONING_FIELDS[:1], text))
                case Seal() if not self.native:
                    self.seals = (*self.seals, event)
                case Call(call=call):
                    for delta in self._render_call(call, choice):
                        add_chunk(delta)
                case CallDelta() if event.name or event.arguments or event.source:
                    if delta := self._render_piece(event, choice):
                        add_chunk(delta)
                case Finish():
                    for rest in self._finish_inputs(choice):
                        add_chunk(rest)
                    add_chunk({}, self._choose_reason(event, choice), **own_fields.get("choice", {}))
                    chunks[-1].update(own_fields.get("chunk", {}))
                case Usage(own=Origin(value=usage)):
                    if not chunks:
                        chunks.append({**self.head, "choices": []})
                    chunks[-1]["usage"] = usage
                case Usage() if self.form.wants_usage:
                    self.usage = event
                case Failure(message=message, kind=kind):
                    self.usage = None
                    chunks.append({"error": words.build_error(message, kind)})
        return remove_fields(chunks, self.drop) if self.drop else [*chunks]

    def end(self) -> list[Json]:
        used, self.usage = self.usage, None
        return remove_fields([{**self.head, "choices": [], "usage": _render_usage(used)}], self.drop) if used else []

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"

    def _needs_other_reasoning_field(self, event: ReplyEvent) -> bool:
        """Return True for reasoning that the client expects in other fields than the server's."""
        own = event.own if isinstance(event, ReasoningDelta) else None
        return bool(self.form.reasoning_fields) and own is not None and own.kind.rpartition(".")[2] in REASONING_FIELDS

    def _must_write_reasoning(self, event: ReplyEvent) -> bool:
        """Return True for reasoning that Step 2 of `write` does not send, and that the client gets."""
        if REASONING_FIELDS[0] in self.drop:
            return False
        own = event.own if isinstance(event, ReasoningDelta) else None
        if own is None or self._needs_other_reasoning_field(event):
            return True
        # The server sent it only as an entry (`reasoning_details`), but the client expects a text field as well.
        return bool(self.form.reasoning_fields) and own.kind.removeprefix("delta.") in words.SEALED_FIELDS

    def _start(self, start: Start) -> None:
        if not self.head:
            self.native = start.own is not None
            id_ = start.id if start.own or start.id.startswith("chatcmpl-") else f"chatcmpl-{start.id or 'vtc'}"
            head = {"id": id_, "object": "chat.completion.chunk", "created": start.created, "model": start.model}
            self.head = start.own.value if start.own else head

    def _render_call(self, call: ToolCall, choice: int) -> tuple[Json, Json]:
        """Render a call as two deltas: everything except its arguments, then these."""
        index = self._take_number(choice)
        entry = entry_of(ToolCall(call.name, "", call.id, call.source), self.form.custom_tools)
        custom = {"custom": {"input": parse_raw_input(call.arguments)}} if "custom" in entry else None
        rest = {"index": index, **(custom or {"function": {"arguments": call.arguments}})}
        sealed = self._render_call_seals(index) if self.seals else {}
        return {"tool_calls": [{**entry, **sealed, "index": index}]}, {"tool_calls": [rest]}

    def _render_piece(self, piece: CallDelta, choice: int) -> Json:
        """Render a piece of a native call."""
        place = choice, self._find_number(piece, choice)
        if piece.name in self.form.custom_tools and "custom" not in (piece.source or ()):
            self.raw_inputs = {**self.raw_inputs, place: RawInput()}
        if place in self.raw_inputs:
            raw, text = self.raw_inputs[place].feed(piece.arguments)
            self.raw_inputs = {**self.raw_inputs, place: raw}
            return self._render_input(place[1], text, piece.id, piece.name) if text or piece.name else {}
        entry = entry_of(ToolCall(piece.name, piece.arguments, piece.id, piece.source))
        if not piece.name:
            entry = {key: value for key, value in entry.items() if key not in ("id", "type")}
            entry["custom" if "custom" in entry else "function"].pop("name")
        sealed = self._render_call_seals(place[1]) if self.seals and piece.name else {}
        return {"tool_calls": [{"index": place[1], **entry, **sealed}]}

    def _render_call_seals(self, call: int) -> Json:
        """Render the seals before a call as Google does, because some clients send that field back."""
        here = [seal.value for seal in self.seals if seal.calls <= call]
        self.seals = tuple(seal for seal in self.seals if seal.calls > call)
        return words.make_signature_entry(words.SEAL_SEPARATOR.join(here)) if here else {}

    def _render_input(self, index: int, text: str, id: str | None = None, name: str = "") -> Json:
        """Render a piece of a custom tool's raw input."""
        if not name:
            return {"tool_calls": [{"index": index, "custom": {"input": text}}]}
        entry = {"index": index, "id": id, "type": "custom", "custom": {"name": name, "input": text}}
        return {"tool_calls": [{**entry, **self._render_call_seals(index)}]}

    def _finish_inputs(self, choice: int) -> Iterator[Json]:
        """Render the rest of raw inputs at the end."""
        ended = {place: raw for place, raw in self.raw_inputs.items() if place[0] == choice}
        self.raw_inputs = {place: raw for place, raw in self.raw_inputs.items() if place not in ended}
        for (_, index), raw in ended.items():
            if rest := raw.rest:
                yield self._render_input(index, rest)

    def _take_number(self, choice: int) -> int:
        """Return the next number of a call, and count it."""
        number = self.call_counts.get(choice, 0)
        self.call_counts = {**self.call_counts, choice: number + 1}
        return number

    def _find_number(self, piece: CallDelta, choice: int) -> int:
        """Return the client's number of a piece's call."""
        key = choice, piece.index
        if key not in self.client_numbers or (piece.index is None and piece.name):
            self.client_numbers = {**self.client_numbers, key: self._take_number(choice)}
        return self.client_numbers[key]

    def _choose_reason(self, end: Finish, choice: int) -> str:
        """Choose the finish reason; the server's own word if this API has it with the same meaning."""
        reason = end.native_reason
        if reason and (self.native or reason in REASONS) and REASON_OF[reason] == end.reason:
            return reason
        if end.reason == "tool_calls" or (end.reason == "other" and self.call_counts.get(choice)):
            return "tool_calls"
        return {"length": "length", "halted": "content_filter"}.get(end.reason, "stop")


def _render_separate(event: RefusalText | Citations) -> Json:
    """Render content that has a field next to the text."""
    if isinstance(event, RefusalText):
        return {"refusal": event.text}
    cited = [{"type": "url_citation", "url_citation": render_url_citation(entry)} for entry in event.entries]
    return {"annotations": cited}


def _join_lists(before: Any, value: Any) -> Any:
    """Return a field that is sent in parts: both lists together, or the last value."""
    return [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def _render_usage(usage: Usage) -> Json:
    written = {words.CACHE_WRITES: usage.written} if usage.written else {}
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, **written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
