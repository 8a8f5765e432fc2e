"""Tests of `vtc run --ui`: a VTC and the page of its exchanges in a terminal of 80 x 24."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.agents.apis import Call
from tests.agents.model_server import MODEL, ScriptedModel, serve
from tests.apis import chat
from vtc.cli import main

TIMEOUT_SECONDS = 60


class Terminal:
    """A terminal in which `vtc run --ui` runs."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self._end = end
        self.output = b""

    def wait_for(self, text: bytes) -> bool:
        """Read the output until it contains a text, or the program has ended; return True if it contains the text."""
        begun = time.monotonic()
        while text not in self.output and time.monotonic() - begun < TIMEOUT_SECONDS:
            if select.select([self._end], [], [], 1)[0]:
                try:
                    self.output += os.read(self._end, 1 << 16)
                except OSError:  # Linux: the other end is closed
                    break
        return text in self.output

    def press(self, keys: bytes) -> None:
        os.write(self._end, keys)


@contextmanager
def run_in_terminal(tmp_path: Path, confdir: Path, *arguments: str) -> Iterator[Terminal]:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".mitmproxy").symlink_to(confdir)
    ours, theirs = pty.openpty()
    variables = {"HOME": str(home), "TMPDIR": str(tmp_path), "TERM": "xterm-256color", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "vtc", "run", "--ui", *arguments],
        env=variables | {"COLUMNS": "80", "LINES": "24"},
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def request_call(port: int) -> None:
    """Send a request as soon as VTC listens."""
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    body = chat.encode_json(chat.request(stream=True, model=MODEL, tools=tools))
    begun = time.monotonic()
    with httpx.Client(trust_env=False, verify=False) as client:
        while True:
            try:
                sent = client.post(
                    f"http://127.0.0.1:{port}/v1/chat/completions", content=body, timeout=TIMEOUT_SECONDS
                )
            except httpx.ConnectError:
                assert time.monotonic() - begun < TIMEOUT_SECONDS
                time.sleep(0.05)  # because VTC needs the processor to start
                continue
            assert sent.status_code == 200
            return


@pytest.mark.rest
def test_exchanges_are_shown_and_vtc_ends_with_the_page(tmp_path: Path, confdir: Path) -> None:
    port = find_free_port()
    with (
        serve(ScriptedModel("hermes", Call("read_file", "path", "hello.txt"))) as server,
        run_in_terminal(tmp_path, confdir, server, "--port", str(port)) as shown,
    ):
        request_call(port)
        assert shown.wait_for(b"read_file"), shown.output
        shown.press(b"q")
        shown.wait_for(b"a text that never appears: read to the end")
        assert shown.process.wait(TIMEOUT_SECONDS) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    assert not [*tmp_path.glob("vtc-ui-*")]


@pytest.mark.rest
def test_vtc_ends_with_a_page_that_is_killed(tmp_path: Path, confdir: Path) -> None:
    port = find_free_port()
    with (
        serve(ScriptedModel("hermes", Call("read_file", "path", "hello.txt"))) as server,
        run_in_terminal(tmp_path, confdir, server, "--port", str(port)) as shown,
    ):
        request_call(port)
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
            shown.process.kill()
            assert connection.recv(1) == b""  # VTC closes it when it ends


@pytest.mark.rest
def test_page_ends_with_the_reason_if_vtc_cannot_start(tmp_path: Path, confdir: Path) -> None:
    arguments = ["http://127.0.0.1:1", "--port", str(find_free_port()), "--", "--no-such-argument"]
    with run_in_terminal(tmp_path, confdir, *arguments) as shown:
        assert shown.wait_for(b"unrecognized arguments: --no-such-argument"), shown.output
        assert shown.process.wait(TIMEOUT_SECONDS)


def test_missing_terminal_is_reported() -> None:
    done = CliRunner().invoke(main, ["run", "--ui", "http://127.0.0.1:1"])
    assert done.exit_code == 2
    assert "this needs a terminal; leave out --ui" in done.output
