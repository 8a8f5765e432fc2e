"""Fields that chat completions and Responses share, on a bridge between them and to other APIs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.apis.shapes import make_request_body
from tests.exchange.crossings import BY_NAME
from tests.exchanges import agent, planner
from vtc.exchange import Session

SAME = {
    "service_tier": "flex",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "metadata": {"a": "b"},
    "user": "u",
    "safety_identifier": "s",
}
FORMAT = {"type": "json_schema", "name": "a", "schema": {"type": "object", "properties": {}}}
FIELDS: dict[str, dict[str, Any]] = {
    "openai-chat": {**SAME, "verbosity": "low"},
    "openai-responses": {**SAME, "text": {"verbosity": "low", "format": FORMAT}},
}
NAMES = {*SAME, "verbosity"}


def send(client: str, server: str, host: str) -> tuple[dict[str, Any], str]:
    """Send the shared fields over a bridge; return the body that the server gets, and the report."""
    body = make_request_body(client, **FIELDS[client])
    session = Session.open(
        BY_NAME[client], body, replace(agent(client), host=host), planner(upstream_api=(server,)), "seed"
    )
    return json.loads(session.encode_request()), "\n".join(session.report.request)


@pytest.mark.parametrize("host", ["api.openai.com", "x.openai.azure.com", "openrouter.ai"])
@pytest.mark.parametrize(
    ("client", "server"), [("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")]
)
def test_shared_fields_cross_to_hosts_that_accept_them(client: str, server: str, host: str) -> None:
    body, report = send(client, server, host)
    verbosity = body["text"] if server == "openai-responses" else body
    assert {key: body.get(key) for key in SAME} == SAME
    assert verbosity["verbosity"] == "low"
    assert client == "openai-chat" or body["response_format"]["type"] == "json_schema"
    assert "left out" not in report


@pytest.mark.parametrize(
    ("client", "server", "host"),
    [
        ("openai-chat", "openai-responses", "127.0.0.1"),
        ("openai-responses", "openai-chat", "127.0.0.1"),
        ("openai-responses", "anthropic-messages", "api.openai.com"),
    ],
)
def test_shared_fields_are_left_out_for_others_and_named(client: str, server: str, host: str) -> None:
    body, report = send(client, server, host)
    assert not NAMES & body.keys()
    assert "verbosity" not in body.get("text", {})
    (line,) = [line for line in report.splitlines() if line.startswith("left out")]
    own = "verbosity" if client == "openai-chat" else "text.verbosity"
    assert set(line.partition(": ")[2].split(", ")) == {*SAME, own}
