"""Many streams through one mitmdump: none is mixed up or lost, and the memory returns to its size before.

`make load` runs 200 at once, 10,000 in a row, and 20,000 different ones; `make test-all` runs few of each, and `make
test` 20 at once. The figures are printed.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import PATH
from tests.e2e.test_start import ADDON, MITMDUMP
from tests.e2e.upstream import JSON, Reply, Seen, serving

WRITTEN = [chat.DIALECTS[name] for name in ("hermes", "tag", "invoke", "qwen3-coder")]
PATIENCE = 3600
"""Seconds for the whole run."""
WARM_UP = 50
"""Rounds before memory is measured, because caches fill during them."""
GROWTH = 32
"""Megabytes by which mitmdump may have grown in the end; the replies of the large run are several times that."""
FLAT = 4
"""Megabytes by which it may change once every cache is full."""
FILLED = 6_000
"""Number of different exchanges after which every cache is full, the caches with a limit in bytes and those of `re`."""


@dataclass(slots=True)
class Load:
    """Clients of one mitmdump, and counters of their replies."""

    client: httpx.AsyncClient
    process: Process
    lines: list[bytes]
    reading: asyncio.Task[None]
    ids: set[str] = field(default_factory=set)
    done: int = 0

    async def ask(self, number: int, **fields: Any) -> None:
        """Send a request with a unique number, and check that the reply is the one for it."""
        body = chat.request(str(number), stream=bool(number % 5), **fields)
        read = chat.read((await self.client.post(PATH, json=body)).content)
        assert read.content == f"This is {number}."
        assert read.calls == [("write", {"filePath": f"/{number}", "content": content_of(number)})]
        self.ids.update(read.ids)
        self.done += 1

    @property
    def megabytes(self) -> float:
        """The resident memory of mitmdump in megabytes."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1]) / 1024

    async def summary(self) -> bytes:
        """Terminate mitmdump and return its output."""
        self.process.terminate()
        await self.process.wait()
        await self.reading
        return b"".join(self.lines)


def content_of(number: int) -> str:
    return f"{number} é\n" * 20


def pieces_of(number: int) -> list[bytes]:
    call = WRITTEN[number % 4]("write", {"filePath": f"/{number}", "content": content_of(number)})
    text = f"This is {number}.\n\n{call}"
    return chat.make_stream(*(text[at : at + 9] for at in range(0, len(text), 9)))


def replying(seen: Seen) -> Reply:
    number = int(seen.json["messages"][-1]["content"])
    if seen.json["stream"]:
        return Reply(pieces_of(number))
    content = "".join(delta.get("content") or "" for delta in chat.deltas(b"".join(pieces_of(number))))
    return Reply([chat.encode_json(chat.completion(content))], JSON, framing="length")


@asynccontextmanager
async def run_load(script: Any, confdir: Path, directory: Path) -> AsyncIterator[Load]:
    async with asyncio.timeout(PATIENCE), serving(script) as upstream:
        options = ["-m", f"reverse:{upstream.url}", "--set", f"confdir={confdir}", "--set", "flow_detail=0"]
        command = [MITMDUMP, "-s", ADDON, "--listen-host", "127.0.0.1", "--listen-port", "0", *options]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, cwd=directory)
        lines: list[bytes] = []
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def read() -> None:
            assert process.stdout
            async for line in process.stdout:
                lines.append(line)
                if not listening.done() and (found := re.search(rb"listening at (?:http://)?(\S+:\d+)", line)):
                    listening.set_result(found[1].decode())

        reading = asyncio.create_task(read())
        try:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            base = f"http://{await listening}"
            async with httpx.AsyncClient(
                base_url=base, trust_env=False, verify=False, timeout=PATIENCE, limits=limits
            ) as client:
                yield Load(client, process, lines, reading)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading


def print_line(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{line}\n")


@pytest.mark.parametrize(
    "count",
    [pytest.param(20, id="small", marks=pytest.mark.rest), pytest.param(200, id="large", marks=pytest.mark.load)],
)
async def test_streams_at_once(count: int, confdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them are inside of a call at the same time."""
    begun = asyncio.Barrier(count)

    def script(seen: Seen) -> Reply:
        number = int(seen.json["messages"][0]["content"])
        pieces = pieces_of(number)

        async def interleave_pieces() -> AsyncIterator[bytes]:
            for at, piece in enumerate(pieces):
                if at % (len(pieces) // 4) == 3:
                    await begun.wait()
                yield piece

        return Reply(interleave_pieces())

    async with run_load(script, confdir, tmp_path) as load:
        before, started = load.megabytes, time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(load.ask(number * 5 + 1))
        seconds, after = time.perf_counter() - started, load.megabytes
        summary = await load.summary()
    print_line(capsys, f"{count} streams at once: {seconds:.1f} s, mitmdump {before:.0f} -> {after:.0f} MB")
    assert (load.done, len(load.ids)) == (count, count)
    assert (
        f"{count} exchanges, {count} calls (0 repaired), 0 left as text, 0 unread, 0 errors in VTC".encode() in summary
    )


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(300, id="small", marks=pytest.mark.rest),
        pytest.param(10_000, id="large", marks=pytest.mark.load),
    ],
)
async def test_streams_in_a_row(count: int, confdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Streamed and whole replies alternate."""
    async with run_load(replying, confdir, tmp_path) as load:
        for number in range(WARM_UP):
            await load.ask(number)
        before, started = load.megabytes, time.perf_counter()
        for number in range(WARM_UP, count):
            await load.ask(number)
        seconds, after = time.perf_counter() - started, load.megabytes
        summary = await load.summary()
    rate = (count - WARM_UP) / seconds
    print_line(capsys, f"{count} in a row: {rate:.0f} a second, mitmdump {before:.0f} -> {after:.0f} MB")
    assert (load.done, len(load.ids)) == (count, count)
    assert (
        f"{count} exchanges, {count} calls (0 repaired), 0 left as text, 0 unread, 0 errors in VTC".encode() in summary
    )
    assert after < before + GROWTH


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(200, id="small", marks=pytest.mark.rest),
        pytest.param(20_000, id="large", marks=pytest.mark.load),
    ],
)
async def test_memory_for_exchanges_that_are_all_different(
    count: int, confdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has a different model and prompt, and every hundred a different tool, so no cached value is used again."""
    async with run_load(replying, confdir, tmp_path) as load:
        megabytes = list[float]()
        for number in range(count):
            tools = [chat.tool(f"tool_{number // 100}", **{f"of_{number // 100}": "string"}), *chat.TOOLS]
            messages = [{"role": role, "content": content} for role, content in _turns(number)]
            await load.ask(number, model=f"model-{number}", tools=tools, messages=messages)
            if number % (count // 20) == count // 20 - 1:
                megabytes.append(load.megabytes)
                print_line(capsys, f"{number + 1} that differ: mitmdump {load.megabytes:.1f} MB")
        summary = await load.summary()
    assert (load.done, len(load.ids)) == (count, count)
    assert (
        f"{count} exchanges, {count} calls (0 repaired), 0 left as text, 0 unread, 0 errors in VTC".encode() in summary
    )
    filled = [one for at, one in enumerate(megabytes, 1) if at * count // 20 >= FILLED]
    assert not filled or max(filled) < filled[0] + FLAT


def _turns(number: int) -> list[tuple[str, str]]:
    prompt = f"You are agent {number}. " * 200
    return [("system", prompt), ("user", f"Ask {number}."), ("assistant", f"Done {number}."), ("user", str(number))]
