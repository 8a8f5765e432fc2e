"""The side questions of clients of chat completions: for models."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.apis.contract import Json, Question
from vtc.events import ListedModel


def render_model(model: ListedModel) -> Json:
    """Render a model; its window has the field names of vLLM and OpenRouter."""
    window = dict.fromkeys(("context_length", "max_model_len"), model.window) if model.window else {}
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "vtc", **window}


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    return {"object": "list", "data": [*map(render_model, models)]}


QUESTIONS = (
    Question("models", "GET", "/v1/models", render_model_list),
    Question("model", "GET", "/v1/models/{model}", render_model),
)
