"""Recognize an unknown model by the marks of a known model in its replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from vtc.events import Message
from vtc.profiles.memory import Learned
from vtc.profiles.schema import ModelProfile
from vtc.profiles.stack import UNKNOWN_MODEL

_BEGINNING = 80
"""Characters of a reply that may contain its first mark."""


def _list_beginnings(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the beginning of each past reply of a conversation."""
    for message in messages:
        texts = [part for part in message.content if type(part) is str] if message.role == "assistant" else ()
        if texts and texts[0]:
            yield texts[0][:_BEGINNING].lstrip()


def recognize_model(
    models: Sequence[ModelProfile], messages: Iterable[Message], learned: Learned
) -> ModelProfile | None:
    """Find the known model whose marks the replies have; only its settings for reading replies are used."""
    marks = [(model, model.shown_by) for model in models]
    called = (model for model, shown_by in marks if learned.dialect in shown_by.dialects)
    begun = (
        model
        for begins in _list_beginnings(messages)
        for model, shown_by in marks
        if shown_by.begins and begins.startswith(shown_by.begins)
    )
    if (model := next(chain(called, begun), None)) is None:
        return None
    keys = ("accept", "blocks", "reasoning", "recalls", "markers", "answer", "special_tokens", "description")
    return replace(UNKNOWN_MODEL, **{key: getattr(model, key) for key in keys})
