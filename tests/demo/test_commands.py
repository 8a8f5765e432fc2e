"""The commands of the README, started as a user does: their output contains nothing unexpected."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import confdir, server_tls
from vtc.demo import DemoServer, run_server

__all__ = ["confdir", "server_tls"]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 60
ADDON = str(ROOT / "addons" / "addon.py")
AGENT = """\
import json, os, sys, urllib.request
assert sys.argv[1:] == ["--print", "Hello"], sys.argv
body = {"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 99, "messages": [{"role": "user", "content": "Hello"}]}
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"]}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
print(json.load(urllib.request.urlopen(request))["content"][0]["text"])
"""
"""A replacement for Claude Code."""
STARTED = [
    r"Loading script \S+addon\.py",
    r"reverse proxy to \S+ listening at 127\.0\.0\.1:\d+\.",
    r"vtc: VTC \S+, mode rewrite: .*",
    r"vtc: base URL for clients .*",
    r"vtc: signatures on reasoning use the secret [0-9a-f]{8} \(from mitmproxy's certificate authority\)",
]
MODEL = r"vtc: model demo-model at 127\.0\.0\.1:\d+: the model is not known by name.*; its malformed calls are repaired"
FOUND = [r"http://\S+ answers; it was not identified.*", r"it speaks openai-chat: .*", r"its models: demo-model"]
ASKED = [f"vtc: {words}" for words in FOUND]


@pytest.fixture
def home(tmp_path: Path, confdir: Path) -> Path:
    (tmp_path / ".mitmproxy").symlink_to(confdir)
    return tmp_path


@pytest.fixture
def model(capfd: pytest.CaptureFixture[str]) -> Iterator[DemoServer]:
    """Run the scripted model server, and check that it prints nothing."""
    with run_server() as server:
        yield server
    assert capfd.readouterr() == ("", "")


def variables(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": f"{home}:{BIN}:/usr/bin:/bin", "TMPDIR": str(home)}


def run(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=home,
        env=variables(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def find_unexpected(lines: list[str], expected: list[str]) -> list[str]:
    """List the lines of a log that none of these patterns matches, without their time stamps."""
    plain = [re.sub(r"^\[[\d:.]+\] ", "", line) for line in lines]
    return [line for line in plain if not any(re.fullmatch(one, line) for one in expected)]


@pytest.mark.rest
def test_demonstration_prints_only_its_exchanges(home: Path) -> None:
    done = run(home, "vtc", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("client -> http://127.0.0.1:")
    assert done.stdout.endswith("the agent finished its task\n")


@pytest.mark.rest
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(["vtc", "run", "{url}", "--port", "0"], [*STARTED, *ASKED], id="vtc run"),
        pytest.param(
            ["mitmdump", "-s", ADDON, "--mode", "reverse:{url}", "--listen-host", "127.0.0.1", "--listen-port", "0",
             "--set", "flow_detail=0"],
            STARTED, id="mitmdump",
        ),
    ],
)  # fmt: skip
def test_proxy_prints_its_address_and_then_its_exchanges(
    command: list[str], expected: list[str], home: Path, model: DemoServer
) -> None:
    command = [word.format(url=model.url) for word in command]
    with subprocess.Popen(
        command, cwd=home, env=variables(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        try:
            lines: list[str] = []
            while not lines or expected[-1][:13] not in lines[-1]:
                lines.append(process.stdout.readline().rstrip("\n"))
                assert process.poll() is None, lines
            port = next(match[1] for line in lines if (match := re.search(r"listening at 127\.0\.0\.1:(\d+)", line)))
            body = {"model": "demo-model", "messages": [{"role": "user", "content": "Hello"}]}
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, trust_env=False)
            assert answer.status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
            lines += process.stdout.read().splitlines()
    assert (
        find_unexpected(lines, [*expected, MODEL, r"vtc: (client|model) \S+: 1 exchange, .*, 0 errors in VTC, .*"])
        == []
    )


@pytest.mark.rest
def test_an_agent_has_the_terminal_to_itself(home: Path, model: DemoServer) -> None:
    (home / "claude").write_text(f"#!{sys.executable}\n{AGENT}")
    (home / "claude").chmod(0o755)
    done = run(home, "vtc", "launch", "claude", model.url, "--", "--print", "Hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Ask me about a text file.\n", "")


@pytest.mark.rest
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["vtc", "probe", "{url}"], [r"vtc: asks \S+ about itself, then .*:", r"vtc: at most 30 requests, .*"]),
        (["vtc", "doctor", "{url}"], []),
        (
            ["vtc", "run", "{url}", "--dry-run"],
            [rf"# found now, probed again at the start: {words}" for words in FOUND],
        ),
    ],
    ids=lambda value: value[1] if value else "",
)
def test_server_inspection_prints_its_actions(
    command: list[str], expected: list[str], home: Path, model: DemoServer
) -> None:
    done = run(home, *(word.format(url=model.url) for word in command))
    assert done.stdout
    assert find_unexpected(done.stderr.splitlines(), expected) == []


@pytest.mark.rest
def test_scripted_model_server_prints_its_address(home: Path) -> None:
    command = [sys.executable, "-m", "vtc.demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline().startswith("scripted model server at http://127.0.0.1:")
        finally:
            process.terminate()
            assert process.stdout.read() == ""
