"""Errors of servers have the same kind for clients of every API, because agents decide by it whether to retry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, pairs, responses
from tests.apis.pairs import CROSSED
from tests.exchange.crossings import BY_NAME, open_bridge
from tests.exchanges import feed_stream
from vtc.events import Failure

WORDS: dict[str, dict[str, Any]] = {
    "limited": {
        "openai-chat": ("rate_limit_error", "rate_limit_exceeded"),
        "openai-responses": "rate_limit_exceeded",
        "anthropic-messages": "rate_limit_error",
        "gemini-generate": (429, "RESOURCE_EXHAUSTED"),
    },
    "overloaded": {
        "openai-chat": ("server_error", "server_is_overloaded"),
        "openai-responses": "server_is_overloaded",
        "anthropic-messages": "overloaded_error",
        "gemini-generate": (503, "UNAVAILABLE"),
    },
    "invalid": {
        "openai-chat": ("invalid_request_error", None),
        "openai-responses": "invalid_prompt",
        "anthropic-messages": "invalid_request_error",
        "gemini-generate": (400, "INVALID_ARGUMENT"),
    },
    "unknown": {
        "openai-chat": ("server_error", None),
        "openai-responses": "server_error",
        "anthropic-messages": "api_error",
        "gemini-generate": (500, "INTERNAL"),
    },
}
SENT: dict[str, dict[str, Any]] = {
    "limited": {"openai-chat": {"code": 429}},
    "overloaded": {"openai-chat": {"type": "overloaded_error"}, "openai-responses": {"code": "slow_down"}},
    "invalid": {"openai-responses": {"code": "cyber_policy"}},
    "unknown": {},
}
"""Other words of servers than those of `WORDS`."""


def make_error(server: str, kind: str) -> bytes:
    """Return the stream of a server that ends in an error."""
    words, sent = WORDS[kind][server], SENT[kind].get(server)
    begun = pairs.make_stream(server, ["Hi"]).partition(b"Hi")
    head = begun[0] + begun[1] + begun[2].partition(b"\n\n")[0] + b"\n\n"
    match server:
        case "openai-chat":
            error: Any = sent or {"type": words[0], "code": words[1]}
            return head + chat.frame({"error": {"message": "No.", **error}})
        case "openai-responses":
            response = {**responses.response(), "status": "failed", "error": {"message": "No.", "code": words}}
            response["error"] |= sent or {}
            return head + b"data: " + json.dumps({"type": "response.failed", "response": response}).encode() + b"\n\n"
        case "anthropic-messages":
            return head + messages.frame(messages.error("No.", words))
    return head + gemini.frame({"error": {"code": words[0], "status": words[1], "message": "No."}})


def read_error(client: str, body: bytes) -> Any:
    """Return the words for the kind of the error that a client received."""
    last = json.loads([line for line in body.splitlines() if line.startswith(b"data: {")][-1][6:])
    match client:
        case "openai-responses":
            return last["response"]["error"]["code"]
        case "anthropic-messages":
            return last["error"]["type"]
        case "gemini-generate":
            return last["error"]["code"], last["error"]["status"]
    return last["error"]["type"], last["error"]["code"]


@pytest.mark.parametrize(("client", "server"), [pair for pair in CROSSED if "ollama-chat" not in pair])
@pytest.mark.parametrize("kind", WORDS)
def test_error_in_a_stream_keeps_its_kind(client: str, server: str, kind: str) -> None:
    out = feed_stream(open_bridge(client, server, stream=True).stream(), make_error(server, kind))
    assert read_error(client, out) == WORDS[kind][client]


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "limited"), (503, "overloaded"), (400, "invalid"), (500, "unknown")]
)
@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "ollama-chat"])
def test_error_with_a_status_has_the_type_of_the_clients_api(client: str, status: int, kind: str) -> None:
    error = BY_NAME[client].build_error(Failure("No."), status)["error"]
    found: Any = (error.get("type"), error.get("code"))
    if client == "anthropic-messages":
        found = error["type"]
    elif client == "gemini-generate":
        found = error["code"], error["status"]
    expected = WORDS[kind]["openai-chat" if client == "openai-responses" else client]
    assert found == expected


def test_an_unknown_word_is_the_type_in_chat_completions() -> None:
    assert BY_NAME["openai-chat"].build_error(Failure("No.", "odd"), 400)["error"]["type"] == "odd"
