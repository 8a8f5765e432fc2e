"""Whole replies of Gemini's API as streams, and replies that no model wrote. A whole one has the form of an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtc.apis.base import Request
from vtc.apis.gemini_generate.words import camel


def answer(request: Request, text: str, digest: str, _created: int) -> dict[str, Any]:
    """Make a reply that says a text."""
    content = {"parts": [{"text": text}], "role": "model"}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
        "modelVersion": request.model,
        "responseId": digest[:24],
    }


def unfolded(reply: Any, _: Request | None) -> Iterator[Mapping[str, Any]]:
    """Tell a reply by events: one for each candidate. Raises KeyError if it is none."""
    said = camel(reply)
    candidates = said.get("candidates") or []
    if not candidates and "promptFeedback" not in said:
        raise KeyError("candidates")
    rest = {key: value for key, value in said.items() if key != "candidates"}
    *first, last = candidates or [None]
    for candidate in first:
        yield {"candidates": [candidate]}
    yield {"candidates": [last], **rest} if last else rest


def folded(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up events to a whole reply."""
    reply: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for event in events:
        reply.update(event)
        for one in event.get("candidates") or ():
            candidate = candidates.setdefault(one.get("index") or 0, {"content": {"parts": [], "role": "model"}})
            said = one.get("content") or {}
            for part in said.get("parts") or ():
                _add(candidate["content"]["parts"], part)
            candidate.update((key, value) for key, value in one.items() if key != "content")
    return {**reply, "candidates": [*candidates.values()]} if candidates else reply


def _add(parts: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Add a part; texts of one kind that follow each other are one."""
    last = parts[-1] if parts else {}
    if "text" not in part or part.keys() - {"text", "thought"}:
        parts.append({**part})
    elif "text" in last and not last.keys() - {"text", "thought"} and last.get("thought") == part.get("thought"):
        last["text"] += part["text"]
    elif part["text"] or not parts:
        parts.append({**part})
