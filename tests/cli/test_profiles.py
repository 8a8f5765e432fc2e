"""Tests of `vtc profiles`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from vtc.cli import main
from vtc.profiles import builtin_directory, load_profiles

BUILT_IN = load_profiles([builtin_directory()])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})


def test_all_profiles_are_listed() -> None:
    result = run("profiles")
    assert result.exit_code == 0
    for kind in ("clients", "models", "servers", "dialects", "agents"):
        for name in getattr(BUILT_IN, kind):
            assert name in result.output


def test_for_programs(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\ndescription: My own\nmatch: {model: [mine]}\n")
    found = json.loads(run("profiles", "--json", "--profiles", str(tmp_path)).output)
    assert {kind: len(entries) for kind, entries in found.items()} == {
        **BUILT_IN.counts(),
        "models": BUILT_IN.counts()["models"] + 1,
    }
    (mine,) = (entry for entry in found["models"] if entry["name"] == "mine")
    assert mine == {"name": "mine", "description": "My own", "source": f"{tmp_path / 'mine.yaml'}:2"}
