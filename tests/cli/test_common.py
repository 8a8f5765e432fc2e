"""Tests of shell completion, and of the time that commands take to load."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from vtc import __version__
from vtc.cli import MODULES, main


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


def test_no_command_takes_a_second_to_load() -> None:
    """Commands import mitmproxy and the tables of a probe only after they parsed their arguments."""
    load = "import sys, importlib; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"
    modules = [f"vtc.cli.{name}" for name in MODULES.values()]
    done = subprocess.run([sys.executable, "-c", load, *modules], capture_output=True, text=True, check=True)
    slow = {"mitmproxy.flow", "mitmproxy.addons", "vtc.cli.probing.scenarios", "textual", "openai"}
    assert not slow & {*done.stdout.split()}


def test_a_command_is_loaded_when_it_is_asked_for() -> None:
    load = "import sys, vtc.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True)
    assert not {"vtc.cli.run", "vtc.cli.parse", "vtc.exchange"} & {*done.stdout.split()}
    assert {name for name in MODULES if main.get_command(click.Context(main), name)} == {*MODULES}


def test_help_lists_each_command_once_below_a_heading() -> None:
    result = CliRunner().invoke(main, ["-h"])
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", result.output, re.MULTILINE)
    assert sorted(listed) == sorted(MODULES)
    assert re.findall(r"^(\w[\w ]+):\n", result.output, re.MULTILINE) == ["Options", "Start", "Look", "Write profiles"]


def test_a_misspelled_command_is_named_with_the_nearest_one() -> None:
    result = CliRunner().invoke(main, ["launhc", "x"])
    assert (result.exit_code, "no command 'launhc' (did you mean 'launch'?)" in result.output) == (2, True)


def test_the_version_has_a_short_option() -> None:
    assert CliRunner().invoke(main, ["-V"]).output.endswith(f"version {__version__}\n")
