"""`vtc render`: what a model would be shown."""

from __future__ import annotations

import json

from click.testing import CliRunner

from tests.apis import messages, responses
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


def test_the_body_can_be_had_as_json() -> None:
    done = CliRunner().invoke(main, ["render", "--dialect", "hermes", "--json"], input=json.dumps(REQUEST))
    body = json.loads(done.output)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert "tools" not in body


def test_request_of_another_api_is_told_by_its_path() -> None:
    said = [messages.user("Read a.txt"), messages.assistant(messages.call("read", filePath="a.txt"))]
    body = json.dumps(messages.request(messages=[*said, messages.user([messages.result("hello")])], system="Be brief."))
    command = ["render", "--dialect", "hermes", "--path", messages.PATH]
    done = CliRunner().invoke(main, command, input=body)
    assert done.exit_code == 0, done.output
    assert "[system]\nBe brief." in done.output
    assert '[assistant]\n<tool_call>\n{"name": "read", "arguments": {"filePath": "a.txt"}}' in done.output
    assert "[user]\n<tool_response>\nhello\n</tool_response>" in done.output
    done = CliRunner().invoke(main, ["render", "--path", "/v1/messages/batches"], input=body)
    assert (done.exit_code, "no API that VTC knows" in done.output) == (2, True)


def test_what_is_no_request_is_said() -> None:
    done = CliRunner().invoke(main, ["render"], input="no json")
    assert done.exit_code == 1
    assert "no chat completion request" in done.output


def test_a_request_for_a_response_is_shown_as_a_conversation() -> None:
    items = [responses.said("user", "Read a"), responses.call("read", filePath="a"), responses.output("hello")]
    body = json.dumps(responses.request(input=items))
    path = ["--path", "/v1/responses"]
    done = CliRunner().invoke(main, ["render", "--dialect", "tag", *path], input=body)
    assert done.exit_code == 0, done.output
    assert "[system]" in done.output
    assert "## read" in done.output
    assert "<filePath>a</filePath>" in done.output
    assert CliRunner().invoke(main, ["render", "--path", "/x"], input=body).exit_code == 2
