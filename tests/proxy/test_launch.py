"""The command lines that start mitmproxy with the addon."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from mitmproxy.test import taddons
from mitmproxy.tools.web.webaddons import WebAddon

from vtc.proxy import launch

LISTENING = ["-s", str(launch.find_script()), "--listen-host", "127.0.0.1", "--listen-port", "8088"]


def test_a_reverse_proxy() -> None:
    program, *arguments = launch.build_command("mitmdump", "http://127.0.0.1:8000", "127.0.0.1", launch.PORT, ["-q"])
    assert Path(program) == Path(sys.executable).with_name("mitmdump")
    assert arguments == [
        *LISTENING,
        "--mode",
        "reverse:http://127.0.0.1:8000",
        *launch.format_sets(launch.REVERSE_OPTIONS),
        "-q",
    ]


def test_an_ordinary_proxy() -> None:
    _, *arguments = launch.build_command("mitmdump", "", "127.0.0.1", launch.PORT)
    assert arguments == LISTENING


def test_mitmweb_has_a_column_for_comments() -> None:
    _, *arguments = launch.build_command("mitmweb", "", "127.0.0.1", 1)
    settings = [value for flag, value in pairwise(arguments) if flag == "--set"]
    with taddons.context(WebAddon()) as context:
        context.options.set(*settings, defer=True)
        assert tuple(context.options.web_columns) == launch.WEB_COLUMNS
        assert [*context.options.deferred] == ["store_streamed_bodies"]


def test_program_is_searched_like_a_shell_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert launch.build_command("mitmdump", "", "h", 1)[0] == "mitmdump"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mitmdump"
    program.touch(mode=0o755)
    assert launch.build_command("mitmdump", "", "h", 1)[0] == str(program)
