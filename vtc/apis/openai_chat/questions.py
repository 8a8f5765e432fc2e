"""What clients of chat completions ask besides replies."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.apis.base import Json, Question


def listed(names: Sequence[str]) -> Json:
    """Write a list of models."""
    data = [{"id": one, "object": "model", "created": 0, "owned_by": "vtc"} for one in names]
    return {"object": "list", "data": data}


QUESTIONS = (Question("models", "GET", "/v1/models", listed),)
