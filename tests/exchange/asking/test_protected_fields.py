"""A server's error may change only listed fields of a request: these fields keep their values in any case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.profiles import Memory

type Json = dict[str, Any]

BY_NAME = {api.name: api for api in APIS}
LEFT_OUT = [
    "Unsupported parameter: '{}'",
    "{}: Extra inputs are not permitted",
    "'{}' is not supported with this model",
    "'{}' is deprecated. Use 'system' instead.",
    "'{}' cannot be used; please remove '{}'",
    "[] is too short - '{}'",
    "Invalid '{}': integer above maximum value. Expected a value <= 0",
    "{} must be one of 'low', 'any', 'disabled'",
]


def open_api_session(api: str, fields: Json, memory: Memory | None = None) -> Session:
    exchange = Session.open(BY_NAME[api], make_request_body(api, **fields), agent(api), planner(), "seed", memory)
    exchange.request()
    return exchange


def error_of(error: Any) -> bytes:
    return json.dumps({"error": {"message": error}} if isinstance(error, str) else error).encode()


MCP = {
    "type": "mcp",
    "server_label": "x",
    "server_url": "https://x.test",
    "allowed_tools": ["read"],
    "require_approval": "always",
}
SEARCH = {
    "type": "web_search_20250305",
    "name": "web_search",
    "max_uses": 3,
    "allowed_domains": ["a.test"],
    "blocked_domains": [],
    "allowed_callers": ["direct"],
}
DENY = {"data_collection": "deny", "zdr": True, "only": ["a"], "order": []}
NAMED_TOOLS = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["bash"]}}
PROTECTED: list[tuple[str, str, Json]] = [
    ("openai-responses", "tools[0].allowed_tools", {"tools": [MCP]}),
    ("openai-responses", "tools[0].require_approval", {"tools": [MCP]}),
    ("openai-responses", "tools[0].server_label", {"tools": [MCP]}),
    *(
        ("anthropic-messages", f"tools.0.{name}", {"tools": [SEARCH]})
        for name in ("max_uses", "allowed_domains", "blocked_domains", "allowed_callers")
    ),
    ("anthropic-messages", "mcp_servers", {"mcp_servers": [{"type": "url", "url": "https://x.test", "name": "x"}]}),
    ("gemini-generate", "safetySettings", {"safetySettings": [{"category": "A", "threshold": "BLOCK"}]}),
    ("gemini-generate", "safety_settings", {"safetySettings": [{"category": "A", "threshold": "BLOCK"}]}),
    ("gemini-generate", "toolConfig", {"toolConfig": NAMED_TOOLS}),
    ("gemini-generate", "toolConfig.functionCallingConfig.allowedFunctionNames", {"toolConfig": NAMED_TOOLS}),
    (
        "gemini-generate",
        "generationConfig.responseSchema.enum",
        {"generationConfig": {"responseSchema": {"type": "STRING", "enum": ["a", "b"]}}},
    ),
    ("openai-chat", "provider", {"provider": DENY}),
    ("openai-chat", "provider.data_collection", {"provider": DENY}),
    ("openai-chat", "provider.only", {"provider": DENY}),
    ("openai-chat", "extra_body", {"extra_body": {"provider": DENY}}),
    ("openai-chat", "moderation", {"moderation": {"level": "low"}}),
    ("openai-chat", "guardrails", {"guardrails": ["pii"]}),
    ("openai-chat", "guardrail_config", {"guardrail_config": {"mode": "high"}}),
    ("openai-chat", "safety_identifier", {"safety_identifier": "u"}),
    ("openai-chat", "functions", {"functions": [{"name": "a", "parameters": {}}]}),
    ("openai-chat", "documents", {"documents": [{"title": "a b", "text": "c d"}]}),
    (
        "openai-chat",
        "tool_choice.tools",
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"a": 1}]}},
    ),
    ("openai-responses", "previous_response_id", {"previous_response_id": "r"}),
]
DROPPED = {"documents"}
"""Fields that may be removed as a whole; no list is shortened."""


@pytest.mark.parametrize(("api", "named", "fields"), PROTECTED, ids=[f"{api}: {named}" for api, named, _ in PROTECTED])
@pytest.mark.parametrize("words", LEFT_OUT)
def test_no_error_changes_what_protects_the_user_or_limits_the_server(
    api: str, named: str, fields: Json, words: str
) -> None:
    memory = Memory()
    exchange = open_api_session(api, fields, memory)
    again = exchange.encode_after_rejection(error_of(words.replace("{}", named)), 400)
    if again is not None:
        sent = json.loads(again)
        assert {name: sent.get(name) for name in fields} in (fields, dict.fromkeys(DROPPED & fields.keys()))
        exchange.confirm_quirks()
        assert json.loads(open_api_session(api, fields, memory).request()).keys() >= fields.keys() - DROPPED


RENAMED = [
    ("anthropic-messages", "metadata", "system", {"metadata": {"user_id": "u"}}),
    ("openai-responses", "user", "instructions", {"user": "u"}),
    ("openai-responses", "user", "previous_response_id", {"user": "u"}),
    ("openai-responses", "prompt_cache_key", "conversation", {"prompt_cache_key": "u"}),
    ("openai-chat", "metadata", "functions", {"metadata": {}}),
    ("openai-chat", "logprobs", "response_format", {"logprobs": True}),
    ("openai-chat", "logprobs", "stream", {"logprobs": True}),
    ("openai-chat", "seed", "max_tokens", {"seed": 1}),
    ("openai-chat", "metadata", "tool_choice", {"metadata": {"a": "b"}}),
    (
        "openai-chat",
        "reasoning_content",
        "content2",
        {
            "messages": [
                {"role": "assistant", "content": "a", "reasoning_content": "b"},
                {"role": "user", "content": "c"},
            ]
        },
    ),
]


@pytest.mark.parametrize(("api", "name", "to", "fields"), RENAMED)
def test_no_error_renames_a_field_into_another(api: str, name: str, to: str, fields: Json) -> None:
    exchange = open_api_session(api, fields)
    again = exchange.encode_after_rejection(error_of(f"'{name}' is deprecated. Use '{to}' instead."), 400)
    assert f'"{to}"'.encode() not in (again or b"").replace(b'"stream":', b"")


@pytest.mark.parametrize(
    ("name", "to", "value"),
    [
        ("max_tokens", "max_completion_tokens", 5),
        ("max_tokens", "maxTokens", 5),
        ("max_completion_tokens", "max_tokens", 5),
        ("topK", "top_k", 5),
        ("seed", "random_seed", 5),
        ("stop", "stop_sequences", ["a"]),
    ],
)
def test_an_error_renames_a_field_to_another_name_of_the_same_thing(name: str, to: str, value: Any) -> None:
    exchange = open_api_session("openai-chat", {name: value})
    sent = json.loads(
        exchange.encode_after_rejection(error_of(f"Unsupported parameter: '{name}'. Use '{to}' instead."), 400) or b"{}"
    )
    assert (sent.get(name), sent.get(to)) == (None, value)


STORED = {"store": False}
QUOTED = {"error": {"message": "Provider returned error", "metadata": {"raw": "Unknown parameter: 'store'."}}}


@pytest.mark.parametrize(
    ("error", "fields", "is_left_out"),
    [
        ("Unknown parameter: 'store'.", STORED, True),
        ({"detail": [{"loc": ["body", "store"], "msg": "Extra inputs are not permitted"}]}, STORED, True),
        (QUOTED, STORED, False),
        (QUOTED, {"store": True}, True),
        (
            'litellm.BadRequestError: OpenAIException - {"error": {"message": "Unknown parameter: \'store\'."}}',
            STORED,
            False,
        ),
        ("litellm.BadRequestError: OpenAIException - Unknown parameter: 'store'.", STORED, False),
        ("'store' cannot be set here; please remove 'store'", STORED, False),
        ("'store' is not valid", STORED, False),
        # A limit of the reply is removed only if the server does not know it, and if it equals no limit.
        ("Unsupported parameter: max_output_tokens", {"max_output_tokens": 5}, True),
        ("'max_tokens' cannot be used here", {"max_tokens": 5}, False),
        ("max_tokens must be at least 1, got -1.", {"max_tokens": -1}, True),
        (
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            {"max_completion_tokens": 5, "max_tokens": 5},
            True,
        ),
    ],
)
def test_storage_field_is_removed_only_if_the_server_does_not_know_it(
    error: Any, fields: Json, is_left_out: bool
) -> None:
    exchange = open_api_session("openai-chat", fields)
    again = exchange.encode_after_rejection(error_of(error), 400)
    assert (again is not None) is is_left_out
    if again and fields is STORED:
        (line,) = exchange.report.request
        assert line == "store left out, as the server does not know it; it may store the conversation"


def test_a_lesson_about_a_value_does_not_reach_another_that_keeps_data_private() -> None:
    memory = Memory()
    first = open_api_session("openai-chat", {"store": True}, memory)
    assert first.encode_after_rejection(error_of(QUOTED), 400)
    first.confirm_quirks()
    assert json.loads(open_api_session("openai-chat", STORED, memory).request())["store"] is False


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
VALUES: list[tuple[str, Json]] = [
    ("metadata.note should be greater than zero", {"metadata": {"note": SECRET}}),
    ("'user' must be in (0, 1], got it", {"user": SECRET}),
    (f"prompt_cache_key does not support this. Supported values are: '{SECRET}', 'low'", {"prompt_cache_key": SECRET}),
    (f"'user' is not supported. Use '{SECRET}' instead", {"user": SECRET, "seed": 1}),
    ("'user' is not supported", {"user": SECRET}),
    ("top_p must be in (0, 1], got 0.0", {"top_p": 0.0, "user": SECRET}),
]


@pytest.mark.parametrize(("words", "fields"), VALUES)
def test_nothing_that_is_learned_holds_a_value_of_the_request(words: str, fields: Json) -> None:
    memory = Memory()
    exchange = open_api_session("openai-chat", fields, memory)
    exchange.encode_after_rejection(error_of(words), 400)
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
def test_an_api_is_refused_only_where_it_was_asked(words: str, api: str, client: str) -> None:
    """A server of the Messages API that rejects chat completions is not sent Responses requests."""
    exchange = open_api_session(client, SHAPES[client].history)
    sent = exchange.request()
    exchange.encode_after_rejection(error_of(words), 400)
    assert (exchange.server.name == client) is (client != api)
    assert (exchange.request() == sent) is (client != api)
