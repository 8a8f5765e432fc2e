"""The side questions of clients of Anthropic Messages: for models and token counts, and whether the server is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtc.apis.contract import Json, Question
from vtc.events import ListedModel


def render_model(model: ListedModel) -> Json:
    """Render a model for the answer to a side question."""
    limits = {"max_input_tokens": model.window, "max_tokens": model.max_reply_tokens}
    head = {"type": "model", "id": model.name, "display_name": model.name, "created_at": model.date}
    return {**head, **{key: tokens for key, tokens in limits.items() if tokens}}


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    ends: Sequence[str | None] = [model.name for model in models] or (None,)
    return {"data": [*map(render_model, models)], "has_more": False, "first_id": ends[0], "last_id": ends[-1]}


def _is_anthropic_client(_: str, headers: Mapping[str, str]) -> bool:
    return "anthropic-version" in headers


QUESTIONS = (
    Question(
        "alive", "HEAD", "/", lambda _: {}, lambda _, headers: "claude" in headers.get("user-agent", "").casefold()
    ),
    Question("models", "GET", "/v1/models", render_model_list, _is_anthropic_client),
    Question("model", "GET", "/v1/models/{model}", render_model, _is_anthropic_client),
    Question("count", "POST", "/v1/messages/count_tokens", lambda count: {"input_tokens": count}),
)
