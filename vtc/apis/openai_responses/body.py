"""Whole replies of Responses: the response object, and the stream that says the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import Decoded, KeepsNothing, Said
from vtc.apis.openai_responses.incoming import REASONING_FIELDS, Event, finish_of, without
from vtc.apis.openai_responses.items import CALLS, Form, call_of, done_item, events_of, parted
from vtc.apis.openai_responses.reply import EventCodec
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
    """A whole reply: one frame."""

    framing: ClassVar[whole.WholeBody] = whole.WholeBody()
    renumbers: ClassVar[bool] = False

    form: Form = Form()
    drop: frozenset[str] = frozenset()

    def decode(self, frame: Frame) -> Decoded | None:
        reply = decode(frame.raw, "replace")
        if not isinstance(reply, dict) or not isinstance(reply.get("output"), list):
            return None
        clean = self._clean(reply)
        deltas = (*self._deltas(clean), finish_of(clean, self.form))
        if clean == reply:
            return Decoded(deltas)
        body = encode(clean)
        return Decoded(deltas, frame=Frame(body, body))

    def _clean(self, reply: Event) -> Event:
        """Leave out the fields of `drop`, and part the flat names of calls."""
        output = [
            parted(item, self.form) if item.get("type") in CALLS else item
            for item in reply["output"]
            if not (self.drop & REASONING_FIELDS and item.get("type") == "reasoning")
        ]
        return without({**reply, "output": output}, self.drop)

    def _deltas(self, reply: Event) -> Iterator[Delta]:
        for number, item in enumerate(reply["output"]):
            kind = item.get("type")
            if kind in CALLS:
                call = call_of(item, self.form)
                yield CallDelta(number, call.id, call.name, call.arguments, item)
            elif kind == "reasoning":
                parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                yield ReasoningDelta("".join(str(part.get("text") or "") for part in parts))
            elif kind == "message":
                for part in item.get("content") or ():
                    if part.get("type") == "output_text":
                        yield TextDelta(str(part.get("text") or ""))
                        yield BlockEnd()

    def forward(self, frame: Frame) -> bytes:
        return frame.raw

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        reply = decode(frame.raw, "replace")
        calls = {one.index for one in said if isinstance(one, CallDelta)}
        blocks: list[list[Said]] = [[]]
        for one in said:
            if isinstance(one, BlockEnd):
                blocks.append([])
            elif not isinstance(one, CallDelta | Finish):
                blocks[-1].append(one)
        output: list[dict[str, Any]] = []
        for number, item in enumerate(reply["output"]):
            if item.get("type") in CALLS:
                output += [item] if number in calls else []
            elif item.get("type") == "message":
                output += self._message(item, blocks)
            else:
                output.append(item)
        rest = [one for block in blocks for one in block]
        made = self._items(rest)
        if made and output and made[0]["type"] == output[-1].get("type") == "message" and output[-1]["content"]:
            # It goes on, as a stream of it would.
            *before, last = output[-1]["content"]
            text = str(last.get("text") or "") + made.pop(0)["content"][0]["text"]
            output[-1] = {**output[-1], "content": [*before, *self._items([Text(text)], last)[0]["content"]]}
        output += made
        tail = str(reply.get("id")).removeprefix("resp_")
        for place, item in enumerate(output):
            if not item.get("id"):
                prefix = {"message": "msg", "reasoning": "rs"}.get(str(item.get("type")), "item")
                output[place] = {**item, "id": f"{prefix}_vtc{place}_{tail}"}
        return [{**reply, "output": output}]

    def _message(self, item: dict[str, Any], blocks: list[list[Said]]) -> list[dict[str, Any]]:
        """Write a message; each of its texts takes the next of `blocks`.

        A call, or reasoning, parts it in two.
        """
        parts = item.get("content") or []
        texts = [part for part in parts if part.get("type") == "output_text"]
        taken = [blocks.pop(0) if blocks else [] for _ in texts]
        if all(_is_text(block, str(part.get("text") or "")) for block, part in zip(taken, texts, strict=True)):
            return [item]
        items: list[dict[str, Any]] = []
        for part in parts:
            made = self._items(taken.pop(0), part) if part.get("type") == "output_text" else [_message(part)]
            if items and made and items[-1]["type"] == made[0]["type"] == "message":
                items[-1]["content"] += made.pop(0)["content"]
            items += made
        rest = {key: value for key, value in item.items() if key != "content"}
        for one in items:
            if one["type"] == "message":
                one.update(rest)
                rest = {key: value for key, value in rest.items() if key != "id"}
        return items

    def _items(self, block: Sequence[Said], part: Event = {}) -> list[dict[str, Any]]:  # noqa: B006 - it is only read
        """Write one block as items, without ids."""
        items: list[dict[str, Any]] = []
        for one in block:
            last = items[-1]["content"][-1] if items and "content" in items[-1] else {}
            match one:
                case Text(text) | Rewritten(text=text) if text:
                    if last.get("type") == "output_text":
                        text = items.pop()["content"][0]["text"] + text
                    more: dict[str, Any] = {} if part.get("text") == text else {"annotations": [], "logprobs": []}
                    items.append(_message({**part, **more, "type": "output_text", "text": text}))
                case Reasoning(text) if not self.drop & REASONING_FIELDS:
                    if last.get("type") == "reasoning_text":
                        text = items.pop()["content"][0]["text"] + text
                    content = [{"type": "reasoning_text", "text": text}]
                    items.append({"type": "reasoning", "status": "completed", "summary": [], "content": content})
                case Call(call=call):
                    items.append(done_item(call, self.form))
        return items

    def keep_alive(self) -> None:
        return None


def _message(part: Event) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _is_text(block: Sequence[Said], text: str) -> bool:
    return all(isinstance(one, Text) for one in block) and "".join(_raw(one) for one in block) == text


def _raw(one: Said) -> str:
    return one.raw if isinstance(one, Text) else ""


def streamed(body: bytes) -> bytes:
    """Write a whole reply as events. Raises ValueError if it is none."""
    reply = decode(body)
    if not isinstance(reply, dict) or not isinstance(reply.get("output"), list):
        raise ValueError("the reply is no response")
    begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    output = []
    for index, item in enumerate(reply["output"]):
        item = {**item, "id": item.get("id") or f"item_vtc{index}_{reply.get('id')}"}
        events += events_of(item, index)
        output.append(item)
    status = reply.get("status")
    status = status if status in ("incomplete", "failed") else "completed"
    events.append({"type": f"response.{status}", "response": {**reply, "status": status, "output": output}})
    write = EventCodec.framing.write
    return b"".join(
        write({**event, "sequence_number": number}, None, first=True) for number, event in enumerate(events)
    )


def response(text: str, *, digest: str, model: str, created: int) -> bytes:
    """Write a whole reply that says `text`."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {
        "type": "message",
        "id": f"msg_{digest[:48]}",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    counts = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return encode(
        {
            "id": f"resp_{digest[:48]}",
            "object": "response",
            "created_at": created,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": model,
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {**counts, **details},
        }
    )
