"""The side questions of Ollama's clients: for models, and whether the server is alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtc.apis.contract import Json, Question
from vtc.events import ListedModel

SHOW_PATH = "/api/show"
_FAMILY = "vtc"
"""The architecture of a model, under which clients look for its window."""


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    entry: dict[str, Any] = {"size": 0, "digest": "", "details": {}}
    return {
        "models": [{"name": model.name, "model": model.name, "modified_at": model.date, **entry} for model in models]
    }


def render_model(model: ListedModel) -> Json:
    """Render the details of a model. It is assumed to accept tools unless the server reports otherwise."""
    abilities = {"tools": True, **model.abilities}
    info = {"general.architecture": _FAMILY, "general.basename": model.name}
    return {
        **dict.fromkeys(("modelfile", "parameters", "template"), ""),
        "details": {"family": _FAMILY},
        "model_info": {**info, **({f"{_FAMILY}.context_length": model.window} if model.window else {})},
        "capabilities": ["completion", *(name for name, able in abilities.items() if able)],
        "modified_at": model.date,
    }


QUESTIONS = (
    Question("alive", "HEAD", "/", lambda _: {}),
    Question("models", "GET", "/api/tags", render_model_list),
    # Clients want one that is not too old (Copilot 0.6.4).
    Question("version", "GET", "/api/version", lambda _: {"version": "0.15.0"}),
    Question("model", "POST", SHOW_PATH, render_model),
)
