"""What the commands share: profiles of a user's own, and the end of a program whose profiles are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from vtc.cli import main
from vtc.cli.common import loaded


def test_profiles_of_ones_own_come_with_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\n")
    profiles = loaded((tmp_path,))
    assert {"mine", "qwen3"} <= set(profiles.models)


def test_wrong_profiles_end_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("kind: model\nname: mine\nmatch: {model: [mine]}\nlenientt: true\n")
    with pytest.raises(SystemExit) as ended:
        loaded((tmp_path,))
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert "mine.yaml:4" in error
    assert "lenient" in error


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
