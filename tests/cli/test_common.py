"""What the commands share: profiles of a user's own, and the end of a program whose profiles are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

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
