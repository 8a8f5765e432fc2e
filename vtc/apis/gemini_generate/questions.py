"""Answers what clients of Gemini's API ask besides replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtc.apis.base import Json, Question
from vtc.apis.gemini_generate.request import COUNTING, PLACE

GOOGLES = {PLACE.key, "x-goog-api-client"}
"""Headers of Google's clients, whose version may be `/v1`, too."""


def listed(names: Sequence[str]) -> Json:
    """Write a list of models."""
    methods = ["generateContent", "countTokens"]
    return {
        "models": [
            {"name": f"models/{one}", "displayName": one, "supportedGenerationMethods": methods} for one in names
        ]
    }


def _is_googles(query: str, headers: Mapping[str, str]) -> bool:
    return bool(GOOGLES & headers.keys()) or any(one.startswith(f"{PLACE.key_query}=") for one in query.split("&"))


QUESTIONS = (
    Question("models", "GET", "/models", listed, _is_googles),
    Question("count", "POST", COUNTING.path, lambda tokens: {"totalTokens": tokens}),
)
