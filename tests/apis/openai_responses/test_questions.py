"""The list of models that Codex reads."""

from __future__ import annotations

from vtc.apis.openai_responses.questions import render_model_list
from vtc.events import ListedModel


def test_codex_finds_the_list_that_it_demands_and_nothing_in_it() -> None:
    """An entry would have to contain Codex's prompt, and would replace it."""
    found = render_model_list([ListedModel(name="a")])
    assert (found["models"], [one["id"] for one in found["data"]]) == ([], ["a"])
