"""No regular expression of VTC takes more than linear time; see `tests/expressions.py` for the measurement."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.expressions import Recorded, find_slowness
from tests.test_structure import ROOT

QUADRATIC = [
    r"<system-reminder>.*?</system-reminder>",
    r'</?(?:[|｜]|\\uff5c)[^"{}]*\Z',
    *(
        pytest.param(pattern, marks=pytest.mark.rest)
        for pattern in (r'"(?:[^"\\]|\\.)*+"|\{\{|\}\}', r"\s*\n", r"\w*\d")
    ),
]


@pytest.mark.parametrize("pattern", QUADRATIC)
def test_an_expression_that_is_quadratic_is_found(pattern: str) -> None:
    assert find_slowness(Recorded(re.compile(pattern, re.DOTALL), "here", ""))


def test_statement_of_a_definition_is_compared_with_its_use() -> None:
    compiled = re.compile(r"\s*\n")
    matching = Recorded(compiled, "here", "re.compile(…)  # used with match")
    bounded = Recorded(compiled, "here", "re.compile(…)  # for at most 1,000 characters")
    assert not find_slowness(matching)
    assert not find_slowness(bounded)
    matching.search("")
    bounded.match(" " * 1_001)
    assert find_slowness(matching) == "used with search, which its definition denies"
    assert find_slowness(bounded) == "used on a text of 1001 characters, which its definition denies"


@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.rest)])
def test_no_expression_takes_more_than_linear_time(one_in: int) -> None:
    """Run in a separate process, because each expression must be recorded from the first import on."""
    command = [sys.executable, "-m", "tests.expressions", str(one_in)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    how = "\nMake it linear, or state at its definition how it is used: tests/expressions.py"
    assert not found.stdout, found.stdout + how
    assert found.returncode == 0, found.stderr
