"""A server's error may change only listed fields of a request: these fields keep their values in any case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis.shapes import SHAPES, make_request_body
from tests.dialects.material import CASES as FOLDER
from tests.dialects.material import plain
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.profiles import Memory

type Json = dict[str, Any]

BY_NAME = {api.name: api for api in APIS}
CASES = plain((FOLDER / "rejections" / "protected_fields.yaml").read_text("utf-8"))


def open_api_session(api: str, fields: Json, memory: Memory | None = None) -> Session:
    exchange = Session.open(BY_NAME[api], make_request_body(api, **fields), agent(api), planner(), "seed", memory)
    exchange.encode_request()
    return exchange


def error_of(error: Any) -> bytes:
    return json.dumps({"error": {"message": error}} if isinstance(error, str) else error).encode()


DROPPED = {"documents"}
"""Fields that may be removed as a whole; no list is shortened."""


@pytest.mark.parametrize("case", CASES["protected"], ids=lambda case: f"{case['api']}: {case['field']}")
@pytest.mark.parametrize("words", CASES["words"])
def test_error_changes_no_field_that_protects_the_user_or_limits_the_server(case: Json, words: str) -> None:
    api, fields, memory = case["api"], case["fields"], Memory()
    exchange = open_api_session(api, fields, memory)
    again = exchange.encode_after_rejection(error_of(words.replace("{}", case["field"])), 400)
    if again is not None:
        sent = json.loads(again)
        assert {name: sent.get(name) for name in fields} in (fields, dict.fromkeys(DROPPED & fields.keys()))
        exchange.confirm_quirks()
        assert json.loads(open_api_session(api, fields, memory).encode_request()).keys() >= fields.keys() - DROPPED


@pytest.mark.parametrize("case", CASES["other_meanings"], ids=lambda case: f"{case['field']} to {case['to']}")
def test_error_renames_no_field_into_another_meaning(case: Json) -> None:
    exchange = open_api_session(case["api"], case["fields"])
    error = error_of(f"'{case['field']}' is deprecated. Use '{case['to']}' instead.")
    again = exchange.encode_after_rejection(error, 400)
    assert f'"{case["to"]}"'.encode() not in (again or b"").replace(b'"stream":', b"")


@pytest.mark.parametrize("case", CASES["other_names"], ids=lambda case: f"{case['field']} to {case['to']}")
def test_error_renames_a_field_to_another_name_of_it(case: Json) -> None:
    exchange = open_api_session("openai-chat", {case["field"]: case["value"]})
    error = error_of(f"Unsupported parameter: '{case['field']}'. Use '{case['to']}' instead.")
    sent = json.loads(exchange.encode_after_rejection(error, 400) or b"{}")
    assert (sent.get(case["field"]), sent.get(case["to"])) == (None, case["value"])


STORED = {"store": False}
QUOTED = {"error": {"message": "Provider returned error", "metadata": {"raw": "Unknown parameter: 'store'."}}}


@pytest.mark.parametrize("case", CASES["unknown"], ids=lambda case: str(case["error"])[:40])
def test_storage_field_is_removed_only_if_the_server_does_not_know_it(case: Json) -> None:
    exchange = open_api_session("openai-chat", case["fields"])
    again = exchange.encode_after_rejection(error_of(case["error"]), 400)
    assert (again is not None) is case["removed"]
    if again and case["fields"] == STORED:
        (line,) = exchange.report.request
        assert line == "store left out, as the server does not know it; it may store the conversation"


def test_quirk_about_a_value_does_not_affect_a_value_that_keeps_data_private() -> None:
    memory = Memory()
    first = open_api_session("openai-chat", {"store": True}, memory)
    assert first.encode_after_rejection(error_of(QUOTED), 400)
    first.confirm_quirks()
    assert json.loads(open_api_session("openai-chat", STORED, memory).encode_request())["store"] is False


@pytest.mark.parametrize(
    "name", ["strict", "cache_control", "eager_input_streaming", "defer_loading", "input_examples", "x"]
)
def test_only_listed_fields_of_a_tool_are_removed(name: str) -> None:
    tool = {"name": "a", "input_schema": {"type": "object"}, name: ["b"]}
    again = open_api_session("anthropic-messages", {"tools": [tool]}).encode_after_rejection(
        error_of(f"tools.0.{name}: Extra inputs are not permitted"), 400
    )
    assert (again is None) is (name == "x")


SECRET = "PATIENT-4711"


@pytest.mark.parametrize("case", CASES["secrets"], ids=lambda case: case["words"][:40])
def test_quirks_contain_no_value_of_the_request(case: Json) -> None:
    fields = case["fields"]
    memory = Memory()
    exchange = open_api_session("openai-chat", fields, memory)
    exchange.encode_after_rejection(error_of(case["words"]), 400)
    exchange.confirm_quirks()
    later = open_api_session("openai-chat", fields, memory)
    learned = [
        exchange.learned_quirks,
        exchange.report.request,
        exchange.report.notes,
        later.plan.steps,
        later.plan.why,
    ]
    assert SECRET not in str([*learned, later.plan.quirks.lasting.list_known()])


NO_CHAT = 'model "m" is not accessible via the /chat/completions endpoint'
NO_RESPONSES = "model claude-haiku-4.5 does not support Responses API."


@pytest.mark.parametrize(("words", "api"), [(NO_CHAT, "openai-chat"), (NO_RESPONSES, "openai-responses")])
@pytest.mark.parametrize("client", SHAPES)
def test_rejection_of_an_api_counts_only_if_that_api_was_used(words: str, api: str, client: str) -> None:
    """A server of the Messages API that rejects chat completions is not sent Responses requests."""
    exchange = open_api_session(client, SHAPES[client].history)
    sent = exchange.encode_request()
    exchange.encode_after_rejection(error_of(words), 400)
    assert (exchange.server.name == client) is (client != api)
    assert (exchange.encode_request() == sent) is (client != api)
