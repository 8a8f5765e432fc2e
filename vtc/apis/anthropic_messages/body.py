"""Whole replies of Anthropic Messages.

{"id": "msg_1", "type": "message", "role": "assistant", "model": …, "content": [{"type": "text", "text": …},
 {"type": "tool_use", "id": …, "name": …, "input": {…}}], "stop_reason": "tool_use", "usage": {…}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.anthropic_messages.blocks import block_of
from vtc.apis.anthropic_messages.reply import REASONS, THOUGHTS, stopped, without
from vtc.apis.base import Decoded, KeepsNothing, Said
from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    Delta,
    Finish,
    Reasoning,
    ReasoningDelta,
    Rewritten,
    Text,
    TextDelta,
)
from vtc.json_text import decode, encode
from vtc.wire import whole
from vtc.wire.framing import Frame


class BodyCodec(KeepsNothing, msgspec.Struct):
    """A whole reply is one frame; its blocks of text are told apart by what ends each of them."""

    framing: ClassVar[whole.WholeBody] = whole.WholeBody()
    renumbers: ClassVar[bool] = False

    thinks: bool = False
    drop: frozenset[str] = frozenset()

    def decode(self, frame: Frame) -> Decoded | None:
        reply = decode(frame.raw, "replace")
        if not isinstance(reply, dict) or not isinstance(reply.get("content"), list):
            return None
        cleaned = None
        if self.drop and (clean := self._without(reply)) != reply:
            reply, body = clean, encode(clean)
            cleaned = Frame(body, body)
        reason = str(reply.get("stop_reason") or "end_turn")
        deltas = [*_deltas(reply["content"]), Finish(REASONS.get(reason, "stop"), said=reason)]
        return Decoded(tuple(deltas), frame=cleaned)

    def _without(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        clean = without(reply, self.drop)
        kinds = self.drop | {"thinking"} if self.drop & THOUGHTS else self.drop
        blocks = [one for one in reply["content"] if not isinstance(one, dict) or one.get("type") not in kinds]
        return {**clean, "content": blocks}

    def forward(self, frame: Frame) -> bytes:
        return frame.raw

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        reply = decode(frame.raw, "replace")
        parts = iter(_split(said))
        kept = {one.index for one in said if isinstance(one, CallDelta)}
        content: list[Any] = []
        for place, block in enumerate(reply["content"]):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text":
                part = next(parts, [])
                is_same = all(isinstance(one, Text) for one in part)
                is_same = is_same and "".join(one.raw for one in part if isinstance(one, Text)) == block.get("text")
                content += [block] if is_same else self._blocks(part)
            elif kind != "tool_use" or place in kept:
                content.append(block)
        rest = self._blocks(one for part in parts for one in part)  # added at the end
        if rest and content and content[-1].get("type") == rest[0]["type"] == "text":
            content[-1] = {**content[-1], "text": content[-1]["text"] + rest.pop(0)["text"]}
        reply["content"] = content + rest
        for one in said:
            if isinstance(one, Finish):
                reply = stopped(one, reply)
        return [reply]

    def _blocks(self, said: Iterable[Said]) -> list[dict[str, Any]]:
        """Write a block for each call, and for each run of text or thoughts."""
        blocks: list[dict[str, Any]] = []
        for one in said:
            match one:
                case Text(raw=text) | Rewritten(text=text) if text:
                    _add(blocks, "text", text, {})
                case Reasoning(raw=text) if self.thinks and not self.drop & THOUGHTS:
                    _add(blocks, "thinking", text, {"signature": ""})
                case Call(call=call):
                    blocks.append(block_of(call))
        return blocks

    def keep_alive(self) -> None:
        return None


def _add(blocks: list[dict[str, Any]], kind: str, text: str, more: Mapping[str, Any]) -> None:
    if blocks and blocks[-1]["type"] == kind:
        blocks[-1][kind] += text
    else:
        blocks.append({"type": kind, kind: text, **more})


def _split(said: Iterable[Said]) -> list[list[Said]]:
    """Split what is said at the ends of the blocks of text."""
    parts: list[list[Said]] = [[]]
    for one in said:
        if isinstance(one, BlockEnd):
            parts.append([])
        elif not isinstance(one, CallDelta | Finish):
            parts[-1].append(one)
    return parts


def _deltas(content: Iterable[Any]) -> Iterator[Delta]:
    for place, block in enumerate(content):
        match block:
            case {"type": "text", "text": str(text)}:
                yield TextDelta(text)
                yield BlockEnd()
            case {"type": "text"}:
                yield TextDelta("")
                yield BlockEnd()
            case {"type": "thinking"}:
                yield ReasoningDelta(str(block.get("thinking") or ""))
            case {"type": "tool_use"}:
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                yield CallDelta(place, block.get("id"), block.get("name") or "", arguments, block)
            case _:
                yield TextDelta("")  # the text before it is complete
