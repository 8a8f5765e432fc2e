"""Ollama's own chat API (`POST /api/chat`): a reply is lines of JSON, and streamed unless the request says otherwise.

    {"model": …, "created_at": …, "message": {"role": "assistant", "content": " word"}, "done": false}
    {…, "message": {"content": "", "tool_calls": [{"function": {"name": "read", "arguments": {"path": …}}}]}, …}
    {…, "message": {"content": ""}, "done": true, "done_reason": "stop", "eval_count": 5}

Arguments are objects, calls come whole, and the reason stays `stop` with calls. A whole reply is one such line. Results
name their tool, and often no call: they are matched by their order. The format is that of ollama's api/types.go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc import events
from vtc.apis import base
from vtc.apis.base import Decoded, KeepsNothing, Said
from vtc.apis.fields import Group, cleaned, part_of
from vtc.apis.openai_chat import request as openai_chat
from vtc.events import Call, CallDelta, Delta, Finish, Reasoning, ReasoningDelta, TextDelta, ToolCall
from vtc.json_text import decode
from vtc.wire.framing import Frame
from vtc.wire.ndjson import Lines

_EVERY_LINE = ("model", "created_at")


class Request(openai_chat.Request):
    """A chat request; tools are declared as in chat completions. `form` is True if calls have ids."""

    NAME = "chat request of Ollama"

    def _decode(self) -> None:
        super()._decode()
        if "messages" not in self.fields or not self.model:
            raise ValueError("it needs `model` and `messages`")
        self.stream = self.fields.get("stream") is not False
        self.tool_choice, self.parallel, self.form = "auto", True, bool(self.call_ids)

    def _read(self) -> Iterator[Group]:
        waiting: list[ToolCall] = []  # calls without a result, the oldest first
        for (message,), places in super()._read():
            name, id_ = message.name or message.source.get("tool_name"), message.call_id
            fits = [one for one in waiting if name in (None, one.name) and (None in (id_, one.id) or id_ == one.id)]
            if message.role == "tool" and fits:
                waiting.remove(fits[0])
                name, id_ = fits[0].name, id_ or fits[0].id
            waiting += message.calls
            thought = str(message.source.get("thinking") or "")
            yield (replace(message, name=name, call_id=id_, reasoning=thought),), places

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
    renumbers: ClassVar[bool] = False

    ids: bool = False
    drop: frozenset[str] = frozenset()
    last: Frame | None = None

    def decode(self, frame: Frame) -> Decoded | None:
        try:
            line = decode(frame.data or b"null", "replace")
        except ValueError:
            return None
        if isinstance(line, dict) and "error" in line:
            return Decoded((Finish("length", said="error"),))  # it ends the reply: what waits leaves before it
        if not isinstance(line, dict) or not isinstance(line.get("message"), dict):
            return None  # nothing of this API
        self.last = cleaned(frame, line, self.drop, self.framing)[0] if self.drop else frame
        known = line.keys() <= {*_EVERY_LINE, "message", "done"} and line["message"].keys() <= {"role", "content"}
        return Decoded(tuple(_deltas(line)), known and not line.get("done"), self.last)

    def forward(self, frame: Frame) -> bytes:
        return frame.raw

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        line = decode(frame.data or b"{}", "replace")
        done = bool(line.get("done") or "error" in line)
        message = part_of(line, "message")
        rest = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
        parts = [{"content": "", **rest}] if first and rest and not done else []
        for one in said:
            match one:
                case Reasoning(raw):
                    parts += [] if "thinking" in self.drop else [{"content": "", "thinking": raw}]
                case Call(call=call):
                    parts.append({"content": "", "tool_calls": [_entry(call, ids=self.ids)]})
                case CallDelta(source=source):
                    parts.append({"content": "", "tool_calls": [source]})
                case events.Text(text) | events.Rewritten(text=text) if text:
                    parts.append({"content": text})
        head = {key: line[key] for key in _EVERY_LINE if key in line}
        lines = [{**head, "message": {"role": "assistant", **part}, "done": False} for part in parts]
        if "error" in line:
            lines.append(line)
        elif any(isinstance(one, Finish) for one in said):
            end = line if done else {**head, "done": True, "done_reason": "stop"}
            lines.append({**end, "message": {"role": "assistant", "content": "", **(rest if done else {})}})
        return [*lines]

    def keep_alive(self) -> bytes | None:
        """Copy the last line without its text, as clients read every line as JSON; None before the first."""
        line = decode(self.last.data or b"{}", "replace") if self.last else None
        return line and self.framing.write({**line, "message": {"role": "assistant", "content": ""}}, None, first=True)


def _deltas(line: Mapping[str, Any]) -> Iterable[Delta]:
    message = line["message"]
    if message.get("thinking"):
        yield ReasoningDelta(str(message["thinking"]))
    for entry in message.get("tool_calls") or ():
        arguments = json.dumps(entry["function"].get("arguments") or {}, ensure_ascii=False)
        yield CallDelta(None, entry.get("id"), str(entry["function"].get("name")), arguments, entry)
    yield TextDelta(str(message.get("content") or ""))
    if line.get("done"):
        reason = str(line.get("done_reason") or "")
        yield Finish("length" if reason == "length" else "other", said=reason)  # calls do not change it


def _unfolded(reply: Any, request: base.Request | None) -> Sequence[Mapping[str, Any]]:
    message, head = reply["message"], {key: reply[key] for key in _EVERY_LINE if key in reply}
    if request is None:
        return [reply]
    told = [{"thinking": message["thinking"]}] if message.get("thinking") else []
    told += [{"content": message["content"]}] if message.get("content") else []
    told += [{"tool_calls": [call]} for call in message.get("tool_calls") or ()]
    lines = [{**head, "message": {"role": "assistant", "content": "", **one}, "done": False} for one in told]
    rest = {key: value for key, value in message.items() if key not in ("thinking", "tool_calls")}
    return [*lines, {**reply, "message": {**rest, "content": ""}}]


def _folded(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    messages = [line["message"] for line in lines]
    message = {**messages[-1], "content": "".join(one["content"] for one in messages)}
    if thinking := "".join(one.get("thinking") or "" for one in messages):
        message["thinking"] = thinking
    if calls := [call for one in messages for call in one.get("tool_calls") or ()]:
        message["tool_calls"] = calls
    return {**lines[-1], "message": message}


def _answer(request: base.Request, text: str, _digest: str, created: int) -> Mapping[str, Any]:
    head = {"model": request.model, "created_at": datetime.fromtimestamp(created, UTC).isoformat()}
    return {**head, "message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop"}


API = base.Api(
    "ollama-chat", "/api/chat", Request, lambda form, drop: Codec(bool(form), drop), _unfolded, _folded, _answer
)
