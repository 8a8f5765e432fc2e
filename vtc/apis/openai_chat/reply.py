r"""Replies of chat completions: chunks of a stream, and whole ones.

    data: {"id": …, "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": null}]}
    data: {…, "delta": {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": …,
                                                                                        "arguments": "{\"path"}}]}}
    {"id": …, "choices": [{"index": 0, "message": {"content": …, "tool_calls": […]}, "finish_reason": "tool_calls"}]}

The older form of a call is `{"function_call": {"name": …, "arguments": …}}`. A call of a custom tool has `custom` with
`name` and `input` in place of `function`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.base import Decoded, KeepsNothing, Said
from vtc.apis.fields import CALL_FIELDS, cleaned, is_error, object_of, part_of
from vtc.apis.openai_chat.calls import LEGACY, entry_of, read_call, read_function_call
from vtc.events import (
    Call,
    CallDelta,
    Delta,
    End,
    Finish,
    Reason,
    Reasoning,
    ReasoningDelta,
    Rewritten,
    ServerError,
    Text,
    TextDelta,
    ToolCall,
)
from vtc.wire import sse
from vtc.wire.framing import Frame

REASONS: dict[str, Reason] = {
    "length": "length",
    "content_filter": "halted",
    "error": "halted",  # OpenRouter
    "abort": "halted",  # vLLM, SGLang
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


class _Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str | None = None
    role: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Any = None


class _Choice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    delta: _Delta
    index: int | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    stop_reason: Any = None
    token_ids: Any = None
    matched_stop: Any = None
    native_finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: Any = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class ChunkCodec(KeepsNothing, msgspec.Struct):
    """The chunks of a streamed reply. `legacy` writes calls in the older form; `drop` names fields to leave out."""

    framing: ClassVar[sse.EventStream] = sse.EventStream(last=b"data: [DONE]\n\n")

    legacy: bool = False
    drop: frozenset[str] = frozenset()
    roles: dict[int, Frame] = {}
    """By choice, the frame that has its role."""
    calls: dict[int, int] = {}
    """By choice, how many calls were written."""
    begun: dict[int, int] = {}
    """By choice, the number that upstream's next call should have."""

    def decode(self, frame: Frame) -> Decoded | None:
        """Read a chunk.

        Nearly all say text or reasoning of one choice, or its end. Decoded into the few fields that decide about
        these, a chunk costs a third of what plain data would.
        """
        data = frame.data
        if data is None:
            return None
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._decode_any(frame, data)
        choice = chunk.choices[0] if len(chunk.choices) == 1 else None
        if self.drop or choice is None or chunk.error or choice.delta.tool_calls or choice.delta.function_call:
            return self._decode_any(frame, data)
        delta, index = choice.delta, choice.index or 0
        thought = delta.reasoning_content or delta.reasoning
        is_first = bool(delta.role) and self._takes_role(frame, index)
        if choice.finish_reason and not thought:
            end = Finish(REASONS.get(choice.finish_reason, "stop"), index, choice.finish_reason)
            return Decoded((TextDelta(delta.content or "", index), end))
        if choice.finish_reason or bool(thought) == bool(delta.content):
            return self._decode_any(frame, data)
        alone = not (is_first or delta.refusal) and chunk.usage is choice.logprobs is choice.token_ids is None
        said = TextDelta(delta.content, index) if delta.content else ReasoningDelta(thought or "", index)
        return Decoded((said,), alone)

    def _decode_any(self, frame: Frame, data: bytes) -> Decoded | None:
        if data.strip() == b"[DONE]":
            return Decoded((End(),))
        chunk = object_of(data)
        entries = chunk.get("choices") if chunk else None
        failed = [ServerError(data)] if chunk and is_error(chunk) else []
        if failed and not entries:
            return Decoded((*failed,))
        if not isinstance(entries, list) or not {*map(type, entries)} <= {dict}:
            return None
        deltas = [delta for entry in entries for delta in _deltas(entry.get("index") or 0, entry, entry.get("delta"))]
        deltas = [self._counted(delta) if isinstance(delta, CallDelta) else delta for delta in deltas]
        came, (frame, chunk) = frame, cleaned(frame, chunk, self.drop, self.framing)
        entries, changed = chunk["choices"], None if frame is came else frame
        for entry in entries:
            if part_of(entry, "delta").get("role"):
                self._takes_role(frame, entry.get("index") or 0)
        if not entries:
            return Decoded(frame=changed) if changed else None
        return Decoded((*deltas, *failed), frame=changed)

    def _counted(self, piece: CallDelta) -> CallDelta:
        """Note the number of a call; one that leaves numbers out is not clean."""
        if piece.index is None or not piece.name:
            return piece
        begun = self.begun.get(piece.choice, 0)
        self.begun = {**self.begun, piece.choice: max(begun, piece.index + 1)}
        return replace(piece, clean=False) if piece.index > begun else piece

    def _takes_role(self, frame: Frame, index: int) -> bool:
        """True if this frame is the first with the role of a choice."""
        if index in self.roles:
            return False
        self.roles = {**self.roles, index: frame}
        return True

    def forward(self, frame: Frame) -> bytes:
        if not self.calls or b'"tool_calls"' not in frame.raw:
            return frame.raw
        # Calls that were read from the text before took the first places.
        chunk = object_of(frame.data) or {}
        for entry in chunk["choices"]:
            calls = part_of(entry, "delta").get("tool_calls")
            if calls:
                entry["delta"]["tool_calls"] = [self._numbered(call, entry.get("index") or 0) for call in calls]
        return self.framing.write(chunk, frame, first=True)

    def _numbered(self, call: Mapping[str, Any], choice: int) -> dict[str, Any]:
        return {**call, "index": (call.get("index") or 0) + self.calls.get(choice, 0)}

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        chunk = object_of(frame.data) or {}
        entries = chunk.get("choices") or []
        entry: dict[str, Any] = ([one for one in entries if (one.get("index") or 0) == choice] or [{}])[0]
        head = {key: value for key, value in chunk.items() if key not in ("choices", "usage")}
        if entry and entries[0] is not entry:
            chunk = head  # what is said of all choices leaves with the first
        ends = bool(entry.get("finish_reason")) and Finish in [type(one) for one in said]
        out: list[Mapping[str, Any]] = []

        def say(*deltas: dict[str, Any]) -> None:
            for delta in deltas:
                if choice not in self.roles:
                    self.roles = {**self.roles, choice: frame}
                    delta = {"role": "assistant", **delta}
                out.append({**head, "choices": [{"index": choice, "delta": delta, "finish_reason": None}]})

        if first:
            out += self._rest(chunk, head, entry, frame, ends=ends)
        for one in said:
            match one:
                case Text(text) | Rewritten(text=text) if text:
                    say({"content": text})
                case Reasoning(raw) if "reasoning_content" not in self.drop:
                    say({"reasoning_content": raw})
                case Call(call=call):
                    say(*self._call(call, choice))
                case CallDelta(index=index, source=source):
                    numbered = [] if index == LEGACY else [self._numbered(source, choice)]
                    say({"tool_calls": numbered} if numbered else {"function_call": source})
                case Finish() if ends:
                    reason = _reason(one, entry["finish_reason"], legacy=self.legacy)
                    out.append({**chunk, "choices": [{**entry, "delta": {}, "finish_reason": reason}]})
                case Finish():
                    ending = {"index": choice, "delta": {}, "finish_reason": _reason(one, None, legacy=self.legacy)}
                    out.append({**head, "choices": [ending]})
        return out

    def _rest(
        self, chunk: dict[str, Any], head: dict[str, Any], entry: Mapping[str, Any], frame: Frame, *, ends: bool
    ) -> list[Mapping[str, Any]]:
        """Write what a chunk says besides text, calls and its end; with an end, most of it leaves with that."""
        delta = {key: value for key, value in part_of(entry, "delta").items() if value not in (None, "", [])}
        others = {key: value for key, value in delta.items() if key not in ("content", *CALL_FIELDS)}
        content = delta.get("content")
        if isinstance(content, list) and (parts := _unsaid(content)):
            others["content"] = parts
        index = entry.get("index") or 0
        if "role" in others and self.roles.get(index) is not frame:
            del others["role"]
        elif "role" in others:
            others.setdefault("content", "")  # as the first chunk of a reply has it
        if ends:
            return [{**head, "choices": [{"index": index, "delta": others, "finish_reason": None}]}] if others else []
        more = [key for key, value in entry.items() if value is not None]
        if others or {*more} - {"index", "delta", "finish_reason"} or chunk.get("usage") is not None:
            return [{**chunk, "choices": [{**entry, "delta": others, "finish_reason": None}]}]
        return []

    def _call(self, call: ToolCall, choice: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write a call as two deltas: all but its arguments, then these."""
        index = self.calls.get(choice, 0)
        self.calls = {**self.calls, choice: index + 1}
        if self.legacy:
            head = {"name": call.name, "arguments": ""}
            return {"function_call": head}, {"function_call": {"arguments": call.arguments}}
        entry = entry_of(ToolCall(call.name, "", call.id, call.source))
        kind, field = ("custom", "input") if "custom" in entry else ("function", "arguments")
        rest = {"index": index, kind: {field: call.arguments}}
        return {"tool_calls": [{**entry, "index": index}]}, {"tool_calls": [rest]}

    def keep_alive(self) -> bytes:
        return b": keep-alive\n\n"


def _deltas(choice: int, entry: Mapping[str, Any], part: Any) -> list[Delta]:
    """Read one choice of a chunk; `part` is its delta."""
    part = part if isinstance(part, Mapping) else {}
    deltas: list[Delta] = []
    if thought := part.get("reasoning_content") or part.get("reasoning") or _thought(part.get("content")):
        deltas.append(ReasoningDelta(thought if isinstance(thought, str) else "", choice))
    deltas += [read_call(call, choice) for call in part.get("tool_calls") or ()]
    if call := part.get("function_call"):
        deltas.append(read_function_call(call, choice))
    deltas.append(TextDelta(_text(part.get("content")), choice))
    if reason := entry.get("finish_reason"):
        deltas.append(Finish(REASONS.get(reason, "stop"), choice, str(reason)))
    return deltas


def _text(content: Any) -> str:
    """The text of a message, which some servers send in parts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "".join([one if isinstance(one, str) else str(one.get("text") or "") for one in _parts(content)])


def _thought(content: Any) -> str:
    """The reasoning that stands among the parts of a message, as Mistral's servers send it."""
    return "".join([_text(one.get("thinking")) for one in _parts(content) if isinstance(one, dict)])


def _unsaid(content: Any) -> list[dict[str, Any]]:
    """The parts of a message that are no text, which a rewritten one keeps."""
    return [one for one in _parts(content) if isinstance(one, dict) and not one.get("text")]


def _parts(content: Any) -> list[str | dict[str, Any]]:
    return [one for one in content if isinstance(one, str | dict)] if isinstance(content, list) else []


def _reason(end: Finish, upstream: str | None, *, legacy: bool) -> str:
    """The finish reason; upstream's own word where it says the same."""
    if upstream and REASONS.get(upstream, "stop") == end.reason:
        return upstream
    if end.reason == "tool_calls":
        return "function_call" if legacy else "tool_calls"
    return upstream or "stop" if end.reason in ("other", "halted") else end.reason
