"""Requests of agents to hosted servers: none breaks a known rule (`tests/cases/hosted.yaml`)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.agents.recordings import load_recordings
from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES
from tests.dialects.material import CASES, plain
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchange.asking.servers import RULES
from tests.exchanges import AGENT, PROFILES, feed_stream, planner
from vtc.exchange import Session
from vtc.profiles import Facts

type Json = dict[str, Any]

TARGETS: dict[str, Json] = plain((CASES / "hosted.yaml").read_text("utf-8"))
RECORDED = load_recordings()
CHECK: Json = {
    "type": "object",
    "properties": {
        "paths": {"type": "array"},
        "at": {"type": "array", "items": [{"type": "number"}, {"type": "number"}]},
        "of": {"type": "string", "anyOf": [{"maxLength": 9}, {"pattern": "^a"}]},
    },
    "anyOf": [{"required": ["paths"]}, {"required": ["at"]}],
}
"""The parameters of a tool of an MCP server."""
SAMPLING = {"temperature": 0.2, "top_p": 0.9}
PENALTIES = {"presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"1": 1}, "stop": ["x"], "logprobs": True}
ASKS: dict[str, Json] = {
    "openai-chat": {
        "max_tokens": 4096,
        **SAMPLING,
        **PENALTIES,
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "tool_choice": "required",
        "tools": [
            {"type": "function", "function": {"name": name, "description": "d", "parameters": schema}}
            for name, schema in {"check": CHECK, "read": {"type": "object", "properties": {}}}.items()
        ],
    },
    "anthropic-messages": {
        "max_tokens": 4096,
        **SAMPLING,
        "tools": [{"name": "check", "description": "d", "input_schema": CHECK}],
    },
    "openai-responses": {
        "max_output_tokens": 4096,
        **SAMPLING,
        "tools": [{"type": "function", "name": "check", "description": "d", "parameters": CHECK}],
    },
}
TALKS: dict[str, Json] = {
    "openai-chat": {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Read it.", "name": "me"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "I read it.",
                "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": "hello"},
        ]
    },
    **{client: SHAPES[client].history for client in ("anthropic-messages", "openai-responses")},
}


def refusal(target: Json, body: Json) -> str:
    """Return a server's rejection of a request; empty if it is accepted."""
    for path in target.get("refuses", ()):
        if found := stands_at(body, path.split(".")):
            return f"unsupported: {path} {found}"
    choice = body.get("tool_choice", "auto")
    if "choice" in target and choice not in target["choice"]:
        return f"tool_choice: {choice}"
    roles = {"system", "user", "assistant", "tool", *target.get("roles", ())}
    if other := {message["role"] for message in body["messages"]} - roles:
        return f"role: {other}"
    schemas = [tool.get("input_schema") or tool["function"].get("parameters", {}) for tool in body.get("tools", ())]
    words = next(filter(None, (beyond(schema, target.get("schemas", "")) for schema in schemas)), "")
    return words or (RULES[target["rule"]](body) if "rule" in target else "")


def stands_at(value: Any, path: list[str]) -> list[Any]:
    key, *rest = path
    inside = value if key == "*" else [value[key]] if key in value else []
    return [leaf for entry in inside for leaf in (stands_at(entry, rest) if rest else [entry])]


def beyond(schema: Any, words: str, *, top: bool = True) -> str:
    """Return the parts of a schema that OpenAI, Anthropic and Moonshot reject."""
    if not words or not isinstance(schema, dict):
        return ""
    if top and (schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "enum", "not"}):
        return "schema must have type 'object' and not have 'anyOf' at the top level"
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        return "array schema missing items"
    if words == "moonshot" and {"type", "anyOf"} <= schema.keys():
        return "type should be defined in anyOf items"
    inside = [*schema.get("properties", {}).values(), schema.get("items"), *schema.get("anyOf", ())]
    return next(filter(None, (beyond(inner, words, top=False) for inner in inside)), "")


def send_to_target(name: str, client: str, body: bytes) -> Json:
    """Send a request of an agent to a target; return the outgoing request."""
    target = TARGETS[name]
    server = target.get("api", "openai-chat")
    facts = replace(AGENT, host=target["host"], port=443, path=SHAPES[client].build_path(model=target["model"]))
    plans = planner(**({} if client == server else {"upstream_api": (server,)}))
    body = Session.open(BY_NAME[client], body, facts, plans, "seed").encode_request()
    pairs.check_request(server, json.loads(body))
    return json.loads(body)  # type: ignore[no-any-return]


@pytest.mark.parametrize("client", TALKS)
@pytest.mark.parametrize("name", TARGETS)
def test_no_request_of_an_agent_breaks_a_known_rule_of_a_hosted_server(name: str, client: str) -> None:
    fields = {**ASKS[client], **TALKS[client], "model": TARGETS[name]["model"]}
    body = send_to_target(name, client, chat.encode_json(SHAPES[client].request(**fields)))
    assert refusal(TARGETS[name], body) == ""


@pytest.mark.parametrize("agent", RECORDED)
@pytest.mark.parametrize("name", TARGETS)
def test_nor_is_one_that_was_recorded_of_a_real_agent(name: str, agent: str) -> None:
    client, body = RECORDED[agent]["api"], RECORDED[agent]["body"]
    named = {} if client == "gemini-generate" else {"model": TARGETS[name]["model"]}
    assert refusal(TARGETS[name], send_to_target(name, client, chat.encode_json({**body, **named}))) == ""


HOSTS = {
    "aiplatform.googleapis.com": "hosted",
    "api.fireworks.ai": "hosted",
    "generativelanguage.googleapis.com": "hosted",
    "dashscope-intl.aliyuncs.com": "dashscope",
}


@pytest.mark.parametrize(("host", "name"), HOSTS.items())
def test_hosts_of_which_less_is_known(host: str, name: str) -> None:
    profile = planner().find_server(Facts(host=host, port=443))
    assert profile is not None
    assert profile.name == name


@pytest.mark.parametrize(("effort", "is_left"), [("none", True), ("low", False), (None, False)])
def test_bedrock_model_with_disabled_thinking_gets_its_sampling(effort: str | None, is_left: bool) -> None:
    fields: Json = {"reasoning_effort": effort} if effort else {}
    body = chat.encode_json(chat.request(model="us.openai.gpt-5.6-sol", temperature=0.2, **fields))
    facts = replace(AGENT, host="bedrock-runtime.eu-west-1.amazonaws.com", port=443)
    exchange = Session.open(BY_NAME["openai-chat"], body, facts, planner(), "seed")
    assert ("temperature" in json.loads(exchange.encode_request())) == is_left


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_of_gpt_oss_is_separated_from_bedrocks_text(stream: bool) -> None:
    body = chat.encode_json(chat.request(model="openai.gpt-oss-120b-1:0", stream=stream))
    facts = replace(AGENT, host="bedrock-runtime.us-west-2.amazonaws.com", port=443)
    exchange = Session.open(BY_NAME["openai-chat"], body, facts, planner(), "seed")
    exchange.encode_request()
    text = "<reasoning>I look.</reasoning>Hello."
    reply = pairs.make_stream("openai-chat", [*text]) if stream else pairs.make_whole_reply("openai-chat", text)
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert pairs.read("openai-chat", out, stream=stream) == pairs.make_content("Hello.", reasoning="I look.")


def test_each_thing_that_a_hosted_server_needs_has_a_source_and_a_date() -> None:
    hosted = [server for server in PROFILES.servers.values() if server.why]
    for server in hosted:
        changes = {*server.request.drop, *server.request.drop_flags, *server.request.rename}
        assert changes <= {*server.why}, server.name
    assert all("2026-11" in why for server in hosted for why in server.why.values())


def test_rewritten_fields_are_reported_and_all_others_keep_their_bytes() -> None:
    facts = replace(AGENT, host="api.openai.com", port=443)

    def send_fields(**fields: Any) -> tuple[bytes, bytes, list[str]]:
        body = chat.encode_json(chat.request(model="o3", messages=[{"role": "user", "content": "Hi"}], **fields))
        exchange = Session.open(BY_NAME["openai-chat"], body, facts, planner(), "seed")
        return body, exchange.encode_request(), exchange.report.request

    body, sent, reports = send_fields(max_completion_tokens=9)
    assert sent == body
    assert not reports
    body, sent, reports = send_fields(max_tokens=9, temperature=0.2)
    assert json.loads(sent) == {
        "max_completion_tokens": 9,
        **{key: value for key, value in json.loads(body).items() if key not in ("max_tokens", "temperature")},
    }
    assert reports == [
        "temperature left out by a profile",
        "max_tokens sent as max_completion_tokens, as the server requires it",
    ]
