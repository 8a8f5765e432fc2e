"""Whole replies of Responses: the response object, and the stream that says the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vtc.apis.base import Json, Request
from vtc.apis.openai_responses.items import ENDS, FAILED, events_of, head_of, own_item, usage_of
from vtc.events import Usage


def unfolded(reply: Any, _: Request | None = None) -> Iterator[Json]:
    """Tell a whole reply by the events of a stream."""
    return ({**event, "sequence_number": number} for number, event in enumerate(_events(reply)))


def _events(reply: Any) -> Iterator[dict[str, Any]]:
    begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = []
    for index, item in enumerate(reply["output"]):
        item = {**item, "id": item.get("id") or f"item_vtc{index}_{reply.get('id')}"}
        yield from events_of(item, index)
        output.append(item)
    status = reply.get("status")
    status = status if status in ("incomplete", *FAILED) else "completed"
    yield {"type": f"response.{status}", "response": {**reply, "status": status, "output": output}}


def folded(events: Iterable[Json]) -> Json:
    """The whole reply, which the last event of a stream repeats."""
    last = (*ENDS, *(f"response.{status}" for status in FAILED))
    return next(event["response"] for event in events if event["type"] in last)


def answer(request: Request, text: str, digest: str, created: int) -> Json:
    """Make a whole reply that says a text."""
    output = [own_item("message", f"msg_{digest[:48]}", text, "completed")]
    head = head_of(f"resp_{digest[:48]}", request.model, created)
    return {**head, "status": "completed", "output": output, "usage": usage_of(Usage())}
