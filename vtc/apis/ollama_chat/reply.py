"""Replies of Ollama's chat API: lines of JSON, streamed unless the request disables it.

    {"model": …, "created_at": …, "message": {"role": "assistant", "content": " word"}, "done": false}
    {…, "message": {"content": "", "tool_calls": [{"function": {"name": "read", "arguments": {"path": …}}}]}, …}
    {…, "message": {"content": ""}, "done": true, "done_reason": "stop", "eval_count": 5}

Arguments are objects, calls are sent whole, and the reason is `stop` even with calls. A whole reply is one such line.
Results name their tool, and often no call: they are matched by order. The format is documented in ollama's
api/types.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from vtc.apis.calls import ToolCallAccumulator, format_arguments, render_as_text
from vtc.apis.clean import HOLLOW, OBJECT, WRITTEN, Table, get_text, is_clean
from vtc.apis.contract import Decoded, Json, ReplyEvent, find_missing_start
from vtc.apis.fields import count_of, drop_frame_fields, is_error, object_of, split_entries, text_at
from vtc.apis.ollama_chat.request_writer import entry_of
from vtc.apis.reasons import ReasonTable
from vtc.apis.request import Request
from vtc.apis.whole import add_piece
from vtc.events import (
    CUT_OFF,
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
    Start,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)
from vtc.wire.framing import Frame
from vtc.wire.ndjson import Lines

NAME = "ollama-chat"
REASONS = ReasonTable({"stop": "other", "load": "other", "unload": "other", "length": "length"})
_COMMON_FIELDS = ("model", "created_at")
_HARMLESS_FIELDS = (
    *("done_reason", "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count"),
    *("eval_duration", "logprobs", "remote_model", "remote_host"),
)
"""Fields of a line in which no client finds a call."""
_OWN_COUNTS = Origin(NAME, "usage", None, harmless=True)
"""The origin of counts that the forwarded line already contains, so that the encoder does not add them again."""
_CLEAN_CALL: Table = {"name": (WRITTEN,), "arguments": (HOLLOW, OBJECT)}
"""Kinds of value in a clean call."""
_MESSAGE_FIELDS = ("role", "content", "tool_calls")


class Decoder(msgspec.Struct):
    """Decodes the lines of a reply; `drop` names fields to remove."""

    framing: ClassVar[Lines] = Lines()
    drop: frozenset[str] = frozenset()
    begun: bool = False

    def decode(self, frame: Frame) -> Decoded | None:
        line = object_of(frame.data)
        if line and is_error(line):
            return Decoded(
                (Failure(str(line.get("error") or line.get("message") or "")),),
                (*_make_origins(line, {"error", *_COMMON_FIELDS}),),
            )
        if not line or not isinstance(line.get("message"), dict):
            return Decoded(keep_alive=True) if frame.data is None else None
        deltas = _read_deltas(line)
        received = frame
        if self.drop:
            frame, line = drop_frame_fields(frame, line, self.drop, self.framing)
        return Decoded((*deltas,), (*self._read_metadata(line),), None if frame is received else frame)

    def _read_metadata(self, line: Json) -> Iterator[FrameMetadata]:
        message, done = line["message"], line.get("done") is True
        if not self.begun:
            self.begun = True
            head = {key: line[key] for key in _COMMON_FIELDS if key in line}
            yield Start(model=str(line.get("model") or ""), own=Origin(NAME, "head", head, harmless=True))
        if message.get("tool_calls"):
            _, others = _split_calls(message)
            if others:
                yield Origin(NAME, "message.tool_calls", others)
        for key in message.keys() - {*_MESSAGE_FIELDS, "thinking"}:
            yield Origin(NAME, f"message.{key}", message[key], harmless=False)
        yield from _make_origins(line, {*_COMMON_FIELDS, "message", "done"})
        if done:
            prompt, completion = count_of(line, "prompt_eval_count"), count_of(line, "eval_count")
            if prompt + completion:
                yield Usage(prompt, completion, own=_OWN_COUNTS)


class Encoder(msgspec.Struct):
    """Encodes the lines of a reply. `ids` adds ids to calls; `drop` names fields to remove."""

    framing: ClassVar[Lines] = Lines()
    counts: ClassVar[bool] = False
    call_fields: ClassVar[frozenset[str]] = frozenset()
    in_step: ClassVar[bool] = True
    with_ids: bool = False
    drop: frozenset[str] = frozenset()
    head: Json = {}
    native: bool = False
    """True if the server speaks this API: its last line contains usage."""
    finish: Finish | None = None
    """The end of a bridged reply, which may arrive before usage."""
    usage: Json = {}
    """The token counts of a bridged reply, as fields of the last line."""
    ended: bool = False
    """True after the last line or the error of a bridged reply."""
    pieces: tuple[CallDelta, ...] = ()
    """Pieces of incomplete calls: this API has only whole calls."""

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        for event in events:
            if isinstance(event, Start):
                self._record_start(event)
        return True

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        lines: list[Json] = []
        if self.ended:
            return lines
        if not self.head and (start := find_missing_start(events)):
            self._record_start(start)
        # Step 1: collect this API's own fields, usage and the end.
        own: dict[str, dict[str, Any]] = {"message": {}, "line": {}}
        end: Finish | None = None
        for event in events:
            match event:
                case Start():
                    self._record_start(event)
                case Origin(api=api, kind=kind, value=value) if api == NAME:
                    place, _, key = kind.partition(".")
                    own[place][key] = value
                case Usage(own=None):
                    self.usage = {"prompt_eval_count": event.prompt, "eval_count": event.completion}
                    own["line"] |= self.usage
                case Finish():
                    end = event
        if own["message"] and not end:
            lines.append(self._render_line(**own["message"]))
        # Step 2: write the events in order.
        for event in events:
            match event:
                case Reasoning(text) | ReasoningDelta(text) if text and "thinking" not in self.drop:
                    lines.append(self._render_line(thinking=text))
                case Call(call=call) if self.pieces:  # earlier calls are still incomplete
                    number = max(piece.index or 0 for piece in self.pieces) + 1
                    self.pieces = (*self.pieces, CallDelta(number, call.id, call.name, call.arguments))
                case Call(call=call):
                    lines.append(self._render_call(call))
                case CallDelta(index=int()):
                    self.pieces = (*self.pieces, event)
                case CallDelta():
                    call = ToolCall(event.name, event.arguments or "{}", event.id)
                    lines.append(
                        self._render_line(tool_calls=[event.source]) if event.source else self._render_call(call)
                    )
                case Text(text) | Rewritten(text=text) | RefusalText(text) if text:
                    lines.append(self._render_line(content=text))
                case Failure(message=message):
                    lines += [*self._render_collected_calls(), {"error": message}]
                    self.ended = not self.native
        # Step 3: write the last line, once usage is known.
        if end:
            lines += self._render_collected_calls()
            self.finish = end
        if self.finish and (self.native or own["line"]):
            lines += self._render_last_line(
                self.finish, **own["line"], message=self._render_line(**own["message"])["message"]
            )
        return lines

    def end(self) -> list[Json]:
        is_open = self.head and not (self.ended or self.native)
        return self._render_last_line(self.finish or Finish("stop"), **self.usage) if is_open else []

    def _render_last_line(self, end: Finish, /, **fields: Any) -> list[Json]:
        """Render the last line, once."""
        self.finish, self.ended = None, not self.native
        reason = "length" if end.reason == "length" else "stop"
        reason = (end.native_reason if self.native else "") or reason
        return [{**self._render_line(), "done": True, "done_reason": reason, **fields}]

    def _render_collected_calls(self) -> list[Json]:
        """Render the calls that arrived in pieces."""
        calls, self.pieces = ToolCallAccumulator(self.pieces).calls(complete=False), ()
        return [*map(self._render_call, calls)]

    def _render_call(self, call: ToolCall) -> Json:
        """Render a call; as text if its arguments are no object, because this API has no other form for them."""
        if (text := render_as_text(call)) is not None:
            return self._render_line(content=text)
        return self._render_line(tool_calls=[entry_of(call, ids=self.with_ids)])

    def keep_alive(self) -> bytes | None:
        """Make a line without text, because clients parse each line; None before the first and after the last one."""
        return self.framing.encode([self._render_line()])[0] if self.head and not self.ended else None

    def _record_start(self, start: Start) -> None:
        if not self.head:
            self.native = start.own is not None
            head = {"model": start.model, "created_at": datetime.fromtimestamp(start.created, UTC).isoformat()}
            self.head = start.own.value if start.own else head

    def _render_line(self, **fields: Any) -> dict[str, Any]:
        return _render_line(self.head, **fields)


def _make_origins(line: Json, known: Collection[str]) -> Iterator[Origin]:
    """Yield the fields that only this API knows."""
    for key in line.keys() - known:
        yield Origin(NAME, f"line.{key}", line[key], harmless=key in _HARMLESS_FIELDS)


def _render_line(like: Mapping[str, Any], /, **fields: Any) -> dict[str, Any]:
    """Render a line of an unfinished reply."""
    head = {key: like[key] for key in _COMMON_FIELDS if key in like}
    return {**head, "message": {"role": "assistant", "content": "", **fields}, "done": False}


def _split_calls(message: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Split the calls of a message from entries that have no function."""
    entries, others = split_entries(message.get("tool_calls"))
    calls = [entry for entry in entries if isinstance(entry.get("function"), dict)]
    return calls, [*others, *(entry for entry in entries if not isinstance(entry.get("function"), dict))]


def _read_deltas(line: Mapping[str, Any]) -> list[Delta]:
    message = line["message"]
    deltas: list[Delta] = [ReasoningDelta(str(message["thinking"]))] if message.get("thinking") else []
    for entry in _split_calls(message)[0] if message.get("tool_calls") else ():
        function = entry["function"]
        arguments, clean = format_arguments(function.get("arguments")) or "{}", is_clean(function, _CLEAN_CALL)
        name = get_text(function.get("name"))
        deltas.append(CallDelta(None, text_at(entry, "id"), name, arguments, entry, clean=clean, last=True))
    if message.get("content") or not deltas:
        deltas.append(TextDelta(str(message.get("content") or "")))
    if line.get("done") is True:
        reason = str(line.get("done_reason") or "")
        meaning = REASONS[reason] if reason else "other"
        # Calls change no reason of this API.
        deltas.append(Finish(meaning if meaning in CUT_OFF else "other", native_reason=reason))
    return deltas


def unfold_reply(reply: Any, request: Request | None) -> Sequence[Mapping[str, Any]]:
    """Convert a whole reply to lines; to one if no client asked for them."""
    message = reply["message"]
    if not isinstance(message, dict):
        raise TypeError("`message` is not an object")
    if request is None:
        return [reply]
    lines = [_render_line(reply, **{key: message[key]}) for key in ("thinking", "content") if message.get(key)]
    lines += [_render_line(reply, tool_calls=[call]) for call in message.get("tool_calls") or ()]
    rest = {key: value for key, value in message.items() if key not in ("thinking", "tool_calls")}
    return [*lines, {**reply, "message": {**rest, "content": ""}}]


def fold_lines(lines: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Combine lines into a whole reply."""
    message: dict[str, Any] = {}
    line: Mapping[str, Any] = {}
    for line in lines:
        add_piece(message, line["message"])
    return {**line, "message": message}


def build_error(failure: Failure, _status: int) -> Json:
    """Render an error."""
    return {"error": failure.message}
