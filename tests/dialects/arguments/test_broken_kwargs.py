"""Arguments of Python calls whose quotes are not escaped: the one reading there is, and none of two."""

from __future__ import annotations

import json

import pytest

from tests.test_hostile import steps
from vtc.dialects.arguments.kwargs import read


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('command="python -c \'print("hi")\'"', {"command": "python -c 'print(\"hi\")'"}),
        ('command="echo "a"", timeout=5', {"command": 'echo "a"', "timeout": 5}),
        ('city="Paris"days=2', {"city": "Paris", "days": 2}),
        ('content="a\n"b"\n"', {"content": 'a\n"b"\n'}),
    ],
)
def test_arguments_with_one_reading_are_read(text: str, arguments: object) -> None:
    found = read(text)
    assert found is not None
    assert found.repairs
    assert {key: json.loads(value) for key, value in found.values} == arguments


@pytest.mark.parametrize(
    "text",
    [
        'command="a" + x, description="b"',
        'command="a", "description="b"',
        'command="export X="y" && ls"',
        'command="a", command="b"c"',
        'command="a',
        'command=a"b"',
        "",
    ],
)
def test_what_can_be_read_in_two_ways_or_in_none_is_not(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("places", [1_000, 10_000])
def test_a_search_has_an_end(places: int) -> None:
    """A value that may end in a thousand places is looked at a thousand times, which took seconds."""
    text = "a='" + "', x='" * places
    assert read(text) is None
    assert steps(lambda: read(text)) < 300_000
