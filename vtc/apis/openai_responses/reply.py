"""Whole replies of Responses as the events of a stream, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vtc.apis.contract import Json
from vtc.apis.fields import part_of
from vtc.apis.openai_responses.items import END_EVENTS, FAILED_STATUSES, unfold_item
from vtc.apis.request import Request


def unfold_reply(reply: Any, _: Request | None = None) -> Iterator[Json]:
    """Unfold a whole reply to the numbered events of a stream."""
    return ({**event, "sequence_number": number} for number, event in enumerate(_unfold_response(reply)))


def _unfold_response(reply: Any) -> Iterator[dict[str, Any]]:
    begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = []
    for index, item in enumerate(reply["output"]):
        item = {**item, "id": item.get("id") or f"item_vtc{index}_{reply.get('id')}"}
        yield from unfold_item(item, index)
        output.append(item)
    status = reply.get("status")
    if status not in ("completed", "incomplete", *FAILED_STATUSES):
        status = "incomplete" if part_of(reply, "incomplete_details").get("reason") else "completed"
    yield {"type": f"response.{status}", "response": {**reply, "status": status, "output": output}}


def fold_events(events: Iterable[Json]) -> Json:
    """Return the whole reply, which the last event of a stream contains."""
    last = (*END_EVENTS, *(f"response.{status}" for status in FAILED_STATUSES))
    return next(event["response"] for event in events if event["type"] in last)
