"""Two texts beside each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vtc.reporting import rows
from vtc.reporting.picture import LONG

LINES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


def test_equal_lines_stand_beside_each_other_and_others_are_marked() -> None:
    assert rows(["I look.", "<read>", "</read>", "end"], ["I look.", "-> read", "end"]) == [
        ("I look.", "I look.", False),
        ("<read>", "-> read", True),
        ("</read>", None, True),
        ("end", "end", False),
    ]


@given(LINES, LINES)
def test_nothing_is_lost_and_only_what_differs_is_marked(left: list[str], right: list[str]) -> None:
    found = rows(left, right)
    assert [row.left for row in found if row.left] == left
    assert [row.right for row in found if row.right] == right
    assert all(row.left == row.right for row in found if not row.changed)


def test_a_long_text_takes_no_seconds_for_its_common_lines() -> None:
    left = ["same"] * LONG + ["x"]
    assert [row.left for row in rows(left, left)] == left
