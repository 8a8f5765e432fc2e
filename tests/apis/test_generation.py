"""The generation settings of a request in each API's form: JSON, thinking, limits."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.apis import APIS
from vtc.events import GenerationConfig
from vtc.json_text import encode_json

CHAT, MESSAGES, _, OLLAMA, _ = APIS
SCHEMA = {"type": "object", "properties": {}}


def parse_generation(body: dict[str, Any]) -> GenerationConfig:
    return CHAT.request(encode_json(body)).generation


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
    assert parse_generation({"model": "m", **body}).answer is not None


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
    assert parse_generation(body).answer is None


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({}, None),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"chat_template_kwargs": None}, None),
        ({"enable_thinking": True}, True),
        ({"think": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": False}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning": {"effort": "high"}}, True),
        ({"reasoning": "x", "thinking": 7, "think": "much"}, None),
    ],
)
def test_switches_of_a_request(body: dict[str, Any], asked: bool | None) -> None:
    assert parse_generation(body).thinks is asked


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"reasoning_effort": "high"}, "high"),
        ({"output_config": {"effort": "low"}}, "low"),
        ({"think": "medium"}, "medium"),
        ({"think": True}, "auto"),
        ({"think": False}, "none"),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "auto"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
        ({"thinking": {"type": "adaptive"}}, "auto"),
        ({"thinking": 7}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
    ],
)
def test_how_much_is_to_be_thought(body: dict[str, Any], word: str | None) -> None:
    assert parse_generation(body).effort == word


def test_limits_are_read_where_they_stand_and_written_where_they_stand_first() -> None:
    found = OLLAMA.layout.read_limits({"options": {"num_predict": 5, "stop": "x", "top_p": 0}})
    assert found == {"max_tokens": 5, "stop": ["x"], "top_p": 0}
    fields = {"options": {"num_predict": 5, "stop": ["x"], "top_p": 0}}
    assert OLLAMA.layout.write_limits({**found, "no_such": 1}) == fields
    found = CHAT.layout.read_limits({"max_completion_tokens": 5})
    assert CHAT.layout.write_limits(found) == {"max_tokens": 5}


def test_no_limit_is_none() -> None:
    """Ollama and llama.cpp use a negative number for no limit, which other servers reject."""
    assert OLLAMA.layout.read_limits({"options": {"num_predict": -1, "top_p": 1}}) == {"top_p": 1}


def test_what_stands_beside_limits_is_named() -> None:
    options = {"num_predict": 5, "low_vram": True, "numa": None}
    fields = {"options": options, "x": 1, "model": "m", "tools": []}
    assert OLLAMA.layout.list_untranslated(fields) == ["options.low_vram", "x"]
    assert MESSAGES.layout.list_untranslated({"thinking": {"type": "enabled", "budget_tokens": 9}}) == [
        "thinking.budget_tokens"
    ]
    assert MESSAGES.layout.list_untranslated({"thinking": None}) == []


@pytest.mark.parametrize(
    ("body", "is_constrained"),
    [
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "structural_tag", "format": {}}}, True),
        ({"text": {"format": {"type": "grammar"}}}, True),
        ({"format": SCHEMA}, True),
        ({"structured_outputs": {"regex": "a"}}, True),
        ({"grammar": "root ::= [a]"}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"text": {"format": {"type": "text"}}, "format": "", "grammar": ""}, False),
        ({}, False),
    ],
)
def test_request_with_a_response_format(body: dict[str, Any], is_constrained: bool) -> None:
    assert parse_generation({"model": "m", **body}).constrained == is_constrained
