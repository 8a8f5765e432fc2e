"""Items of a streamed reply that no event began: some servers tell them by their end alone, or by that of the reply.

A client of this API finds them there. For one of another they are told at that place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtc.apis.base import Json
from vtc.apis.openai_responses.items import CALLS, NAME, Form, action_of, call_of, is_call, text_of
from vtc.events import BlockEnd, CallDelta, Delta, Origin, ReasoningDelta, Seal, TextDelta


def told(item: Json, number: int, form: Form) -> Iterator[Delta | Origin | Seal]:
    """Tell a whole item by deltas, and by what stands beside them."""
    kind = str(item.get("type") or "message")
    if kind in CALLS:
        call = call_of(item, form)
        yield CallDelta(number, call.id, call.name, call.arguments, item, last=True)
    elif is_call(kind):
        name = kind.removesuffix("_call")
        yield CallDelta(number, item.get("call_id") or item.get("id"), name, action_of(item), item, last=True)
    elif kind == "reasoning":
        texts = [str(text_of(part) or "") for part in (*_parts(item, "summary"), *_parts(item, "content"))]
        yield ReasoningDelta("".join(texts))
        if isinstance(item.get("encrypted_content"), str):
            yield Seal(encrypted=item["encrypted_content"])
    elif kind == "message":
        for part in _parts(item, "content"):
            text = str(text_of(part) or "")
            yield TextDelta(text, refusal=part.get("type") == "refusal")
        yield BlockEnd()
    else:
        yield Origin(NAME, "event", (None, {"item": item}), lost=kind)


def left(output: Any, begun: Sequence[str]) -> list[Json]:
    """Find the items of a whole reply that follow those which began, by their types; none if these differ."""
    items = [one for one in output if isinstance(one, Mapping)] if isinstance(output, list) else []
    kinds = [str(one.get("type") or "message") for one in items]
    return items[len(begun) :] if kinds[: len(begun)] == [*begun] else []


def _parts(item: Json, key: str) -> list[Json]:
    found = item.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
