"""Whether and with which grammar a server is constrained."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from tests.exchanges import API, planner
from vtc.profiles import Facts, Plan
from vtc.profiles.reply_constraint import ReplyConstraint

TOOL = {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
REQUIRED: dict[str, Any] = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}


def plan(server: str, model: str = "m", settings: dict[str, Any] | None = None, **fields: Any) -> Plan:
    body = chat.encode_json(chat.request(model=model, **{**REQUIRED, **fields}))
    plans = planner(**{"server": server, "tools": "prompt", "dialect": "hermes", **(settings or {})})
    return plans.plan(Facts(model=model, path="/v1/chat/completions"), API.request(body))


def join_reasons(found: Plan) -> str:
    return "\n".join(found.why)


@pytest.mark.parametrize(
    ("server", "form"),
    [("vllm", "structural_tag"), ("sglang", "structural_tag"), ("llama.cpp", "gbnf"), ("ollama", "json_schema")],
)
def test_a_demand_is_held_to_a_grammar(server: str, form: str) -> None:
    found = plan(server, settings={"dialect": "bare-json"}).steps["constrain"]
    assert isinstance(found, ReplyConstraint)
    assert (found.form, found.dialect.name, found.demand.calls_only) == (form, "bare-json", True)
    assert [tool.name for tool in found.tools] == ["read"]


@pytest.mark.parametrize(
    ("settings", "fields", "why"),
    [
        ({"constrain": "off"}, {}, ""),
        ({"tools": "native"}, {}, ""),
        ({}, {"tool_choice": "auto"}, "no call is demanded"),
        ({}, {"tool_choice": "none"}, ""),
        ({}, {"tools": []}, ""),
        ({}, {"response_format": {"type": "json_object"}}, "the form of its answer itself"),
        ({"constrain": "auto"}, {"grammar": "root ::= [a]"}, "the form of its answer itself"),
        ({"server": "hosted"}, {}, ""),
        ({"dialect": "gemma4"}, {}, "dialect gemma4: arguments are in a writing of Gemma's own"),
    ],
)
def test_where_no_grammar_is_sent(settings: dict[str, Any], fields: dict[str, Any], why: str) -> None:
    found = plan("vllm", settings=settings, **fields)
    assert "constrain" not in found.steps
    assert ("no grammar" in join_reasons(found)) == bool(why)
    assert why in join_reasons(found)


def test_free_text_is_constrained_where_that_is_wished() -> None:
    found = plan("vllm", settings={"constrain": "auto"}, tool_choice="auto").steps["constrain"]
    assert not found.demand.calls_only


def test_a_tool_by_name_is_the_only_one() -> None:
    tools = [{"type": "function", "function": {**TOOL, "name": name}} for name in ("read", "list")]
    choice = {"type": "function", "function": {"name": "list"}}
    found = plan("vllm", tools=tools, tool_choice=choice).steps["constrain"]
    assert [tool.name for tool in found.tools] == ["list"]


@pytest.mark.parametrize("parallel", [True, False])
def test_parallel_calls_as_the_client_allows_them(parallel: bool) -> None:
    found = plan("vllm", parallel_tool_calls=parallel).steps["constrain"]
    assert found.demand.allows_multiple == parallel


def test_thoughts_may_come_first_unless_the_request_turns_them_off() -> None:
    found = plan("llama.cpp").steps["constrain"]
    assert ("<think>", "</think>") in found.demand.reasoning_tags
    for model, fields in (("m", {"reasoning_effort": "none"}), ("qwen2.5-7b-instruct", {})):
        found = plan("llama.cpp", model, **fields).steps["constrain"]
        assert not found.demand.reasoning_tags


def test_a_prompt_that_begins_the_thoughts() -> None:
    """llama.cpp applies the grammar from the first token on, others can wait for the end of the reasoning."""
    model = "deepseek-r1"
    assert plan("llama.cpp", model).steps["constrain"].demand.reasoning_closers == ("</think>",)
    found = plan("vllm", model)
    assert "constrain" not in found.steps
    assert "replies begin with thoughts" in join_reasons(found)


@pytest.mark.parametrize(
    ("server", "settings", "strict"),
    [
        ("vllm", {"constrain": "auto"}, True),
        ("vllm", {}, None),
        ("vllm", {"constrain": "auto", "tools": "prompt"}, None),
        ("llama.cpp", {"constrain": "auto"}, None),
    ],
)
def test_declared_tools_are_strict_where_that_is_wished(server: str, settings: dict[str, Any], strict: Any) -> None:
    assert plan(server, settings={"tools": "native", **settings}).steps.get("strict") == strict
