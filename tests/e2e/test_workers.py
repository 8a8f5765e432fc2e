"""Several workers behind nginx, with the configuration that the guide shows. Skipped where there is no nginx."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE
from tests.e2e.upstream import Reply, Seen, serving
from vtc.cli import main

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PAGE = (Path(__file__).parents[2] / "docs" / "workers.md").read_text("utf-8")
CALL = chat.DIALECTS["tag"]("read", {"filePath": "/a"})

pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx here (on Debian: apt-get install nginx-light)")


@asynccontextmanager
async def nginx(directory: Path, *ports: int) -> AsyncIterator[str]:
    """nginx before workers on these ports, as the guide has it but for the ports; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = probe.getsockname()[1]
    found = re.search(r"^```nginx \S+\n(.*?)^```", PAGE, re.M | re.S)
    assert found
    text = found[1]
    for shown, real in (("8088", own), ("8081", ports[0]), ("8082", ports[1])):
        assert f"127.0.0.1:{shown};" in text
        text = text.replace(f"127.0.0.1:{shown};", f"127.0.0.1:{real};")
    kept = "".join(f"{kind}_temp_path {directory};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    text = text.replace("http {", f"http {{ access_log off; {kept}")
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


@asynccontextmanager
async def worker(upstream: str, confdir: Path, log: Path) -> AsyncIterator[int]:
    """A worker as the guide starts it; gives its port."""
    arguments = ["run", upstream, "--port", "0", "--log", str(log), "--", "--set", f"confdir={confdir}"]
    command = [sys.executable, "-m", "vtc", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(3 * PATIENCE):
            while not (listening := re.search(rb"listening at \S+:(\d+)", line := await process.stdout.readline())):
                assert line, "it ended before it listened"
        reading = asyncio.create_task(process.stdout.read())
        yield int(listening[1])
    finally:
        process.terminate()
        await process.wait()
    await reading


async def test_any_worker_serves_any_turn_and_streams_are_not_held_up(confdir: Path, tmp_path: Path) -> None:
    arrived = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield chat.ROLE + chat.said("I look.\n")[0]
        await arrived.wait()  # the first piece is at the client before the rest is sent
        for piece in [*chat.said(CALL), chat.STOP, chat.DONE]:
            yield piece

    def script(seen: Seen) -> Reply:
        return Reply(pieces())

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(serving(script))
        logs = [tmp_path / f"{number}.jsonl" for number in range(2)]
        ports = [await stack.enter_async_context(worker(upstream.url, confdir, log)) for log in logs]
        url = await stack.enter_async_context(nginx(tmp_path, *ports))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE))

        async def ask() -> chat.Read:
            received = b""
            async with client.stream("POST", PATH, json=chat.request(stream=True)) as response:
                async for piece in response.aiter_raw():
                    received += piece
                    arrived.set()
            return chat.read(received)

        answers = await asyncio.gather(*(ask() for _ in range(6)))
    for answer in answers:
        assert answer.calls == [("read", {"filePath": "/a"})]
    assert all(log.read_text() for log in logs), "only one worker was asked"
    result = CliRunner().invoke(main, ["stats", "--json", *map(str, logs)])
    assert json.loads(result.output)["total"]["calls"] == 6
