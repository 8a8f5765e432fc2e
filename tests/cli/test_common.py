"""What the shell completes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from vtc.cli import main


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [
        (["parse", "--dialect"], "qwen3", ["qwen3-coder"]),
        (["explain", "--model"], "deepseek", ["deepseek-r1", "deepseek-v3", "deepseek-v4"]),
        ([], "sch", ["schema"]),
    ],
)
def test_the_shell_completes_names(words: list[str], incomplete: str, names: list[str]) -> None:
    found = ShellComplete(main, {}, "vtc", "_VTC_COMPLETE").get_completions(words, incomplete)
    assert [item.value for item in found] == names


def test_completion_knows_profiles_of_ones_own_and_survives_bad_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\n")
    complete = ShellComplete(main, {}, "vtc", "_VTC_COMPLETE").get_completions
    words = ["explain", "--profiles", str(tmp_path), "--model"]
    assert [item.value for item in complete(words, "mine")] == ["mine"]
    (tmp_path / "mine.yaml").write_text("kind: 5\n")
    assert complete(words, "mine") == []


@pytest.mark.rest
def test_no_command_but_probe_reads_the_tables_of_a_probe() -> None:
    read = "import sys, vtc.cli; print(*(name for name in sys.modules if name.startswith('vtc.cli.probing')))"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)
    assert "vtc.cli.probing.scenarios" not in done.stdout.split()
