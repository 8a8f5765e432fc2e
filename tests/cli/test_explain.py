"""Test `vtc explain` with parts of a request, with its body, and with saved flows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from tests.apis.shapes import SHAPES, make_request_body
from tests.proxy.captures import CALL, save_flows
from vtc.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})


def test_explain_which_profiles_match() -> None:
    result = run("explain", "--user-agent", "Cline/3.1", "--model", "qwen2.5:7b", "--host", "localhost:11434")
    assert result.exit_code == 0
    heads = [line for line in result.output.splitlines() if not line.startswith(" ")]
    assert heads == ["client: cline", "model: qwen2.5", "server: ollama"]
    assert "*qwen2.5*" in result.output


def test_a_profile_that_an_option_names_is_shown() -> None:
    shown = run("explain", "--model", "qwen3", "--host", "127.0.0.1:1", "--server", "llama.cpp", "--client", "cline")
    assert "server: llama.cpp\n  server llama.cpp: named by the option vtc_server" in shown.output
    assert "client: cline\n" in shown.output


@pytest.mark.parametrize("host", ["127.0.0.1:11434", "http://127.0.0.1:11434/v1", "[::1]:11434"])
def test_a_host_may_be_given_as_a_url(host: str) -> None:
    assert "server: ollama" in run("explain", "--host", host).output.splitlines()


@pytest.mark.parametrize("host", ["127.0.0.1:abc", "127.0.0.1:99999"])
def test_an_invalid_host(host: str) -> None:
    result = run("explain", "--host", host)
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert f"{host}: the port must be from 1 to 65535" in result.output


def test_explain_when_nothing_matches() -> None:
    lines = run("explain", "--model", "nobody-knows-it").output.splitlines()
    assert "model: none" in lines


def test_explain_names_removed_fields_with_reasons() -> None:
    lines = run("explain", "--host", "api.groq.com").output.splitlines()
    assert "  logit_bias is left out: will result in a 400 error (console.groq.com/docs/openai, 2026-11)" in lines


def test_explain_names_the_variable_of_a_lent_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output names the variable and contains nothing of the key."""
    monkeypatch.setenv("LAB_KEY", "canary-explain-0f1e2d3c")
    file = tmp_path / "keyed.yaml"
    file.write_text("{kind: server, name: keyed, match: {host: api.example.com}, key_env: LAB_KEY}")
    output = run("explain", "--profiles", str(file), "--host", "api.example.com").output
    assert "clients that send no key use that of LAB_KEY in the environment, at api.example.com alone" in output
    assert "canary" not in output


@pytest.mark.parametrize("api", SHAPES)
def test_explain_the_plan_for_a_request(api: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(make_request_body(api, model="Qwen/Qwen3-8B"))
    result = run("explain", "--request", str(path), "--path", SHAPES[api].build_path(model="Qwen/Qwen3-8B"))
    assert result.exit_code == 0
    assert "model: qwen3" in result.output
    plan = result.output.partition("plan\n")[2]
    assert "the request has 3 tools; calls go back as `tool_calls`" in plan
    assert "calls are read as hermes" in plan


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ("x", "/v1/chat/completions", "not a valid chat completion request"),
        ("{}", "/v1/nothing", "not a path of an API that VTC supports"),
    ],
)
def test_an_invalid_request(body: str, path: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(body)
    result = run("explain", "--request", str(file), "--path", path)
    assert result.exit_code != 0
    assert message in result.output


@pytest.mark.parametrize("api", SHAPES)
def test_explain_applies_policies_to_a_call(api: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(make_request_body(api))
    (tmp_path / "mine.yaml").write_text("{kind: policy, name: mine, match: {}, guards: {denied_tools: [read]}}")
    call = '{"name": "read", "arguments": {"filePath": "/a"}}'
    arguments = ("--request", str(path), "--path", SHAPES[api].path, "--profiles", str(tmp_path), "--call", call)
    assert "denied_tools refused read" in run("explain", *arguments).output


def test_explain_for_programs(tmp_path: Path) -> None:
    found = json.loads(run("explain", "--json", "--model", "qwen2.5:7b").output)
    assert found["model"]["profile"] == "qwen2.5"
    assert "*qwen2.5*" in found["model"]["why"][0]
    assert "plan" not in found
    path = tmp_path / "request.json"
    path.write_text(json.dumps(chat.request()))
    assert "plan" in json.loads(run("explain", "--json", "--request", str(path)).output)


@pytest.mark.parametrize("api", SHAPES)
def test_explain_saved_flows(api: str, tmp_path: Path) -> None:
    """The output is the recorded report and, with --all, the current plan under the options of the capture."""
    path = save_flows(tmp_path, CALL, api=api, model="Qwen/Qwen3-8B", vtc_tools="prompt")
    result = run("explain", "--flow", str(path))
    assert result.exit_code == 0
    first, *lines = result.output.splitlines()
    where = re.escape(f"address{SHAPES[api].build_path(model='Qwen/Qwen3-8B')}")
    assert re.fullmatch(
        where + r" 200 \w{8}: vtc: Qwen/Qwen3-8B: read, hermes -> tool_calls, \d tools -> hermes prompt", first
    )
    assert "  call: read, hermes -> tool_calls" in lines
    assert "Current plan" not in lines
    assert "model: qwen3" in run("explain", "--all", "--flow", str(path)).output.splitlines()
    (found,) = json.loads(run("explain", "--json", "--flow", str(path)).output)
    assert found["model"]["profile"] == "qwen3"
    assert any("written as hermes" in line for line in found["plan"])  # as it was captured


def test_explain_a_flow_that_vtc_did_not_see(tmp_path: Path) -> None:
    result = run("explain", "--flow", str(save_flows(tmp_path, "Hello", model="Qwen/Qwen3-8B", seen=False)))
    assert result.exit_code == 0
    assert {"Current plan", "model: qwen3"} <= {*result.output.splitlines()}


def test_explain_with_options(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(chat.request()))
    result = run("explain", "--request", str(path), "--tools", "prompt", "--dialect", "hermes", "--client", "opencode")
    assert "conversation and tools written as hermes" in result.output
    assert "client opencode: named by the option vtc_client" in result.output


def test_explain_a_saved_flow_with_an_invalid_request(tmp_path: Path) -> None:
    result = run("explain", "--flow", str(save_flows(tmp_path, "Hello", messages=5)))
    assert result.exit_code == 0
    assert "not a valid chat completion request" in result.output


def test_ignored_saved_flow_is_explained(tmp_path: Path) -> None:
    result = run("explain", "--flow", str(save_flows(tmp_path, "Hello", path="/v1/completions")))
    assert result.exit_code == 0
    assert "  left alone: text completions" in result.output


@pytest.mark.parametrize(
    ("text", "message"), [("nothing", "cannot be read as flows"), ("", "contains no exchange with a model")]
)
def test_explain_a_file_without_flows(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "flows").write_text(text)
    result = run("explain", "--flow", str(tmp_path / "flows"))
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.parametrize(
    ("options", "choice", "line"),
    [
        (["--server", "llama.cpp"], "required", "a grammar of hermes is to be sent (gbnf): calls alone may be written"),
        (["--server", "llama.cpp"], "auto", "no grammar: no call is demanded"),
        (["--server", "vllm", "--constrain", "auto"], "auto", "(structural_tag): calls in free text are held to it"),
        (["--server", "vllm", "--constrain", "off"], "required", ""),
    ],
)
def test_explain_whether_a_grammar_is_sent(options: list[str], choice: str, line: str, tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    request = tmp_path / "request.json"
    request.write_bytes(chat.encode_json(chat.request(tools=tools, tool_choice=choice)))
    arguments = ["explain", "--request", str(request), "--tools", "prompt", "--dialect", "hermes", *options]
    shown = CliRunner().invoke(main, arguments).output
    assert line in shown
    assert bool(line) == ("grammar of hermes" in shown or "no grammar" in shown)


RENAMED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


def explain_rejection(message: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", "--rejection", "-", *arguments], input=message, env={"COLUMNS": "400"})


def test_explain_names_the_rule_that_an_error_matches() -> None:
    result = explain_rejection(json.dumps({"error": {"message": RENAMED}}))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[:2] == [
        f"status 400 of openai-chat: {RENAMED}",
        "rule 2010: max_tokens sent as max_completion_tokens",
    ]
    assert lines[2] == f'  it matches "{RENAMED[23:-1]}"'
    assert f"  source: OpenAI: {RENAMED}" in lines
    assert "rule 2060: max_tokens left out" in lines[lines.index("rules of a lower priority that match, too") :]


@pytest.mark.parametrize(
    ("message", "arguments", "obstacle"),
    [
        (
            "This model is only supported in v1/responses",
            ("--path", "/v1/messages"),
            "it is for requests of openai-chat, not of anthropic-messages",
        ),
        ("structural_tag", (), "it is for requests with the step constrain, which was not applied"),
        ("prompt is too long", ("--status", "404"), "it is not for status 404"),
        ("max_tokens is too large", (), "the error does not state the tokens"),
    ],
)
def test_explain_why_a_rule_that_matches_an_error_does_not_count(
    message: str, arguments: tuple[str, ...], obstacle: str
) -> None:
    result = explain_rejection(message, *arguments)
    assert f"  it does not count: {obstacle}" in result.output
    assert (result.exit_code, "no rule counts" in result.output) == (1, True)


def test_explain_knows_the_steps_of_profiles_and_the_fields_of_a_request(tmp_path: Path) -> None:
    file = tmp_path / "folded.yaml"
    file.write_text("{kind: server, name: folded, match: {host: api.example.com}, ready: {system: folded}}")
    message = "System message must be at the beginning."
    assert "rule 1090: apply system: folded\n  it matches" in explain_rejection(message).output
    known = explain_rejection(message, "--profiles", str(file), "--host", "api.example.com")
    assert "  it does not count: its steps were applied already" in known.output
    request = tmp_path / "request.json"
    request.write_bytes(make_request_body("openai-chat", store=True, safety_identifier="me"))
    for name, line in {
        "store": "rule 2060: store left out\n  it matches",
        "seed": "rule 2060: leave_out the named field\n  it does not count: the request has no such field",
        "safety_identifier": "  it does not count: the field is protected, or has such a value",
    }.items():
        assert line in explain_rejection(f"Unknown parameter: '{name}'", "--request", str(request)).output


@pytest.mark.parametrize("api", SHAPES)
def test_explain_an_error_as_json(api: str) -> None:
    path = SHAPES[api].build_path()
    result = explain_rejection("prompt is too long: 5000 tokens > 4096 maximum", "--path", path, "--json")
    explained = json.loads(result.output)
    assert explained["error"]["api"] == api
    assert explained["rule"]["priority"] == 400
    assert explained["rule"]["action"].endswith("(window 4096, prompt 5000)")


def test_an_error_that_no_rule_matches() -> None:
    result = explain_rejection("out of memory", "--status", "500")
    assert (result.exit_code, result.output.splitlines()[1:]) == (
        1,
        ["no rule counts: the client receives this error"],
    )
