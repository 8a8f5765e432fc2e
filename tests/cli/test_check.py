"""Tests of `vtc check`: the validation of profiles, with output for people and programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vtc.cli import main
from vtc.profiles import builtin_directory, load_profiles

BUILT_IN = load_profiles([builtin_directory()])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})


def test_check(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\n")
    result = run("check", str(tmp_path))
    assert result.exit_code == 0
    assert result.output.startswith("ok: yours: 1 model; all: ")
    assert f" {len(BUILT_IN.models) + 1} models, " in result.output


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bin.dat", b"\xff\xfe\x00", "bin.dat:1: not UTF-8"),
        ("tools.json", b"[]", "tools.json:1: a profile is a mapping"),
        ("folder/readme.txt", b"x", "folder: no profile in it"),
    ],
)
def test_named_path_is_checked_and_must_hold_a_profile(name: str, text: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text)
    result = run("check", str(tmp_path / Path(name).parts[0]))
    assert result.exit_code == 1
    assert message in result.output


def test_missing_path_is_a_usage_error() -> None:
    result = run("check", "/nowhere/at/all")
    assert result.exit_code == 2
    assert "'/nowhere/at/all' does not exist" in result.output


def test_check_of_faulty_files(tmp_path: Path) -> None:
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


def check_dialect(tmp_path: Path, description: str, *options: str) -> Result:
    (tmp_path / "mine.yaml").write_text(f"kind: dialect\nname: mine\n{description}\n")
    return run("check", *options, str(tmp_path))


def test_dialect_that_does_not_read_its_own_output_is_a_mistake(tmp_path: Path) -> None:
    result = check_dialect(tmp_path, 'call: "@tool {name} {kwargs}@@"')
    assert result.exit_code == 1
    assert "mine.yaml:3: call: " in result.output
    assert "`@tool read_file path=" in result.output
    assert "`({kwargs})`" in result.output
    assert check_dialect(tmp_path, 'call: "@tool {name}({kwargs})@@"').output.startswith("ok: yours: 1 dialect")
    (problem,) = json.loads(check_dialect(tmp_path, 'call: "@tool {name} {kwargs}@@"', "--json").output)["problems"]
    assert problem["key"] == "call"


@pytest.mark.parametrize("param", ["<<{key}>> {value} <</{key}>>", "{key}: {value};"])
def test_a_dialect_whose_calls_are_shown_as_json_is_warned_of(param: str, tmp_path: Path) -> None:
    description = f'call: "<<CALL {{name}}>>{{params}}<<END>>"\nparam: "{param}"'
    result = check_dialect(tmp_path, description)
    assert result.exit_code == 0
    assert "mine.yaml:4: param: " in result.stderr
    assert "JSON object" in result.stderr
    assert result.stdout.startswith("ok: yours: 1 dialect")
    (warning,) = json.loads(check_dialect(tmp_path, description, "--json").stdout)["warnings"]
    assert (warning["line"], warning["key"]) == (4, "param")
    assert check_dialect(tmp_path, description.replace(" {value} ", "{value}").replace(";", "]]")).exit_code == 0


def test_second_dialect_of_a_file_is_reported_with_its_own_line(tmp_path: Path) -> None:
    good = 'call: "<<CALL {name}>>{args}<<END>>"\n---\nkind: dialect\nname: other\ncall: "@tool {name} {kwargs}@@"'
    assert "mine.yaml:7: call: " in check_dialect(tmp_path, good).output
