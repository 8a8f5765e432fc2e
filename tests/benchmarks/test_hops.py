"""The path of a chunk through VTC does not grow: its calls, files and returns are the same in every run."""

from __future__ import annotations

import pytest

from benchmarks import hops


@pytest.mark.every
@pytest.mark.parametrize("api", hops.APIS)
@pytest.mark.parametrize("what", [case.label for case in hops.CASES])
def test_no_way_is_longer_than_its_limits(api: str, what: str) -> None:
    case, way = hops.record_cases()[f"{api}, {what}"]
    count, limits = hops.count_hops(way), case.limits[api]
    assert all(have <= most for have, most in zip(count, limits, strict=True)), (count, limits)
