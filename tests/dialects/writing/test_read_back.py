"""Every built-in dialect reads its own calls."""

from __future__ import annotations

import pytest

from tests.dialects.material import DIALECTS, parse_dialect
from vtc.dialects.writing import find_flaws


@pytest.mark.parametrize("name", DIALECTS)
def test_a_built_in_dialect_has_no_flaws(name: str) -> None:
    assert [*find_flaws(DIALECTS[name])] == []


@pytest.mark.parametrize(
    ("description", "key", "is_fatal"),
    [
        ("call: '@tool {name} {kwargs}@@'", "call", True),
        ("call: '<<CALL {name}>>{params}<<END>>', param: '<<{key}>> {value} <</{key}>>'", "param", False),
        ("call: '<<CALL {name}>>{params}<<END>>', param: '{key}: {value};'", "param", False),
    ],
)
def test_value_that_is_not_read_back_is_reported_by_key(description: str, key: str, is_fatal: bool) -> None:
    (flaw,) = find_flaws(parse_dialect(f"{{kind: dialect, name: x, {description}}}"))
    assert (flaw.key, flaw.is_fatal) == (key, is_fatal)
