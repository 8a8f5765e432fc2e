"""Rejections that users reported are fixed within one exchange: all for which rules were written, and most others."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import rejections
from benchmarks.rejections import MAX_UNFIXED_PERCENT, count_retries, load_cases, make_planner


@pytest.mark.every
@pytest.mark.parametrize("case", load_cases("reported"), ids=lambda case: case["source"])
def test_reported_rejection_is_fixed(case: dict[str, Any]) -> None:
    assert count_retries(case, make_planner()) is not None


def test_share_of_fixed_rejections_meets_the_target() -> None:
    for figure in rejections.measure():
        assert figure.median <= MAX_UNFIXED_PERCENT, figure.note


@pytest.mark.parametrize("case", load_cases("further"), ids=lambda case: case["source"])
def test_rejection_that_no_change_avoids_is_not_fixed(case: dict[str, Any]) -> None:
    if not case.get("fixable", True):
        assert count_retries(case, make_planner()) is None
