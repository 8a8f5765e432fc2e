"""What Ollama's clients ask besides replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtc.apis.base import Json, Question


def listed(names: Sequence[str]) -> Json:
    """Write a list of models."""
    entry: dict[str, Any] = {"modified_at": "1970-01-01T00:00:00Z", "size": 0, "digest": "", "details": {}}
    return {"models": [{"name": one, "model": one, **entry} for one in names]}


QUESTIONS = (
    Question("alive", "HEAD", "/", lambda _: {}),
    Question("models", "GET", "/api/tags", listed),
    Question("version", "GET", "/api/version", lambda _: {"version": "0.0.0"}),
    Question(
        "show",
        "POST",
        "/api/show",
        lambda _: {"details": {}, "model_info": {}, "capabilities": ["completion", "tools"]},
    ),
)
