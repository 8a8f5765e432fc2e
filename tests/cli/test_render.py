"""Test `vtc render`: the prompt that a model would receive."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner

from tests.apis.shapes import SHAPES, make_request_body
from vtc.cli import main

REQUEST = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "Read a.txt"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "hello"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
        }
    ],
}


def test_tools_calls_and_results_are_shown_in_the_dialect() -> None:
    done = CliRunner().invoke(main, ["render", "--dialect", "tag"], input=json.dumps(REQUEST))
    assert done.exit_code == 0, done.output
    assert "## read" in done.output
    assert "<read>\n<path>a.txt</path>\n</read>" in done.output
    assert "[user]\nTool Result from read:\nhello" in done.output


def test_the_body_as_json() -> None:
    done = CliRunner().invoke(main, ["render", "--dialect", "hermes", "--json"], input=json.dumps(REQUEST))
    body = json.loads(done.output)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert "tools" not in body


@pytest.mark.parametrize(
    ("form", "dialect", "shown"),
    [
        ("gbnf", "hermes", "root ::= "),
        ("structural_tag", "hermes", '"triggered_tags"'),
        ("gbnf", "gemma4", "no grammar: dialect gemma4: arguments are in a writing of Gemma's own"),
        ("json_schema", "bare-json", "no grammar: a JSON Schema describes the whole reply, so a call must be required"),
    ],
)
def test_the_grammar_of_the_reply(form: str, dialect: str, shown: str) -> None:
    arguments = ["render", "--constrain", form, "--dialect", dialect]
    done = CliRunner().invoke(main, arguments, input=json.dumps({**REQUEST, "model": "qwen2.5"}))
    assert shown in done.output
    assert done.exit_code == ("no grammar" in shown)


def test_native_tools_have_no_grammar() -> None:
    arguments = ["render", "--constrain", "gbnf", "--tools", "native"]
    done = CliRunner().invoke(main, arguments, input=json.dumps(REQUEST))
    assert "the prompt contains no tools" in done.output


def run_render(api: str, *arguments: str, **fields: Any) -> str:
    body = make_request_body(api, **SHAPES[api].history, **fields)
    done = CliRunner().invoke(main, ["render", "--path", SHAPES[api].path, *arguments], input=body)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("api", SHAPES)
def test_request_of_every_api_is_shown_as_a_conversation(api: str) -> None:
    shown = run_render(api, "--dialect", "hermes")
    assert "[system]\n# Tools" in shown
    calling = '[assistant]\n<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
    assert f"[user]\nRead it\n\n{calling}\n\n[user]\n<tool_response>\nhello\n</tool_response>\n" in shown
    assert "\ntools:\n" not in shown


@pytest.mark.parametrize("api", SHAPES)
def test_native_calls_and_tools_are_shown(api: str) -> None:
    shown = run_render(api, "--tools", "native")
    assert re.search(r"\[assistant\]\n-> read.*\n     filePath: /a\n\n\[tool\]\nhello\n\ntools:\n\[", shown)
    assert "null" not in shown


def test_separate_system_prompt_is_shown_first() -> None:
    assert "[system]\nBe brief." in run_render("anthropic-messages", "--dialect", "hermes", system="Be brief.")
    assert "[system]\nBe brief." in run_render("openai-responses", "--dialect", "hermes", instructions="Be brief.")


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/x"])
def test_a_path_of_no_api_is_an_error(path: str) -> None:
    done = CliRunner().invoke(main, ["render", "--path", path], input=make_request_body("anthropic-messages"))
    assert (done.exit_code, "not a path of an API that VTC supports" in done.output) == (2, True)


def test_an_invalid_request_is_an_error() -> None:
    done = CliRunner().invoke(main, ["render"], input="no json")
    assert done.exit_code == 1
    assert "not a valid chat completion request" in done.output
