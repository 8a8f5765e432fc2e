"""The place that an error names and the value there decide, whatever the spelling of the path and the words between."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from tests.apis.shapes import make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchanges import AGENT, planner
from vtc.exchange import Session
from vtc.exchange.asking.named_places import MAX_EXAMINED_ENTRIES, describe_places
from vtc.exchange.asking.outline import MAX_NAMES_PER_ERROR

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TEXT = {"type": "text", "text": "found"}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [TEXT, IMAGE]},
    {"role": "user", "content": [TEXT, TEXT]},
]
SPELLINGS = [
    "messages[{}].content",
    "messages.{}.content",
    "/messages/{}/content",
    "#/messages/{}/content",
    "body -> messages -> {} -> content",
    "$.messages[{}]['content']",
    "ChatRequest.Messages[{}].Content",
    "messages.{}.assistant.content.str",
]
WORDS = ["'{}': kaputt, {}", "{} ungueltig: {}", "Type mismatch of '{}', {}", "{}\n  {} [type=x]"]
OFFENDERS = [
    (1, "'string' not in 'null'", lambda sent: sent["messages"][1]["content"] == ""),
    (1, "not null", lambda sent: sent["messages"][1]["content"] == ""),
    (3, "'string' not in 'array'", lambda sent: sent["messages"][3]["content"] == "found\nfound"),
    (2, "a string, not a list", lambda sent: "image_url" not in str(sent["messages"][2])),
]


@pytest.mark.parametrize(("spelling", "words"), [*product(SPELLINGS, WORDS)])
@pytest.mark.parametrize("offender", OFFENDERS, ids=lambda offender: f"{offender[0]}: {offender[1]}")
def test_path_and_types_decide(spelling: str, words: str, offender: Any) -> None:
    at, types, is_corrected = offender
    body = make_request_body("openai-chat", messages=MESSAGES)
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed")
    exchange.encode_request()
    error = {"error": {"message": words.format(spelling.format(at), types)}}
    again = exchange.encode_after_rejection(json.dumps(error).encode(), 400)
    assert again is not None
    assert is_corrected(json.loads(again))


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        (
            "tools.0.parameters.properties.x.type: must be a string",
            "tools.*.parameters.properties.x.type is list, not string",
        ),
        (
            "ChatRequest.messages.content: cannot unmarshal array, string",
            "messages.*.content is list of text+image_url, not string",
        ),
        ("messages[0].role: bad", "messages.*.role is string user"),
        ("messages[0].content: bad", "messages.*.content is string"),
        ("body.messages.0.name: Field required", "messages.* lacks name"),
        ("POST /v1/chat/completions", ""),
        ("messages[99].content is null", ""),
    ],
)
def test_place_has_one_description(statement: str, place: str) -> None:
    body = {"messages": MESSAGES[:3], "tools": [{"parameters": {"properties": {"x": {"type": ["string", "null"]}}}}]}
    assert place in (describe_places([statement], body) or [""])


def test_a_path_behind_many_words_is_found() -> None:
    statement = f"{'a word ' * 200}messages[1].content"
    assert describe_places([statement], {"messages": MESSAGES}) == ["messages.*.content is null"]


def test_an_error_names_a_bounded_number_of_places() -> None:
    body = {"messages": [{"content": "x", **{f"k{n}": n for n in range(50)}}] * 2 * MAX_EXAMINED_ENTRIES}
    assert describe_places(["messages.content is no array"] * 1000, body) == ["messages.*.content is string, not list"]
    names = " ".join(f"messages.k{n}" for n in range(50))
    assert 0 < len(describe_places([names] * 10, body)) <= MAX_NAMES_PER_ERROR
