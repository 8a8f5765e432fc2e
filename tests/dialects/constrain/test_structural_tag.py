"""The tree as a structural tag; `test_engines.py` tests decoding with xgrammar."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.constrain.checker import Checker
from tests.dialects.constrain.material import EXPRESSIBLE, SEARCHED, TOOLS, call, text_of
from tests.dialects.material import BODY_SLOTS, DIALECTS, fill_pattern
from vtc.dialects.constrain import Demand, render_constraint

FREE = [name for name in EXPRESSIBLE if DIALECTS[name].section_anchor != "message"]
FULL = {"path": "a.py", "content": "b", "mode": "new"}


def tag(name: str, **demand: Any) -> Any:
    return render_constraint(
        "structural_tag", DIALECTS[name], [*TOOLS.values()], Demand(**{"calls_only": False, **demand})
    )


@pytest.mark.parametrize("name", [name for name in SEARCHED if name in FREE])
def test_a_call_is_a_tag_that_one_trigger_opens(name: str) -> None:
    made, text = tag(name), text_of(name, call("write_file", FULL))
    (open_,) = [one for one in made["tags"] if text.startswith(one["begin"])]
    assert open_["begin"] in made["triggers"]
    assert Checker(open_["content"]["grammar"]).accepts(text[len(open_["begin"]) :])
    assert len(made["triggers"]) == len(made["tags"]) == len(set(made["triggers"]))
    assert not [(a, b) for a in made["triggers"] for b in made["triggers"] if a != b and a.startswith(b)]


PROSE = {"kimi-k2": ["functions."], "transcript": [], "qwen3-coder": ["<function "], "gigachat": ["function call"]}
"""Openings of calls that also occur in ordinary text: `<function f at 0x7f>`."""


@pytest.mark.parametrize("name", FREE)
def test_all_openings_of_the_dialect_are_triggers(name: str) -> None:
    """Otherwise a model that begins with another opening would silently not be constrained."""
    dialect = DIALECTS[name]
    made = tag(name)
    if made["type"] != "triggered_tags":
        return  # one grammar with the same triggers
    openings = [one.split("{")[0].lstrip() for one in dialect.sections]
    slots = dict.fromkeys(("id", "index", "number", *BODY_SLOTS), "") | {"name": "now"}
    calls = () if dialect.section_required else dialect.calls
    openings += [fill_pattern(one, "call", slots).lstrip() for one in calls]
    for opening in openings:
        is_prose = any(opening.startswith(one) for one in PROSE.get(name, []))
        assert is_prose or any(opening.startswith(one) or one.startswith(opening) for one in made["triggers"]), opening


def test_a_demand_is_one_grammar() -> None:
    assert tag("hermes", calls_only=True)["type"] == "grammar"


def test_only_one_call_stops_after_the_first() -> None:
    assert [tag("hermes", allows_multiple=several)["stop_after_first"] for several in (True, False)] == [False, True]


def test_thoughts_are_free() -> None:
    made = tag("hermes", reasoning_tags=(("<think>", "</think>"),), reasoning_closers=("</think>",))
    assert made["type"] == "or"
    assert [one["type"] for one in made["elements"]] == ["sequence", "sequence", "triggered_tags"]
    assert [one["elements"][0]["begin"] for one in made["elements"][:2]] == ["<think>", ""]


def test_many_tags_become_one_grammar_whose_rules_they_share() -> None:
    assert tag("deepseek-v3.2")["type"] == "grammar"
