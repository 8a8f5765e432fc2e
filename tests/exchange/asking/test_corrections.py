"""Corrections are tried one at a time, hold for a conversation, and are stored for others once they helped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.apis import pairs
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.profiles import Memory

type Json = dict[str, Any]

BY_NAME = {api.name: api for api in APIS}
FIELDS: Json = {"seed": 1, "top_p": 0.5, "user": "u"}
TWO_ROWS = "Unsupported parameter: 'seed'. 'top_p' cannot be used here."


def open_trial(memory: Memory, text: str = "hi", key: str = "a", client: str = "openai-chat", **fields: Any) -> Session:
    fields = fields or FIELDS
    if client == "openai-chat":
        fields = {"messages": [{"role": "user", "content": text}], **fields}
    way = {} if client == "openai-chat" else {"upstream_api": ("openai-chat",)}
    facts = replace(agent(client), headers={"authorization": f"Bearer {key}"})
    exchange = Session.open(BY_NAME[client], make_request_body(client, **fields), facts, planner(**way), "seed", memory)
    exchange.encode_request()
    return exchange


def error_of(words: str, **more: Any) -> bytes:
    return json.dumps({"error": {"message": words, **more}}).encode()


def left_out(body: bytes | None) -> set[str]:
    assert body is not None
    return FIELDS.keys() - json.loads(body).keys()


def test_fields_of_two_rows_are_tried_one_after_the_other() -> None:
    memory = Memory()
    exchange = open_trial(memory)
    assert left_out(exchange.encode_after_rejection(error_of(TWO_ROWS, request="req_011CYRQ9"), 400)) == {"seed"}
    assert left_out(exchange.encode_after_rejection(error_of(TWO_ROWS, request="req_022DZSR8"), 400)) == {"top_p"}
    exchange.confirm_quirks()
    assert left_out(open_trial(memory, "other").encode_request()) == {"top_p"}
    assert not [line for line in exchange.report.request if "seed" in line]


def test_corrections_that_were_all_in_vain_are_undone() -> None:
    memory = Memory()
    exchange = open_trial(memory)
    for _ in range(2):
        assert exchange.encode_after_rejection(error_of(TWO_ROWS), 400)
    assert exchange.encode_after_rejection(error_of(TWO_ROWS), 400) is None
    assert not exchange.learned_quirks
    assert left_out(open_trial(memory).encode_request()) == set()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (error_of("Unsupported parameter: 'seed'; 'top_p' is not supported"), {"seed", "top_p"}),  # fields in one row
        (error_of(TWO_ROWS, param="top_p"), {"top_p"}),
        (error_of("not permitted, as 'user' is unknown", param="seed", code="unknown_parameter"), {"seed"}),
        (
            json.dumps(
                {
                    "detail": [
                        {"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"},
                        {"loc": ["body", "top_p"], "msg": "value cannot be used"},
                    ],
                    "note": "'user' is not supported",
                }
            ).encode(),
            {"seed", "top_p"},
        ),
    ],
)
def test_field_named_in_structured_errors_is_tried_first(error: bytes, expected: set[str]) -> None:
    assert left_out(open_trial(Memory()).encode_after_rejection(error, 400)) == expected


@pytest.mark.parametrize("whole", [True, False])
def test_a_correction_holds_for_the_conversation_until_a_request_with_it_succeeds(whole: bool) -> None:
    memory = Memory()
    exchange = open_trial(memory)
    assert left_out(exchange.encode_after_rejection(error_of("Unsupported parameter: 'seed'"), 400)) == {"seed"}
    assert exchange.encode_after_rejection(error_of("The server is confused."), 400) is None
    assert left_out(open_trial(memory, "other").encode_request()) == set()
    assert left_out(open_trial(memory, key="b").encode_request()) == set()
    later = open_trial(memory)
    assert left_out(later.encode_request()) == {"seed"}
    reply = pairs.make_whole_reply("openai-chat", "I look.", [])
    if whole:
        later.whole.rewrite(reply)
    else:
        later.stream()
    assert left_out(open_trial(memory, "other").encode_request()) == {"seed"}
    assert left_out(open_trial(memory, key="b").encode_request()) == set()


def test_a_request_that_fails_again_is_no_success() -> None:
    memory = Memory()
    for _ in range(2):
        exchange = open_trial(memory)
        exchange.encode_after_rejection(error_of("Unsupported parameter: 'seed'"), 400)
        exchange.encode_after_rejection(error_of("The server is confused."), 400)
        exchange.whole.translate_error(error_of("The server is confused."), 400)
    assert left_out(open_trial(memory).encode_request()) == {"seed"}
    assert left_out(open_trial(memory, "other").encode_request()) == set()


@pytest.mark.parametrize("client", [name for name in SHAPES if name != "openai-chat"])
def test_it_does_so_for_clients_of_any_api(client: str) -> None:
    memory = Memory()
    fields = {"anthropic-messages": {"max_tokens": 5}, "openai-responses": {"max_output_tokens": 5}}.get(
        client,
        {"options": {"num_predict": 5}} if client == "ollama-chat" else {"generationConfig": {"maxOutputTokens": 5}},
    )
    renaming = error_of("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    exchange = open_trial(memory, client=client, **fields)
    assert b"max_completion_tokens" in (exchange.encode_after_rejection(renaming, 400) or b"")
    assert exchange.encode_after_rejection(error_of("The server is confused."), 400) is None
    assert b"max_completion_tokens" in open_trial(memory, client=client, **fields).encode_request()
    assert b"max_completion_tokens" not in open_trial(memory, key="b", client=client, **fields).encode_request()


def test_learned_quirk_is_one_line() -> None:
    exchange = open_trial(Memory())
    exchange.encode_after_rejection(error_of("Unsupported parameter: 'seed'"), 400)
    exchange.confirm_quirks()
    assert str([*exchange.report.request, *exchange.report.notes]).count("seed left out") == 1
