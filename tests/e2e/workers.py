"""Workers as processes, and the nginx in front of them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import PATIENCE

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIGURATION = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text("utf-8")
SERVERS = re.compile(r"(?: +server 127\.0\.0\.1:\d+;\n)+")
HASH = re.compile(r" hash .* consistent;\n")
LISTEN = re.compile(r"(?<= )listen 8088;")


@asynccontextmanager
async def nginx(directory: Path, *ports: int, sticky: bool = True) -> AsyncIterator[str]:
    """Run nginx with the configuration of `deploy/` except the ports; yield its URL. Replies name the worker's port.

    Unless it is `sticky`, each request goes to the next worker.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = probe.getsockname()[1]
    text, found = SERVERS.subn("".join(f"    server 127.0.0.1:{port};\n" for port in ports), CONFIGURATION)
    text, listens = LISTEN.subn(f"listen 127.0.0.1:{own}; add_header x-worker $upstream_addr always;", text)
    assert (found, listens) == (1, 1)
    if not sticky:
        text, found = HASH.subn("", text)
        assert found == 1
    kept = "".join(f"{kind}_temp_path {directory};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    text = text.replace("http {", f"http {{ {kept}").replace("/var/log/nginx", str(directory))
    (directory / "nginx.conf").write_text(f"daemon off; pid {directory}/pid; error_log stderr;\n{text}")
    assert NGINX
    process = await asyncio.create_subprocess_exec(NGINX, "-p", str(directory), "-c", str(directory / "nginx.conf"))
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", own)
                    writer.close()
                    break
                except ConnectionRefusedError:
                    assert process.returncode is None, "nginx did not start"
                    await asyncio.sleep(0)
        yield f"http://127.0.0.1:{own}"
    finally:
        process.terminate()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Worker:
    port: int
    process: Process
    log: Path


@asynccontextmanager
async def worker(upstream: str, confdir: Path, log: Path, *options: str, port: int = 0) -> AsyncIterator[Worker]:
    """Start a worker as in the guide."""
    arguments = ["run", upstream, "--port", str(port), "--log", str(log), *options, "--", "--set", f"confdir={confdir}"]
    command = [sys.executable, "-m", "vtc", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(3 * PATIENCE):
            while not (listening := re.search(rb"listening at \S+:(\d+)", line := await process.stdout.readline())):
                assert line, "it ended before it listened"
        reading = asyncio.create_task(process.stdout.read())
        yield Worker(int(listening[1]), process, log)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    await reading
