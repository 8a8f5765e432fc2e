"""`vtc check`, `vtc explain`, `vtc profiles`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from vtc.cli import main
from vtc.profiles import loader

BUILT_IN = loader.load([loader.builtin_directory()])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})


def test_check(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\n")
    result = run("check", str(tmp_path))
    assert result.exit_code == 0
    assert f" {len(BUILT_IN.models) + 1} models, " in result.output


def test_check_of_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\ndialect: hermez\n")
    result = run("check", str(tmp_path))
    assert result.exit_code == 1
    assert "mine.yaml:4" in result.output
    assert "hermes" in result.output


def test_explain_which_profiles_match() -> None:
    result = run("explain", "--user-agent", "Cline/3.1", "--model", "qwen2.5:7b", "--host", "localhost:11434")
    assert result.exit_code == 0
    heads = [line for line in result.output.splitlines() if not line.startswith(" ")]
    assert heads == ["client: cline", "model: qwen2.5", "server: ollama"]
    assert "*qwen2.5*" in result.output


def test_explain_where_nothing_matches() -> None:
    lines = run("explain", "--model", "nobody-knows-it").output.splitlines()
    assert "model: none" in lines


def test_explain_the_plan_for_a_request(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(chat.request(model="Qwen/Qwen3-8B")))
    result = run("explain", "--request", str(path))
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


def test_all_profiles_are_listed() -> None:
    result = run("profiles")
    assert result.exit_code == 0
    for kind in ("clients", "models", "servers", "dialects"):
        for name in getattr(BUILT_IN, kind):
            assert name in result.output
