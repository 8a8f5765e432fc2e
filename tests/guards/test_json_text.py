"""Arguments as JSON text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.events import ToolCall
from vtc.guards.json_text import read, read_exactly, rewritten


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "[" * 100_000, "1" * 5_000, '"a\nb"'])
def test_what_is_no_json(text: str) -> None:
    for reading in (read, read_exactly):
        with pytest.raises(ValueError, match=r"."):
            reading(text)


@pytest.mark.parametrize(
    ("text", "exact"),
    [("0.1", True), ("1.50", True), ("1e5", True), ("123456789012345678901234567890", True), ("1e400", False),
     ("0.12345678901234567890123", False), ("9007199254740993.0", False)],
)  # fmt: skip
def test_numbers_that_would_not_be_written_as_they_were(text: str, exact: bool) -> None:
    call = ToolCall("x", f'{{"n": {text}}}')
    if exact:
        assert json.loads(rewritten(call, {"n": read_exactly(text), "é": 1})) == {"n": json.loads(text), "é": 1}
    else:
        with pytest.raises(ValueError, match="would not survive"):
            rewritten(call, {"n": 1})


@given(st.recursive(st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists, max_leaves=5))
def test_what_python_writes_is_read_exactly(value: object) -> None:
    assert read_exactly(json.dumps(value)) == value
