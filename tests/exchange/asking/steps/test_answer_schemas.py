"""Schemas of structured answers on servers of Anthropic Messages, which reject open objects and most constraints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exchange.crossings import open_bridge

type Json = dict[str, Any]

BOUNDS: Json = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 1, "maximum": 9, "description": "In years."},
        "when": {"type": "string", "format": "date-time", "minLength": 1},
        "of": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {"pattern": {"minimum": 3}}}},
        "many": {"type": "array", "minItems": 2, "items": {"oneOf": [{"type": "object"}, {"type": "null"}]}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["age"],
    "$defs": {"x": {"type": ["object", "null"], "additionalProperties": True}},
}
CLOSED: Json = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "description": "In years.\n(minimum: 1; maximum: 9)"},
        "when": {"type": "string", "format": "date-time", "description": "(minLength: 1)"},
        "of": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"pattern": {"description": "(minimum: 3)"}},
                "additionalProperties": False,
            },
        },
        "many": {
            "type": "array",
            "items": {"anyOf": [{"type": "object", "additionalProperties": False}, {"type": "null"}]},
            "description": "(minItems: 2)",
        },
        "map": {
            "type": "object",
            "additionalProperties": False,
            "description": '(additionalProperties: {"type":"string"})',
        },
    },
    "required": ["age"],
    "$defs": {"x": {"type": ["object", "null"], "additionalProperties": False}},
    "additionalProperties": False,
}
FIELDS = {
    "openai-chat": lambda schema: {
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    },
    "openai-responses": lambda schema: {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}},
    "ollama-chat": lambda schema: {"format": schema},
    "gemini-generate": lambda schema: {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}
    },
}
CLIENTS = pytest.mark.parametrize("client", FIELDS)


def send_schema(client: str, schema: Json, server: str = "anthropic-messages") -> tuple[Any, list[str]]:
    exchange = open_bridge(client, server, **FIELDS[client](schema))
    sent = json.loads(exchange.encode_request())
    return sent, exchange.report.request


@CLIENTS
def test_objects_are_closed_and_constraints_are_described(client: str) -> None:
    sent, report = send_schema(client, BOUNDS)
    assert sent["output_config"]["format"] == {"type": "json_schema", "schema": CLOSED}
    assert [line for line in report if line.startswith("schema of the answer: objects closed")]


@CLIENTS
def test_schema_that_anthropic_accepts_is_unchanged(client: str) -> None:
    sent, report = send_schema(client, CLOSED)
    assert sent["output_config"]["format"]["schema"] == CLOSED
    assert not [line for line in report if line.startswith("schema of the answer")]


def test_other_servers_get_the_schema_as_it_is() -> None:
    sent, _ = send_schema("openai-responses", BOUNDS, "openai-chat")
    assert sent["response_format"]["json_schema"]["schema"] == BOUNDS


def test_deep_schema_is_sent() -> None:
    schema: Json = {"type": "object"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    send_schema("openai-chat", schema)
