"""The side questions of clients of Responses: for models."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.apis.contract import Json, Question
from vtc.apis.openai_chat import questions as openai_chat
from vtc.events import ListedModel


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models.

    Codex reads the list under `models`, which is empty, because an entry there would replace its prompt.
    """
    return {**openai_chat.render_model_list(models), "models": []}


QUESTIONS = (Question("models", "GET", "/v1/models", render_model_list, lambda query, _: "client_version=" in query),)
"""Side questions: Codex sends its version when it asks for the models."""
