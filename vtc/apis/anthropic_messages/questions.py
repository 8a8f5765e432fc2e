"""What clients of Anthropic Messages ask besides replies."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.apis.base import Json, Question


def listed(names: Sequence[str]) -> Json:
    """Write a list of models."""
    data = [{"type": "model", "id": one, "display_name": one, "created_at": "1970-01-01T00:00:00Z"} for one in names]
    ends: Sequence[str | None] = names or (None,)
    return {"data": data, "has_more": False, "first_id": ends[0], "last_id": ends[-1]}


QUESTIONS = (
    Question(
        "alive", "HEAD", "/", lambda _: {}, lambda _, headers: "claude" in headers.get("user-agent", "").casefold()
    ),
    Question("models", "GET", "/v1/models", listed, lambda _, headers: "anthropic-version" in headers),
    Question("count", "POST", "/v1/messages/count_tokens", lambda count: {"input_tokens": count}),
)
