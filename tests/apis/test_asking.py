"""Requests for an answer in JSON, in each API's form."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.apis.asking import wants_json

SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        {"format": "json"},
        {"format": SCHEMA},
    ],
)
def test_a_request_for_json(body: dict[str, Any]) -> None:
    assert wants_json({"model": "m", **body})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"response_format": {"type": "text"}},
        {"text": {"format": {"type": "text"}}},
        {"format": ""},
        {"text": "x"},
    ],
)
def test_any_other_request(body: dict[str, Any]) -> None:
    assert not wants_json(body)
