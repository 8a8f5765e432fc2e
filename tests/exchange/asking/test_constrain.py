"""Grammars in requests, and strict tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.shapes import make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchanges import AGENT, API, planner
from vtc.exchange import Session
from vtc.exchange.asking.steps.tools import close_objects

TEXT = {"type": "string"}
TOOL = {"name": "read", "parameters": {"type": "object", "properties": {"path": TEXT}, "required": ["path"]}}
TOOLS = [{"type": "function", "function": TOOL}]


def send_chat(server: str, settings: dict[str, Any] | None = None, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    body = chat.encode_json(chat.request(**{"tools": TOOLS, "tool_choice": "required", **fields}))
    plans = planner(**{"server": server, "tools": "prompt", "dialect": "hermes", **(settings or {})})
    exchange = Session.open(API, body, AGENT, plans, "seed")
    return json.loads(exchange.encode_request()), exchange.report.request


def test_each_server_gets_the_grammar_in_its_own_field() -> None:
    body, report = send_chat("llama.cpp")
    assert body["grammar"].startswith("root ::= ")
    assert "tools" not in body  # llama.cpp rejects both at once
    assert "a grammar of hermes sent (gbnf)" in report
    body, _ = send_chat("vllm")
    assert body["response_format"]["type"] == "structural_tag"
    assert body["response_format"]["format"]["type"] == "grammar"
    body, _ = send_chat("vllm", {"constrain": "auto"}, tool_choice="auto")
    assert "<tool_call>" in json.dumps(body["response_format"]["format"])
    body, _ = send_chat("lm-studio", {"dialect": "bare-json"})
    assert body["response_format"]["json_schema"]["schema"]["properties"]["name"] == {"const": "read"}


def test_server_of_another_api_gets_the_grammar() -> None:
    body, report = send_chat("ollama", {"dialect": "bare-json", "upstream_api": ("ollama-chat",)})
    assert body["format"]["required"] == ["name", "arguments"]
    body, report = send_chat("llama.cpp", {"upstream_api": ("ollama-chat",)})
    assert "format" not in body
    assert "no grammar: ollama-chat has no field for it" in report


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"dialect": "pythonic", "constrain": "auto"}, "no grammar: dialect pythonic: only a whole reply is a call"),
        ({"server": "ollama", "dialect": "hermes"}, "no grammar: dialect hermes: a call is not a JSON object"),
    ],
)
def test_inexpressible_constraint_is_reported_and_omitted(settings: dict[str, Any], why: str) -> None:
    body, report = send_chat("vllm", settings, tool_choice="auto" if "constrain" in settings else "required")
    assert "response_format" not in body
    assert any(line.startswith(why) for line in report)


@pytest.mark.parametrize("where", ["user", "tool", "call"])
def test_conversation_about_calls_is_unchanged(where: str) -> None:
    """A value may have to contain the markup, which a grammar would forbid."""
    quoted = "Write <parameter=path> into the file."
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": quoted})}}
    messages = {
        "user": [{"role": "user", "content": quoted}],
        "tool": [{"role": "tool", "tool_call_id": "c1", "content": quoted}],
        "call": [{"role": "assistant", "content": "", "tool_calls": [call]}],
    }[where]
    body, report = send_chat("llama.cpp", {"dialect": "qwen3-coder"}, messages=messages)
    assert "grammar" not in body
    assert "no grammar: the conversation quotes <parameter=, which no value could contain" in report
    assert "grammar" in send_chat("llama.cpp", {"dialect": "hermes"}, messages=messages)[0]


def test_tools_become_strict_and_closed() -> None:
    body, report = send_chat(
        "vllm",
        {"tools": "native", "constrain": "auto"},
        tools=[*TOOLS, {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}],
    )
    read, now = (one["function"] for one in body["tools"])
    assert (read["strict"], read["parameters"]["additionalProperties"]) == (True, False)
    assert "strict" not in now  # empty grammars never end
    assert "1 tool declared as strict" in report


STRICT = [name for name in pairs.NAMES if name not in ("ollama-chat", "gemini-generate")]
"""APIs in which each tool can be declared as strict."""


def strict_of(body: dict[str, Any], name: str) -> Any:
    found = (tool.get("function", tool) for tool in body["tools"])
    return next(tool.get("strict") for tool in found if tool["name"] == name)


@pytest.mark.parametrize(
    ("client", "server"), [pair for pair in pairs.PAIRS if pair[0] in STRICT and pair[1] != "gemini-generate"]
)
@pytest.mark.parametrize("constrain", ["auto", "off"])
def test_every_api_declares_strict_tools_and_reports_others(client: str, server: str, constrain: str) -> None:
    """The report mentions it only if the server does not enforce it."""
    fields = json.loads(make_request_body(client))
    for tool in fields["tools"]:
        tool.get("function", tool)["strict"] = True
    upstream: Any = {"upstream_api": (server,)} if client != server else {}
    plans = planner(server="vllm", tools="native", constrain=constrain, **upstream)
    exchange = Session.open(BY_NAME[client], chat.encode_json(fields), AGENT, plans, "seed")
    body = json.loads(exchange.encode_request())
    is_strict = constrain == "auto" or client == server
    assert bool(strict_of(body, "read")) == is_strict
    assert any("strict of tools" in line for line in exchange.report.request) == (not is_strict)


@pytest.mark.parametrize("api", STRICT)
def test_a_client_that_asks_for_nothing_has_strict_tools_in_its_own_api(api: str) -> None:
    plans = planner(server="vllm", tools="native", constrain="auto")
    exchange = Session.open(BY_NAME[api], make_request_body(api), AGENT, plans, "seed")
    assert strict_of(json.loads(exchange.encode_request()), "read") is True


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ({"type": "object", "properties": {"a": TEXT}}, True),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {"b": TEXT}}}}}, True),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, False),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}, False),
        ({"type": "object", "properties": {"a": {"additionalProperties": TEXT, "type": "object"}}}, False),
        ({"type": "object", "properties": {"a": True}}, False),
    ],
)
def test_only_closed_schemas_are_strict(schema: dict[str, Any], fits: bool) -> None:
    found = close_objects(schema)
    assert (found is not None) == fits
    assert found is None or close_objects(found) == found
