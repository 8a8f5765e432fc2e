"""`vtc explain`: by parts of a request, by its body, and by saved flows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from tests.apis.shapes import SHAPES, asked
from tests.proxy.test_replaying import saved
from vtc.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})


def test_explain_which_profiles_match() -> None:
    result = run("explain", "--user-agent", "Cline/3.1", "--model", "qwen2.5:7b", "--host", "localhost:11434")
    assert result.exit_code == 0
    heads = [line for line in result.output.splitlines() if not line.startswith(" ")]
    assert heads == ["client: cline", "model: qwen2.5", "server: ollama"]
    assert "*qwen2.5*" in result.output


def test_explain_where_nothing_matches() -> None:
    lines = run("explain", "--model", "nobody-knows-it").output.splitlines()
    assert "model: none" in lines


@pytest.mark.parametrize("api", SHAPES)
def test_explain_the_plan_for_a_request(api: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(asked(api, model="Qwen/Qwen3-8B"))
    result = run("explain", "--request", str(path), "--path", SHAPES[api].path)
    assert result.exit_code == 0
    assert "model: qwen3" in result.output
    plan = result.output.partition("plan\n")[2]
    assert "the request declares 3 tools: a native client" in plan
    assert "calls are read as hermes" in plan


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [("x", "/v1/chat/completions", "no chat completion request"), ("{}", "/v1/nothing", "no API that VTC knows")],
)
def test_explain_of_what_is_no_request(body: str, path: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(body)
    result = run("explain", "--request", str(file), "--path", path)
    assert result.exit_code != 0
    assert said in result.output


@pytest.mark.parametrize("api", SHAPES)
def test_explain_what_policies_do_to_a_call_of_a_request(api: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(asked(api))
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
    path = saved(tmp_path, "Hello", api=api, model="Qwen/Qwen3-8B")
    result = run("explain", "--flow", str(path))
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == f"address{SHAPES[api].path}"
    assert "model: qwen3" in result.output.splitlines()
    (found,) = json.loads(run("explain", "--json", "--flow", str(path)).output)
    assert found["model"]["profile"] == "qwen3"
    assert any("a native client" in line for line in found["plan"])


def test_explain_a_saved_flow_that_is_no_request(tmp_path: Path) -> None:
    result = run("explain", "--flow", str(saved(tmp_path, "Hello", messages=5)))
    assert result.exit_code == 0
    assert "no chat completion request" in result.output


def test_explain_a_file_without_flows(tmp_path: Path) -> None:
    (tmp_path / "flows").write_text("nothing")
    result = run("explain", "--flow", str(tmp_path / "flows"))
    assert result.exit_code == 1
    assert "cannot be read as flows" in result.output
