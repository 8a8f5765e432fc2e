"""Run the inputs with which the fuzzer found errors, and a few of its seeds, without the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.__main__ import TARGET_NAMES, list_words, make_seeds
from fuzz.targets import TARGETS

CASES = Path(__file__).parent / "cases" / "fuzz"
SEEDS = 8
"""Number of seeds of each target to run."""


@pytest.mark.parametrize("case", sorted(CASES.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_earlier_findings_are_fixed(case: Path) -> None:
    TARGETS[case.parent.name](case.read_bytes())


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_inputs_that_it_begins_with(target: str) -> None:
    inputs = list(make_seeds(target))
    assert len(inputs) >= SEEDS
    for data in [b"", b"\0", *inputs[:: len(inputs) // SEEDS]]:
        TARGETS[target](data)


def test_every_target_is_known_by_its_name() -> None:
    assert set(TARGET_NAMES) == set(TARGETS)


def test_the_words_it_is_given() -> None:
    assert {"<tool_call>", "data: ", "accept: ", "“", "</example>"} <= set(list_words())
