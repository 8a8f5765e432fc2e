"""Whole replies of generateContent: one chunk that says all, and replies that no model wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vtc.apis.base import Json, Request
from vtc.apis.fields import part_of


def answer(request: Request, text: str, digest: str, _created: int) -> Json:
    """Make a whole reply that says a text."""
    content = {"role": "model", "parts": [{"text": text}]}
    head = {"responseId": digest[:24], "modelVersion": request.model}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], **head}


def unfolded(reply: Any, _: Request | None) -> Iterator[Json]:
    """Tell a whole reply by one chunk. Raises TypeError if it is none."""
    if not isinstance(reply.get("candidates", part_of(reply, "promptFeedback") and []), list):
        raise TypeError("it has no list of `candidates`")
    yield reply


def folded(chunks: Iterable[Json]) -> Json:
    """Add up chunks to a whole reply; texts of a kind that follow each other are one."""
    reply: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        reply.update(chunk)
        for entry in chunk.get("candidates") or ():
            candidate = candidates.setdefault(entry.get("index") or 0, {"content": {"role": "model", "parts": []}})
            candidate.update((key, value) for key, value in entry.items() if key != "content")
            for part in part_of(entry, "content").get("parts") or ():
                _add(candidate["content"]["parts"], part)
    return {**reply, "candidates": [*candidates.values()]}


def _add(parts: list[dict[str, Any]], part: Json) -> None:
    last = parts[-1] if parts else {}
    if "text" in part and part.keys() <= {"text", "thought"} and last.keys() == part.keys():
        parts[-1] = {**last, "text": last["text"] + part["text"]}
    else:
        parts.append({**part})
