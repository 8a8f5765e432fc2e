"""`vtc check`: whether profiles are valid, told to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

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


def test_check_for_programs(tmp_path: Path) -> None:
    result = run("check", "--json", str(tmp_path))
    assert result.exit_code == 0
    assert json.loads(result.output) == {"ok": True, **BUILT_IN.counts()}
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\nlenientt: true\n")
    result = run("check", "--json", str(tmp_path))
    assert result.exit_code == 1
    found = json.loads(result.output)
    (problem,) = found["problems"]
    assert (found["ok"], problem["file"], problem["line"]) == (False, str(tmp_path / "mine.yaml"), 4)
    assert problem["key"] == "lenientt"
    assert "did you mean 'lenient'?" in problem["message"]
