"""Malformed requests, which are repaired before they are sent; and shapes that rejections require."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES
from tests.dialects.material import plain
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchanges import agent, planner
from vtc.apis import RequestError
from vtc.exchange import Session
from vtc.profiles import Memory, Planner, Settings, builtin_directory, load_profiles

REQUESTS = Path(__file__).parents[2] / "cases" / "requests"


def table(name: str) -> list[dict[str, Any]]:
    return plain((REQUESTS / name).read_text("utf-8"))


def case_id(case: dict[str, Any]) -> str:
    return f"{case['name']}, {case['api']}"


CASES, REFUSED = table("shapes.yaml"), table("refused.yaml")
case = pytest.mark.parametrize("case", CASES, ids=case_id)


def body_of(api: str, *fields: dict[str, Any]) -> bytes:
    """Encode a request with all these fields, the last one of a name; null omits a field."""
    body = SHAPES[api].request(**{key: value for some in fields for key, value in some.items()})
    null = {key for some in fields[-1:] for key, value in some.items() if value is None}
    return chat.encode_json({key: value for key, value in body.items() if key not in null})


def open_body(api: str, body: bytes, host: str = "127.0.0.1", memory: Memory | None = None, **settings: Any) -> Session:
    facts = replace(agent(api), host=host)
    return Session.open(BY_NAME[api], body, facts, planner(**settings), "seed", memory)


@case
@pytest.mark.parametrize("host", ["127.0.0.1", "api.openai.com"])
@pytest.mark.every
def test_malformed_fields_are_repaired_and_reported(case: dict[str, Any], host: str) -> None:
    body = body_of(case["api"], case["fields"])
    exchange = open_body(case["api"], body, host)
    sent = exchange.encode_request()
    assert json.loads(sent) == json.loads(body_of(case["api"], case["fields"], case["sent"]))
    assert case["told"] in exchange.report.request
    assert open_body(case["api"], sent, host).encode_request() == sent


@case
@pytest.mark.parametrize("server", SHAPES)
def test_server_of_another_api_gets_the_same_as_for_a_valid_request(case: dict[str, Any], server: str) -> None:
    if server == case["api"]:
        return
    bodies = body_of(case["api"], case["fields"]), body_of(case["api"], case["fields"], case["sent"])
    sent, of_shaped = (
        json.loads(open_body(case["api"], body, upstream_api=(server,)).encode_request()) for body in bodies
    )
    assert sent == of_shaped
    pairs.check_request(server, sent)


@pytest.mark.parametrize("api", SHAPES)
def test_profile_can_disable_repairs_of_requests(api: str, tmp_path: Path) -> None:
    tmp_path.joinpath("mine.yaml").write_text("{kind: server, name: mine, match: {}, ready: {shapes: false}}")
    profiles = load_profiles([builtin_directory(), tmp_path])
    for case in CASES:
        if case["api"] == api:
            body, unshaped = body_of(api, case["fields"]), Planner(profiles, Settings(server="mine"))
            with suppress(RequestError):  # the invalid request is sent unchanged
                exchange = Session.open(BY_NAME[api], body, agent(api), unshaped, "seed")
                assert exchange.encode_request() == body
                assert case["told"] not in exchange.report.request


def test_valid_fields_keep_their_bytes_next_to_malformed_ones() -> None:
    in_shape = b'{"role" : "user",  "content": "\\u00e9"}'
    body = b'{"model": "m", "messages": [%s, {"role": "tool", "content": {"a": 1}}], "stop" : [ ]}' % in_shape
    sent = open_body("openai-chat", body).encode_request()
    assert in_shape in sent
    assert b'"stop":[ ]' in sent


@pytest.mark.parametrize("case", REFUSED, ids=case_id)
def test_a_refusal_teaches_the_shape_that_its_server_wants(case: dict[str, Any]) -> None:
    body = body_of(case["api"], case["fields"])
    sent = body_of(case["api"], case["fields"], case["sent"])
    for words in case["words"]:
        memory = Memory()
        exchange = open_body(case["api"], body, memory=memory)
        assert exchange.encode_request() == body
        again = exchange.encode_after_rejection(json.dumps({"error": {"message": words}}).encode(), 400)
        assert json.loads(again or b"null") == json.loads(sent)
        exchange.confirm_quirks()
        assert open_body(case["api"], body, memory=memory).encode_request() == again
        assert open_body(case["api"], again or b"", memory=memory).encode_request() == again


@pytest.mark.parametrize(("client", "server"), pairs.CROSSED, ids=lambda name: name)
def test_tools_that_a_conversation_calls_are_declared_in_any_api(client: str, server: str) -> None:
    """Agents request summaries of a conversation without its tools."""
    exchange = open_body(client, body_of(client, SHAPES[client].history, {"tools": None}), upstream_api=(server,))
    assert not json.loads(exchange.encode_request()).get("tools")
    again = exchange.encode_after_rejection(
        b'{"error": "The toolConfig field must be defined when using toolUse"}', 400
    )
    assert [tool.name for tool in BY_NAME[server].request(again or b"", SHAPES[server].path).offer.tools] == ["read"]


@case
def test_repaired_request_is_a_prefix_of_the_next(case: dict[str, Any]) -> None:
    """Except for the last entry, so that the server's prompt cache applies."""
    field = BY_NAME[case["api"]].layout.entries
    entries, before = case["fields"].get(field, []), list[Any]()
    for count in range(1, len(entries) + 1):
        body = body_of(case["api"], {**case["fields"], field: entries[:count]})
        sent = json.loads(open_body(case["api"], body).encode_request())[field]
        assert sent[: len(before) - 1] == before[:-1]
        before = sent


HALVES = (
    rb'{"model": "m", "messages": [{"role": "user", "content": "a\ud83d b\uDC00 \ud83d\ude00 \\ud83d"}, '
    rb'{"role": "user", "content": "c"}]}'
)
WHOLE = HALVES.replace(rb"a\ud83d b\uDC00", rb"a\ufffd b\ufffd")


@pytest.mark.parametrize("api", ["openai-chat", "anthropic-messages", "ollama-chat"])
def test_lone_surrogates_are_replaced_and_reported(api: str) -> None:
    """Servers reject them (`no low surrogate in string`, Anthropic), so a conversation that contains one could not
    continue.
    """
    exchange = open_body(api, HALVES)
    assert json.loads(exchange.encode_request()) == json.loads(WHOLE)
    assert exchange.report.request == ["halves of characters (of an emoji that was cut) replaced by U+FFFD"]
    assert open_body(api, WHOLE).encode_request() == WHOLE
