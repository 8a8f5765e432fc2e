"""`vtc check`: whether profiles are valid, told to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
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
    assert result.output.startswith("ok: yours: 1 model; all: ")
    assert f" {len(BUILT_IN.models) + 1} models, " in result.output


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bin.dat", b"\xff\xfe\x00", "bin.dat:1: not UTF-8"),
        ("tools.json", b"[]", "tools.json:1: a profile is a mapping"),
        ("folder/readme.txt", b"x", "folder: no profile in it"),
    ],
)
def test_what_is_named_is_looked_at_and_holding_no_profile_is_a_mistake(
    name: str, text: bytes, said: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    result = run("check", str(tmp_path / Path(name).parts[0]))
    assert result.exit_code == 1
    assert said in result.output


def test_what_is_not_there_is_a_wrong_call() -> None:
    result = run("check", "/nowhere/at/all")
    assert result.exit_code == 2
    assert "'/nowhere/at/all' does not exist" in result.output


def test_check_of_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\ndialect: hermez\n")
    result = run("check", str(tmp_path))
    assert result.exit_code == 1
    assert "mine.yaml:4" in result.output
    assert "hermes" in result.output


def test_check_for_programs(tmp_path: Path) -> None:
    result = run("check", "--json")
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
