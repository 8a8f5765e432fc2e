"""Broken JSON: which reading is found, and where there is none or more than one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtc.dialects import Repair
from vtc.dialects.arguments.broken_json import MOST_QUOTES, ExpectedObject, read

TEXT = {"type": "string"}
FILE = {
    "type": "object",
    "properties": {"path": TEXT, "content": TEXT, "mode": TEXT, "tags": {"type": "array", "items": TEXT}},
    "required": ["path", "content"],
}
COMMA, COLON, QUOTE = Repair.JSON_MISSING_COMMA, Repair.JSON_MISSING_COLON, Repair.JSON_MISSING_QUOTE
INNER = Repair.JSON_INNER_QUOTES


def found(text: str, schema: Any = FILE, *, closed: bool = True) -> tuple[Any, list[str]] | None:
    """The value and the repairs."""
    reading = read(text, ExpectedObject(schema), closed=closed)
    return reading and (json.loads(reading.text), reading.repairs)


@pytest.mark.parametrize(
    ("text", "content", "repairs"),
    [
        ('{"path": "a" "content": "x\\n\\n"}', "x\n\n", [COMMA]),
        ('{"path": "a""content": " x "}', " x ", [COMMA]),
        ('{"path" "a", "content": "x\\r\\n"}', "x\r\n", [COLON]),
        ('{path": "a", "content": "x"}', "x", [QUOTE]),
        ('{"path: "a", "content": "x"}', "x", [QUOTE]),
        ('{path: "a", content: "x"}', "x", [QUOTE]),
        ('{"path="a", "content": "x"}', "x", [QUOTE]),
        ('{"path": "a", "content": ls -la}', "ls -la", [QUOTE]),
        ('{"path": "a", "content": "x" ', "x", [Repair.JSON_CUT]),
        ('{"path": "a", // the file\n "content": "x"}', "x", [Repair.JSON_COMMENT]),
        ('{/* one */ "path": "a", # two\n "content": "x"}', "x", [Repair.JSON_COMMENT]),
        ("{'path': 'a', 'content': 'it\\'s \"x\"\\n'}", 'it\'s "x"\n', [Repair.PYTHON_LITERAL]),
        ("{'path': 'a', 'content': 'it's'}", "it's", [Repair.PYTHON_LITERAL, INNER]),
        ("{'path': \"a\", 'content': '\\x41'}", "A", [Repair.PYTHON_LITERAL]),
        ('{"path": "a", "content": "print("x")\\n"}', 'print("x")\n', [INNER]),
        ('{"path": "a", "content": "end\\n    """"}', 'end\n    """', [INNER]),
        ('{"path": "a", "content": "5" disk"}', '5" disk', [INNER]),
        ('{"path": "a", "content": "{"a": "b", "c": 1}"}', '{"a": "b", "c": 1}', [INNER]),
        ('{"path": "a", "content": "print("x", "y")"}', 'print("x", "y")', [INNER]),
    ],
)
def test_marks_of_structure_that_are_missing_are_found(text: str, content: str, repairs: list[str]) -> None:
    assert found(text) == ({"path": "a", "content": content}, repairs)


def test_a_quote_ends_a_string_where_a_key_of_the_tool_follows() -> None:
    value = {"path": "a", "content": 'say "x"', "mode": "w"}
    assert found('{"path": "a", "content": "say "x"", "mode": "w"}') == (value, [INNER])
    assert found('{"path": "a", "content": "say "x"" "mode": "w"}') == (value, [COMMA, INNER])


def test_a_key_stays_in_the_object_that_it_stands_in() -> None:
    schema = {"properties": {"query": TEXT, "options": {"type": "object"}, "mode": TEXT}}
    written = '{"query": "a", "options": {"deep": {"k": "b"c"}}, "mode": "slow"}'
    assert found(written, schema) == ({"query": "a", "options": {"deep": {"k": 'b"c'}}, "mode": "slow"}, [INNER])


def test_an_item_of_a_list_keeps_its_quotes() -> None:
    written = '{"path": "a", "content": "b", "tags": ["x", ""q""]}'
    assert found(written) == ({"path": "a", "content": "b", "tags": ["x", '"q"']}, [INNER])


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a", "content": "x", "cwd" "y"}',  # no key of the tool
        '{"path": "a", "content": "x" "cwd": "y"}',
        '{"path": "a", "content": "say "x"", "cwd": "y"}',
        '{"path": "a", "content": "{"a": "b", "mode": "x"}"}',  # the string's own, or the tool's?
        '{"path": "a", "content": "x" + "y"}',
        '{"path": "a", "content": "x", "y", "mode": "w"}',
        '{"path": "a", "content": "x", "tags": ["a" "b"]}',  # Python adds them up
        '{"path": "a" "mode": "w"}',  # what the tool requires is missing
        '{"path" "a", "content": "x',
        '{"path" "a", "content": "x"} and so on',
        '{"path" "a", "path": "b", "content": "x"}',
        "{'path': 'a', 'content': 'x' 'y'}",
        "{'path': 'a', 'content': '\\0'}",  # Python reads that otherwise than JSON
        '{"path" "a", "content": 1 2}',
        "[" * 1000,
    ],
)
def test_more_than_one_reading_or_none_is_none(text: str) -> None:
    assert found(text) is None


def test_last_braces_may_be_missing_only_before_a_closer() -> None:
    assert found('{"path" "a", "content": "x"', closed=False) is None
    assert found('{"path" "a", "content": "x"', closed=True) is not None


def test_the_name_of_the_tool_says_which_keys_its_arguments_have() -> None:
    held = {"type": "object", "properties": {**FILE["properties"], "query": TEXT}}
    envelope = {"type": "object", "properties": {"name": TEXT, "arguments": {}}}
    expected = ExpectedObject(envelope, frozenset({"name"}), frozenset({"arguments"}), {"write": FILE, "": held}.get)
    written = '{"name": "write", "arguments": {"path": "a" "content": "x"}}'
    assert read(written, expected, closed=True) is not None
    assert read(written.replace("content", "query"), expected, closed=True) is None


@pytest.mark.parametrize(
    "piece",
    [
        '"',
        "'",
        '","',
        '": "',
        '"a": ',
        '", "a": "',
        '" "mode": "',
        "{",
        "[",
        '{"',
        '["',
        "\\",
        '\\"',
        "/*",
        "//",
        "# \n",
        " ",
        ":",
    ],
)
@pytest.mark.parametrize("size", [16_000, 1_000_000])
def test_a_search_is_bounded(piece: str, size: int) -> None:
    """It gives up; how many steps it may take is bounded, so that it ends here at once."""
    assert found('{"path" "a", "content": "' + piece * (size // len(piece))) is None


def test_quotes_beyond_a_number_are_not_searched() -> None:
    text = '{"path": "a", "content": "' + '"x" ' * MOST_QUOTES + '"}'
    assert found(text) is None
