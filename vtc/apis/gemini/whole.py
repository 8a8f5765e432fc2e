"""Whole replies of generateContent: one chunk that says all, and replies that no model wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vtc.apis.base import Json, Request


def answer(request: Request, text: str, digest: str, _created: int) -> Json:
    """Make a whole reply that says a text."""
    content = {"role": "model", "parts": [{"text": text}]}
    head = {"modelVersion": request.model, "responseId": digest[:24]}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], **head}


def unfolded(reply: Any, _: Request | None = None) -> Iterator[Json]:
    """Tell a whole reply by one chunk."""
    if not isinstance(reply.get("candidates", reply.get("promptFeedback")), list | dict):
        raise TypeError("`candidates` is no list")
    yield reply


def folded(chunks: Iterable[Json]) -> Json:
    """Add up chunks to a whole reply; texts of a kind that follow each other are one."""
    reply: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        reply.update(chunk)
        for entry in chunk.get("candidates") or ():
            index = entry.get("index") or 0
            known = candidates.setdefault(index, {"content": {"role": "model", "parts": []}})
            known.update({key: value for key, value in entry.items() if key != "content"})
            for part in (entry.get("content") or {}).get("parts") or ():
                _add(known["content"]["parts"], part)
    return {**reply, "candidates": [*candidates.values()]}


def _add(parts: list[dict[str, Any]], part: Json) -> None:
    last = parts[-1] if parts else {}
    if part.keys() <= {"text", "thought"} and last.keys() == part.keys():
        parts[-1] = {**last, "text": last["text"] + part["text"]}
    else:
        parts.append({**part})
