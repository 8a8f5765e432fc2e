"""The demonstration, as `vtc demo` runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner

from vtc.cli import main
from vtc.demo import DemoServer

pytestmark = pytest.mark.rest


@pytest.fixture(autouse=True)
def handlers_of_ours_go() -> object:
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGHUP)}
    yield None
    for name, handler in before.items():
        signal.signal(name, handler)


def test_an_agent_gets_through() -> None:
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 0, done.output


def test_the_page_of_vtc_and_mitmweb_are_named() -> None:
    command = [sys.executable, "-m", "vtc", "demo", "--web"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        page = next(line.split()[-1] for line in process.stdout if "/vtc?token=" in line)
        mitmweb = process.stdout.readline()
        shown = httpx.get(page, trust_env=False)
        process.terminate()  # a background process ignores SIGINT, and so would this one
        assert process.stderr.read() == ""
    assert (shown.status_code, "demo-model" in shown.text) == (200, True)
    assert page.replace("/vtc?", "/?") in mitmweb


def test_missing_client_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert "-m pip install openai" in done.output


def test_a_proxy_ends_with_it(tmp_path: os.PathLike[str]) -> None:
    """Otherwise, when the terminal is closed or `make` is stopped, mitmweb would run forever."""
    script = (
        "import sys, threading; from pathlib import Path; from vtc.demo import show, server\n"
        "show.exit_on_signals()\n"
        "with server.run_server() as model, show.run_proxy(model.url, Path(sys.argv[1]), web=False) as (url, _):\n"
        "    print(url, flush=True); threading.Event().wait()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    with DemoServer(port):  # the port is free again
        pass
    assert process.returncode == 128 + signal.SIGTERM
