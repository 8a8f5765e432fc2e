"""Ollama's own chat API (`POST /api/chat`): a reply is lines of JSON, and streamed unless the request says otherwise.

    {"model": …, "created_at": …, "message": {"role": "assistant", "content": " word"}, "done": false}
    {…, "message": {"content": "", "tool_calls": [{"function": {"name": "read", "arguments": {"path": …}}}]}, …}
    {…, "message": {"content": ""}, "done": true, "done_reason": "stop", "eval_count": 5}

Arguments are objects, calls come whole, and the reason stays `stop` with calls. A whole reply is one such line. Results
name their tool, and often no call: they are matched by their order. The format is that of ollama's api/types.go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from vtc import events
from vtc.apis import base
from vtc.apis.base import Decoded, KeepsNothing, Said
from vtc.apis.fields import cleaned, is_error, object_of
from vtc.apis.folding import add
from vtc.apis.openai_chat import request as openai_chat
from vtc.apis.openai_chat.reply import REASONS
from vtc.apis.tool_calls import arguments_text
from vtc.events import (
    CUT_OFF,
    Call,
    CallDelta,
    Delta,
    Finish,
    Reasoning,
    ReasoningDelta,
    ServerError,
    TextDelta,
    ToolCall,
)
from vtc.wire.framing import Frame
from vtc.wire.ndjson import Lines

_EVERY_LINE = ("model", "created_at")
_SAID = ("role", "content", "tool_calls")


class Request(openai_chat.Request):
    """A chat request; tools are declared as in chat completions. `form` is True if calls have ids."""

    NAME = "chat request of Ollama"

    def _decode(self) -> None:
        super()._decode()
        if "messages" not in self.fields or not self.model:
            raise ValueError("it needs `model` and `messages`")
        self.stream = self.fields.get("stream") is not False
        self.tool_choice, self.parallel, self.form = "auto", True, bool(self.call_ids)

    def _add(self, entries: list[Any], message: events.Message, called: Collection[str | None]) -> None:
        super()._add(entries, message, called)
        entry = entries[-1]
        entry["content"] = entry["content"] or ""
        if message.calls:
            entry["tool_calls"] = [_entry(call, ids=self.form) for call in message.calls]
        if message.role == "tool":
            entry["tool_name"] = message.name


def _entry(call: ToolCall, *, ids: bool) -> dict[str, Any]:
    """Write a call; with an id only for clients that know ids, as others fail at it."""
    function = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "function": function} if ids else {"function": function}


class Codec(KeepsNothing, msgspec.Struct):
    """The lines of a reply. `ids` gives calls ids; `drop` names fields to leave out."""

    framing: ClassVar[Lines] = Lines()
    ids: bool = False
    drop: frozenset[str] = frozenset()
    last: Mapping[str, Any] | None = None

    def decode(self, frame: Frame) -> Decoded | None:
        line = object_of(frame.data)
        if line and is_error(line):
            return Decoded((ServerError(frame.data or b""),))
        if not line or not isinstance(line.get("message"), dict):
            return None  # nothing of this API
        known = line.keys() <= {*_EVERY_LINE, "message", "done"} and line["message"].keys() <= {"role", "content"}
        deltas = _deltas(line)
        frame, self.last = cleaned(frame, line, self.drop, self.framing) if self.drop else (frame, line)
        return Decoded(tuple(deltas), known and not line.get("done"), frame)

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        line = object_of(frame.data) or {}
        done = bool(line.get("done"))
        rest = {key: value for key, value in (line.get("message") or {}).items() if key not in _SAID}
        lines: list[Mapping[str, Any]] = [_part(line, **rest)] if first and rest and not done else []
        for one in said:
            match one:
                case Reasoning(raw) if "thinking" not in self.drop:
                    lines.append(_part(line, thinking=raw))
                case Call(call=call):
                    lines.append(_part(line, tool_calls=[_entry(call, ids=self.ids)]))
                case CallDelta(source=source):
                    lines.append(_part(line, tool_calls=[source]))
                case events.Text(text) | events.Rewritten(text=text) if text:
                    lines.append(_part(line, content=text))
                case Finish():
                    end = line if done else {**_part(line), "done": True, "done_reason": "stop"}
                    lines.append({**end, "message": {"role": "assistant", "content": "", **(rest if done else {})}})
        return lines

    def keep_alive(self) -> bytes | None:
        """Make a line without text, as clients read every line as JSON; None before the first."""
        return self.framing.write(_part(self.last), None, first=True) if self.last else None


def _part(like: Mapping[str, Any], **said: Any) -> dict[str, Any]:
    """Write a line of a reply that goes on."""
    head = {key: like[key] for key in _EVERY_LINE if key in like}
    return {**head, "message": {"role": "assistant", "content": "", **said}, "done": False}


def _deltas(line: Mapping[str, Any]) -> list[Delta]:
    message = line["message"]
    deltas: list[Delta] = [ReasoningDelta(str(message["thinking"]))] if message.get("thinking") else []
    for entry in message.get("tool_calls") or ():
        arguments = arguments_text(entry["function"].get("arguments")) or "{}"
        deltas.append(CallDelta(None, entry.get("id"), str(entry["function"].get("name")), arguments, entry))
    deltas.append(TextDelta(str(message.get("content") or "")))
    if line.get("done"):
        reason = str(line.get("done_reason") or "")
        meaning = REASONS.get(reason, "stop")
        # Calls change no reason of this API.
        deltas.append(Finish(meaning if meaning in CUT_OFF else "other", said=reason))
    return deltas


def _unfolded(reply: Any, request: base.Request | None) -> Sequence[Mapping[str, Any]]:
    message = reply["message"]
    if request is None:
        return [reply]
    told = [_part(reply, **{key: message[key]}) for key in ("thinking", "content") if message.get(key)]
    told += [_part(reply, tool_calls=[call]) for call in message.get("tool_calls") or ()]
    rest = {key: value for key, value in message.items() if key not in ("thinking", "tool_calls")}
    return [*told, {**reply, "message": {**rest, "content": ""}}]


def _folded(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    message: dict[str, Any] = {}
    for line in lines:
        add(message, line["message"])
    return {**lines[-1], "message": message}


def _answer(request: base.Request, text: str, _digest: str, created: int) -> Mapping[str, Any]:
    head = {"model": request.model, "created_at": datetime.fromtimestamp(created, UTC).isoformat()}
    return {**_part(head, content=text), "done": True, "done_reason": "stop"}


API = base.Api(
    "ollama-chat", "/api/chat", Request, lambda form, drop: Codec(bool(form), drop), _unfolded, _folded, _answer
)
