"""Arguments that fit their schema stay as they are written; text is typed where no text is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtc.dialects.arguments.parameter import fitted, fitted_text

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "lines": {"type": "array"},
        "either": {"type": ["string", "number"]},
    },
}


@pytest.mark.parametrize(
    ("arguments", "found", "notes"),
    [
        ({"path": "5", "limit": 5}, {"path": "5", "limit": 5}, []),
        ({"limit": "5"}, {"limit": 5}, ["typed:limit"]),
        ({"limit": "five"}, {"limit": "five"}, []),
        ({"lines": "[1, 2]"}, {"lines": [1, 2]}, ["typed:lines"]),
        ({"lines": r"[{\"id\": 1}]"}, {"lines": [{"id": 1}]}, ["escaped-text"]),
        ({"lines": "<![CDATA[[1]]]>", "path": "<![CDATA[a]]>"}, {"lines": [1], "path": "<![CDATA[a]]>"}, ["cdata"]),
        ({"either": "5"}, {"either": "5"}, []),
        ({"path</arg_key>": "a"}, {"path": "a"}, ["parameter-name:path"]),
        ({"path</arg_key>": "a", "path": "b"}, {"path</arg_key>": "a", "path": "b"}, []),
        ({"other": "5"}, {"other": "5"}, []),
    ],
)
def test_what_fits_in_one_way_only_is_fitted(arguments: Any, found: Any, notes: list[str]) -> None:
    assert fitted(arguments, SCHEMA) == (found, notes)
    if {"cdata", "escaped-text"} & {*notes}:
        assert fitted(arguments, SCHEMA, lenient=False) == (arguments, [])


@pytest.mark.parametrize("text", ['{"limit":  5}', "{}", '{"path": "5"}'])
def test_text_that_fits_keeps_its_bytes(text: str) -> None:
    assert fitted_text(text, json.loads(text), SCHEMA) == (text, [])
    assert fitted_text(text, json.loads(text), {}) == (text, [])


def test_text_that_does_not_is_written_anew() -> None:
    text = '{"limit":  "5", "path": "\\u0041", "other": 1e999}'
    written = '{"limit": 5, "path": "\\u0041", "other": 1e999}'
    assert fitted_text(text, json.loads(text), SCHEMA) == (written, ["typed:limit"])
