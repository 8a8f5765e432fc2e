"""Quirks learned from rejections, by message."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.material import CASES, plain
from vtc.exchange.asking import rejection_rules
from vtc.exchange.asking.rejection_rules import RuleTable, load_rules
from vtc.exchange.asking.rejections import LearnedSteps, learn_steps
from vtc.exchange.asking.server_error import read_error
from vtc.profiles import ProfileError
from vtc.profiles.document import load_table

pytestmark = pytest.mark.every

RULES = Path(rejection_rules.__file__).with_name("rules")


def learn(status: int, words: str, known: Mapping[str, object]) -> LearnedSteps | None:
    """Learn from an error with one text."""
    return learn_steps(read_error(words.encode(), status), known)


WORDS = plain((CASES / "rejections" / "words.yaml").read_text("utf-8"))["tools"]
STEPS = plain((CASES / "rejections" / "steps.yaml").read_text("utf-8"))
ONE = [(name, value, words) for case in STEPS["one"] for name, value in case["step"].items() for words in case["words"]]
ALTERNATE = "conversation roles must alternate user/assistant/user/assistant/..."


@pytest.mark.parametrize("case", STEPS["limits"], ids=lambda case: case["words"][:30])
def test_limit_is_lowered_to_the_room_that_the_server_states(case: dict[str, Any]) -> None:
    found = learn(400, case["words"], {})
    assert (found and found.once) == case["limit"]
    assert found is None or [*found.steps] == ["context"]


@pytest.mark.halved
@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(("step", "value", "words"), ONE, ids=[words[:30] for *_, words in ONE])
def test_rejection_teaches_one_step(step: str, value: object, words: str, status: int) -> None:
    assert learn(status, words, {}) == LearnedSteps({step: value}, kept=value != "anew")
    again = learn(status, words, {step: value})
    assert again is None or step not in again.steps


@pytest.mark.halved
@pytest.mark.parametrize(
    ("words", "steps"),
    [(words, case["steps"]) for case in STEPS["sequences"] for words in case["words"]],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_repeated_rejection_teaches_the_next_step(words: str, steps: list[dict[str, object]]) -> None:
    found: list[object] = []
    known: dict[str, object] = {}
    while more := learn(400, words, known):
        found.append(more.steps)
        known |= more.steps
    assert found == steps


def test_messages_already_sent_as_user_are_not_sent_as_system() -> None:
    found = learn(400, ALTERNATE, {"system": "user"})
    assert found is not None
    assert "system" not in found.steps


def test_wider_removal_is_kept() -> None:
    assert learn(400, "messages.1: all messages must have non-empty content", {"empty": "parts"}) is None


def test_error_with_all_words_at_once_ends() -> None:
    words = "; ".join(words for _, _, words in ONE if "max_tokens" not in words)
    known: dict[str, object] = {}
    for _ in ONE:
        if (more := learn(400, words, known)) is None:
            break
        known |= more.steps
    else:
        pytest.fail(f"learned again a known step: {more}")
    assert (known["schemas"], known["ids"]) == ("plain", "alphanumeric9")


@pytest.mark.parametrize("words", STEPS["none"])
def test_other_errors_teach_nothing(words: str) -> None:
    assert learn(400, words, {}) is None


@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_rejection_of_tools_moves_them_into_the_prompt(status: int) -> None:
    assert [words for words in WORDS["refused"] if learn(status, words, {}) != LearnedSteps({"prompt": True})] == []


def test_rejection_of_something_else_keeps_native_tools() -> None:
    steps = ((words, learn(400, words, {})) for words in WORDS["others"])
    assert [words for words, found in steps if found and "prompt" in found.steps] == []


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_errors_about_anything_but_the_request_teach_no_step(status: int) -> None:
    assert learn(status, "This model does not support image inputs", {}) is None


GRAMMAR = {"constrain": object()}


@pytest.mark.parametrize(
    ("status", "words", "known", "step"),
    [
        (400, "Failed to compile structural_tag grammar", GRAMMAR, "constrain"),
        (400, "Failed to initialize samplers: failed to parse grammar", GRAMMAR, "constrain"),
        (422, "Extra inputs are not permitted", GRAMMAR, "constrain"),
        (501, "", GRAMMAR, "constrain"),
        (400, "tools.0.function.strict: Extra inputs are not permitted", {"strict": True}, "strict"),
        (500, "This server does not support grammar-constrained decoding", GRAMMAR, "constrain"),
        (500, "out of memory", GRAMMAR, None),
        (429, "grammar", GRAMMAR, None),
        (400, "", {"constrain": False}, None),
    ],
)
def test_grammar_is_removed_after_a_rejection_in_any_words(
    status: int, words: str, known: dict[str, object], step: str | None
) -> None:
    found = learn(status, words, known)
    assert found == (LearnedSteps({step: False}) if step else None)


def test_words_about_another_cause_have_priority() -> None:
    found = learn(400, "System message must be at the beginning.", GRAMMAR)
    assert found is not None
    assert "system" in found.steps


@pytest.mark.parametrize(
    ("row", "place", "fault"),
    [
        ("{priority: 1, steps: {nullz: true}, text: [{words: [a]}]}", "rules[0]", "nullz"),
        ("{priority: 1, steps: {ids: long}, text: [{words: [a]}]}", "rules[0]", "long"),
        ("{priority: 1, text: [{words: [a, '(']}]}", "rules[0].text[0].words[1]", "'(' is not a regular expression"),
        ("{priority: 1, text: [{words: a}]}", "rules[0].text[0].words", 'must be a list, not "a"; write [a]'),
        ("{priority: 1, txt: [{words: [a]}]}", "rules[0].txt", "did you mean 'text'?"),
        ("{priority: 1, do: leave}", "rules[0].do", "leave"),
        ("{priority: 1000}", "", "two rules have the same priority"),
    ],
)
def test_invalid_rule_is_an_error_with_its_place(row: str, place: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.yaml"
    before, head, after = (RULES / "steps.yaml").read_text("utf-8").partition("rules:\n")
    file.write_text(f"{before}{head}  - {row}\n{after}", "utf-8")
    with pytest.raises(ProfileError) as error:
        load_table(file, RuleTable)
    (problem,) = (problem for problem in error.value.problems if problem.key == place)
    assert problem.file == str(file)
    assert not place or problem.line == before.count("\n") + 2
    assert fault in problem.message


def test_a_file_lists_its_rules_by_priority_and_rules_that_correct_fields_follow_each_other() -> None:
    for file in RULES.iterdir():
        priorities = [rule.priority for rule in load_table(file, RuleTable).rules]
        assert priorities == sorted(priorities)
    corrects = [bool(rule.correction) for rule in load_rules().by_priority]
    assert sum(first is not second for first, second in pairwise(corrects)) == 2


def test_a_rule_of_an_api_counts_only_for_requests_in_it() -> None:
    words = b"This model is only supported in v1/responses and not in v1/chat/completions."
    learned = {api: learn_steps(read_error(words, 404, api), {}) for api in ("openai-chat", "anthropic-messages", "")}
    assert learned["openai-chat"] == learned[""] == LearnedSteps({"api": "openai-responses"})
    assert learned["anthropic-messages"] != learned[""]
