"""What clients of Responses ask besides replies: Codex says its version when it asks for the models."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.apis.base import Json, Question
from vtc.apis.openai_chat import questions


def listed(names: Sequence[str]) -> Json:
    """Write a list of models. Codex reads another one, where an entry would replace its prompt."""
    return {**questions.listed(names), "models": []}


QUESTIONS = (Question("models", "GET", "/v1/models", listed, lambda query, _: "client_version=" in query),)
