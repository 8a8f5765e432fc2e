"""The list of models for clients of chat completions."""

from __future__ import annotations

from openai.types import Model

from vtc.apis.openai_chat.questions import render_model_list
from vtc.events import ListedModel


def test_the_sdk_reads_each_model() -> None:
    assert [
        Model.model_validate(one, strict=True).id
        for one in render_model_list([ListedModel(name="a"), ListedModel(name="b", window=9)])["data"]
    ] == ["a", "b"]
