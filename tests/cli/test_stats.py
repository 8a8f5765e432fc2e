"""Tests of `vtc stats`: figures about a log, for people and programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vtc.cli import main

ENTRY: dict[str, Any] = {
    "outcome": "repaired",
    "client": "cline",
    "model": "qwen3",
    "calls": [{"name": "read", "dialect": "hermes", "repairs": ["missing-closer"]}],
    "refusals": [{"reason": "r", "dialect": "tag", "name": ""}],
    "sizes": {"request_came": 1000, "request_went": 2000},
    "seconds": 0.25,
}
LEFT_ALONE_ENTRY = {"outcome": "left alone", "request": ["left alone: x"]}


def run(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["stats", *arguments, "-"], input=text, env={"COLUMNS": "200"})


def format_log(*entries: Any) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_for_a_person() -> None:
    result = run(format_log(ENTRY, LEFT_ALONE_ENTRY, {**ENTRY, "model": "other", "unread": True}))
    assert result.exit_code == 0
    rows = [re.split(r"  +", line) for line in result.output.splitlines()]
    assert ["cline", "2", "2", "2", "2", "1", "0", "2.0", "500"] in rows
    assert ["qwen3", "1", "1", "1", "1", "0", "0", "1.0", "250"] in rows
    assert ["hermes", "2", "2", "0", "missing-closer 2"] in rows
    assert ["tag", "0", "0", "2"] in rows


def test_piped_it_is_plain_and_nothing_is_cut() -> None:
    name = "a-model-with-a-name-that-is-far-too-long-for-eighty-columns-and-for-most-terminals"
    result = CliRunner().invoke(main, ["stats", "-"], input=format_log({**ENTRY, "model": name}), env={"COLUMNS": "40"})
    assert name in result.output
    assert result.output.isascii()


def test_for_programs() -> None:
    found = json.loads(run(format_log(ENTRY), "--json").output)
    assert (found["total"]["exchanges"], found["clients"]["cline"]["calls"]) == (1, 1)


def test_several_logs_are_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(format_log(ENTRY))
    result = CliRunner().invoke(main, ["stats", "--json", str(tmp_path / "a"), str(tmp_path / "b")])
    assert json.loads(result.output)["total"]["exchanges"] == 2


@pytest.mark.parametrize(
    "line", ["x", '{"tools": []}', "[1]", "5", '{"client": "c"}', '{"client": "c", "model": "m", "calls": [1]}']
)
def test_an_invalid_line_is_reported(line: str) -> None:
    result = run(format_log(ENTRY) + line)
    assert result.exit_code == 1
    assert "-:2: not a line of a log that `vtc_log` wrote\n" in result.output.replace("<stdin>", "-")


def test_a_log_without_a_line_is_no_success() -> None:
    result = run("")
    assert (result.exit_code, result.output) == (1, "Error: no exchange in <stdin>\n")


def test_a_file_that_is_not_there() -> None:
    assert CliRunner().invoke(main, ["stats", "/nowhere/at/all"]).exit_code == 2
