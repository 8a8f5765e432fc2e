"""Test `vtc replay` with captured flows and recorded cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis.shapes import SHAPES
from tests.proxy.captures import CALL, save_flows
from vtc.cli import main
from vtc.reporting import Case, serialize_case

CASE = Case(
    name="it",
    text=CALL,
    calls=({"read": {"filePath": "/a"}},),
    dialects=("hermes",),
    tools={"read": {"properties": {"filePath": {"type": "string"}}}},
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


@pytest.mark.parametrize("api", SHAPES)
def test_nothing_changes(api: str, tmp_path: Path) -> None:
    result = run(save_flows(tmp_path, "Hello", CALL, api=api))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines] == ["same", "same", "2"]
    assert "vtc: read, hermes -> tool_calls" in lines[1]
    assert lines[-1] == "2 same, 0 changed, 0 skipped"


def test_flows_are_replayed_with_the_options_of_their_capture(tmp_path: Path) -> None:
    path = save_flows(tmp_path, CALL, vtc_tools="prompt", vtc_dialect="hermes")
    save_flows(tmp_path, CALL, vtc_model="mistral", vtc_lenient="off")
    assert run(path).output.endswith("2 same, 0 changed, 0 skipped\n")
    assert run("--tools", "native", path).output.endswith("1 same, 1 changed, 0 skipped\n")


def test_a_missing_profile_of_the_capture_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {}\n")
    path = save_flows(tmp_path, "Hello", vtc_profiles=[str(tmp_path / "mine")], vtc_model="mine")
    result = run(path)
    assert "skipped" in result.output
    assert "there is no model 'mine'" in result.output
    assert run("--profiles", tmp_path / "mine", path).output.endswith("1 same, 0 changed, 0 skipped\n")


def test_a_file_without_exchanges(tmp_path: Path) -> None:
    (tmp_path / "flows").touch()
    result = run(tmp_path / "flows")
    assert result.exit_code == 1
    assert "contains no exchange with a model" in result.output


def test_changes_are_shown_and_are_an_exit_code(tmp_path: Path) -> None:
    path = save_flows(tmp_path, "Hello", CALL, seen=False)
    result = run(path)
    assert result.exit_code == 1
    assert "    -  <tool_call>" in result.output.splitlines()
    assert result.output.endswith("1 same, 1 changed, 0 skipped\n")
    found = [json.loads(line) for line in run("--json", path).output.splitlines()]
    assert [one["result"] for one in found] == ["same", "changed"]


def test_a_flow_that_cannot_be_replayed_is_skipped(tmp_path: Path) -> None:
    result = run(save_flows(tmp_path, CALL, vtc_keep_bodies="off"))
    assert result.exit_code == 0
    assert "vtc_keep_bodies" in result.output
    assert result.output.endswith("0 same, 0 changed, 1 skipped\n")


def test_cases(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(serialize_case(CASE))
    assert run(path).output.splitlines() == ["same    it", "1 same, 0 changed, 0 skipped"]
    path.write_text(serialize_case(CASE).replace("filePath: /a", "filePath: /b"))
    result = run(path)
    assert result.exit_code == 1
    assert '    calls: [{"read": {"filePath": "/a"}}], not [{"read": {"filePath": "/b"}}]' in result.output.splitlines()


@pytest.mark.parametrize(("dialects", "code"), [("", 0), ("dialects: ['*'], ", 0), ("dialects: [], ", 1)])
def test_a_case_without_dialects_is_of_an_unknown_model(dialects: str, code: int, tmp_path: Path) -> None:
    """With an empty list of dialects, nothing is parsed."""
    call = 'text: \'<tool_call>{"name": "f", "arguments": {}}</tool_call>\', calls: [{f: {}}]'
    (tmp_path / "cases.yaml").write_text(f"- {{name: it, {dialects}tools: {{f: {{}}}}, {call}}}")
    assert run(tmp_path / "cases.yaml").exit_code == code


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("flows", "nothing of the kind", "cannot be read as flows"),
        ("cases.yaml", "a: b", "not a list of cases"),
        ("cases.yaml", "- {name: it\ntext: x}", "cases.yaml: not a list of cases: line 2: expected ',' or '}'"),
        ("cases.yaml", "- {name: it, text: x, dialects: [hermez]}", "there is no dialect 'hermez'"),
        ("cases.yaml", "- {name: it, text: x, dialects: [tag]}", "unknown tool set 'agent'"),
    ],
)
def test_invalid_files(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    result = run(tmp_path / name)
    assert result.exit_code == 1
    assert message in result.output


def test_a_dialect_that_does_not_exist(tmp_path: Path) -> None:
    result = run("--dialect", "hermez", save_flows(tmp_path, "x"))
    assert result.exit_code == 2
    assert "there is no dialect 'hermez'" in " ".join(result.output.split())
