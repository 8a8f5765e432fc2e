"""The side questions of clients of Gemini's API: for models and token counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtc.apis.contract import Json, Question
from vtc.apis.gemini_generate.request import COUNT_PLACE, PLACE
from vtc.events import ListedModel

GOOGLE_HEADERS = {PLACE.key, "x-goog-api-client"}
"""Headers of Google's clients, which may also use the version `/v1` in the path."""


def render_model(model: ListedModel) -> Json:
    """Render a model for the answer to a side question."""
    limits = {"inputTokenLimit": model.window, "outputTokenLimit": model.max_reply_tokens}
    return {
        "name": f"models/{model.name}",
        "displayName": model.name,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
        **{key: tokens for key, tokens in limits.items() if tokens},
        **({"thinking": model.abilities["thinking"]} if "thinking" in model.abilities else {}),
    }


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    return {"models": [*map(render_model, models)]}


def _is_google_client(query: str, headers: Mapping[str, str]) -> bool:
    return bool(GOOGLE_HEADERS & headers.keys()) or any(
        part.startswith(f"{PLACE.key_query}=") for part in query.split("&")
    )


QUESTIONS = (
    Question("models", "GET", "/models", render_model_list, _is_google_client),
    Question("model", "GET", PLACE.path.partition(":")[0], render_model, _is_google_client),
    Question("models", "GET", f"{PLACE.version}/models", render_model_list),
    Question("model", "GET", f"{PLACE.version}{PLACE.path.partition(':')[0]}", render_model),
    Question("count", "POST", COUNT_PLACE.path, lambda tokens: {"totalTokens": tokens}),
)
