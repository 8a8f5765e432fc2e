"""The lines that `vtc probe` prints work: they are run before a server that wants a key and speaks one API.

The agent speaks another API, so its requests fail unless VTC finds the API of the server.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apis.shapes import SHAPES, make_request_body
from tests.cli.probing.servers import Server
from tests.e2e.upstream import serving

KEY = "open-sesame-4711"
VTC = [sys.executable, "-P", "-m", "vtc"]
SECONDS = 60
ANTHROPIC = SHAPES["anthropic-messages"]
AGENT = f"""\
#!{sys.executable}
import json, os, urllib.request
from pathlib import Path

body = {{"model": os.environ["LAB_MODEL"], "max_tokens": 9, "messages": [{{"role": "user", "content": "Hi"}}]}}
headers = {{"content-type": "application/json", "x-api-key": os.environ["LAB_KEY"], "anthropic-version": "2023-06-01"}}
request = urllib.request.Request(os.environ["LAB_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
Path(os.environ["LAB_REPORT"]).write_text(urllib.request.urlopen(request).read().decode())
"""
PROFILE = """\
kind: agent
name: lab
description: Lab
api: anthropic-messages
commands: [lab-agent]
variables: {LAB_URL: "{address}", LAB_MODEL: "{model}", LAB_KEY: "{key}"}
"""


class Machine:
    """A user's folder with the agent on PATH and its profile, and a free port for VTC."""

    def __init__(self, folder: Path, confdir: Path) -> None:
        self.folder, self.report, self.profiles = folder, folder / "report.json", folder / "profiles"
        (folder / "home").mkdir()
        (folder / "home/.mitmproxy").symlink_to(confdir)
        self.profiles.mkdir()
        (self.profiles / "lab.yaml").write_text(PROFILE)
        (program := folder / "lab-agent").write_text(AGENT)
        program.chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (folder / "vtc.yaml").write_text(f"port: {self.port}\n")
        self.environment = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "LAB_REPORT": str(self.report),
            "MY_KEY": KEY,
        }

    async def run(self, command: Sequence[str]) -> str:
        """Run a command, and return what it prints on standard output."""
        process = await asyncio.create_subprocess_exec(
            *command, stdout=PIPE, stderr=PIPE, cwd=self.folder, env=self.environment
        )
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()

    async def probe(self, url: str) -> dict[str, Any]:
        """Probe the server with its key, and return the report."""
        options = ["--key-env", "MY_KEY", "--profiles", str(self.profiles), "--json"]
        found: dict[str, Any] = json.loads(await self.run([*VTC, "probe", url, *options]))
        assert (found["works"], found["apis"]) == (True, ["openai-chat"])
        return found

    @asynccontextmanager
    async def running(self, line: str) -> AsyncIterator[httpx.AsyncClient]:
        """Run a line that starts VTC, and yield a client of it."""
        program, *arguments = shlex.split(line)
        assert program == "vtc"
        process = await asyncio.create_subprocess_exec(
            *VTC, *arguments, stdout=PIPE, stderr=STDOUT, cwd=self.folder, env=self.environment
        )
        try:
            async with asyncio.timeout(SECONDS):
                assert process.stdout
                while b"listening" not in (line_ := await process.stdout.readline()):
                    assert line_, "VTC did not start"
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", trust_env=False) as client:
                    yield client
        finally:
            process.terminate()
            await process.communicate()

    def read_answer(self) -> str:
        """Return the text that the agent received."""
        text: str = json.loads(self.report.read_text())["content"][0]["text"]
        return text


@pytest.fixture
def machine(tmp_path: Path, confdir: Path) -> Machine:
    return Machine(tmp_path, confdir)


async def test_the_line_that_launches_an_agent_works(machine: Machine) -> None:
    async with serving(Server(key=KEY)) as server:
        program, *arguments = shlex.split((await machine.probe(server.url))["clients"]["Lab"])
        await machine.run([*VTC, *arguments])
    assert program == "vtc"
    assert arguments[:3] == ["launch", "lab", server.url]
    assert machine.read_answer() == "42 is all I can say."


@pytest.mark.parametrize("headers", [{}, pytest.param({"x-api-key": KEY}, marks=pytest.mark.rest)])
async def test_the_line_that_runs_vtc_works(headers: dict[str, str], machine: Machine) -> None:
    """A client of another API needs no key of its own."""
    async with serving(Server(key=KEY)) as server:
        line = (await machine.probe(server.url))["command"]
        async with machine.running(line) as client:
            body = make_request_body("anthropic-messages", stream=False)
            answer = await client.post(ANTHROPIC.path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (200, "message")


@pytest.mark.parametrize("is_printed", [pytest.param(True, marks=pytest.mark.rest), False])
async def test_the_lines_for_a_shell_work(is_printed: bool, machine: Machine) -> None:
    """They also work if `vtc run` was started with the URL alone, because the agent sends the key."""
    async with serving(Server(key=KEY)) as server:
        found = await machine.probe(server.url)
        async with machine.running(found["command"] if is_printed else f"vtc run {server.url}"):
            options = ["--key-env", "MY_KEY", "--model", found["model"], "--profiles", str(machine.profiles)]
            lines = await machine.run([*VTC, "env", "lab", server.url, *options, "--shell", "sh"])
            await machine.run(["sh", "-c", lines])
    assert machine.read_answer() == "42 is all I can say."
