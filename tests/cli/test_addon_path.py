"""Tests of `vtc addon-path`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from vtc.cli import main


def test_it_is_a_script_that_mitmdump_takes() -> None:
    printed = CliRunner().invoke(main, ["addon-path"]).output
    assert "addons = [VirtualToolCalling()]" in Path(printed.rstrip("\n")).read_text("utf-8")
