"""Several workers behind nginx, with the configuration of `deploy/`. Skipped without nginx.

`make load` runs three workers under load, kills one, and prints the figures of docs/workers.md.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import httpx
import pytest
from click.testing import CliRunner

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE
from tests.e2e.test_load import print_line
from tests.e2e.upstream import JSON, Reply, Seen, serving
from tests.e2e.workers import NGINX, Worker, nginx, worker
from vtc.cli import main
from vtc.scrub import CREDENTIALS

CALL = chat.DIALECTS["tag"]("read", {"filePath": "/a"})

pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx here (on Debian: apt-get install nginx-light)")


@dataclass(frozen=True, slots=True)
class Site:
    """Workers in front of one model server, and a client of the nginx in front of them."""

    workers: list[Worker]
    client: httpx.AsyncClient

    async def ask(
        self, conversation: int, turns: int = 1, arrived: asyncio.Event | None = None
    ) -> tuple[int, chat.Read]:
        """Stream one turn of a conversation; return the worker's port and the message."""
        messages = [{"role": "user", "content": f"turn {turn} of {conversation}"} for turn in range(turns)]
        name = SESSIONS[conversation % len(SESSIONS)]
        ask, received = chat.request(stream=True, messages=messages), b""
        headers = {name: f"Bearer conversation-{conversation}"}
        async with self.client.stream("POST", PATH, json=ask, headers=headers) as response:
            async for piece in response.aiter_raw():
                received += piece
                if arrived:
                    arrived.set()
            response.raise_for_status()
        # nginx lists all workers it tried; the last one answered
        return int(response.headers["x-worker"].rpartition(":")[2]), chat.read(received)


SESSIONS = (
    "x-claude-code-session-id",
    "session-id",
    "x-session-id",
    *CREDENTIALS[:-1],
)  # the last one is for proxies
"""Headers that identify clients and their sessions."""
CONVERSATIONS = range(28)


@asynccontextmanager
async def site(
    pieces: Callable[[], Iterable[bytes] | AsyncIterable[bytes]], count: int, confdir: Path, directory: Path
) -> AsyncIterator[Site]:
    """Start workers in front of a server that streams these pieces, and rejects the probes of `vtc run`."""

    def script(seen: Seen) -> Reply:
        asked = seen.method == "POST" and seen.json.get("messages")
        return Reply(pieces()) if asked else Reply([b"{}"], JSON, 404, framing="length")

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(serving(script))
        logs = [directory / f"{number}.jsonl" for number in range(count)]
        workers = [await stack.enter_async_context(worker(upstream.url, confdir, log)) for log in logs]
        url = await stack.enter_async_context(nginx(directory, *(one.port for one in workers)))
        limits = httpx.Limits(max_connections=None)
        client = httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE, limits=limits)
        yield Site(workers, await stack.enter_async_context(client))


async def test_a_conversation_stays_with_one_worker_until_that_ends(confdir: Path, tmp_path: Path) -> None:
    arrived = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield chat.ROLE + chat.make_text_chunks("I look.\n")[0]
        await arrived.wait()  # the client gets the first piece before the rest is sent
        for piece in [*chat.make_text_chunks(CALL), chat.STOP, chat.DONE]:
            yield piece

    async with site(pieces, 2, confdir, tmp_path) as found:
        await found.ask(0, arrived=arrived)

        async def everyone(turn: int) -> list[int]:
            answers = await asyncio.gather(*(found.ask(one, turn) for one in CONVERSATIONS))
            assert all(read.calls == [("read", {"filePath": "/a"})] for _, read in answers)
            return [port for port, _ in answers]

        first = await everyone(1)
        assert {*first} == {one.port for one in found.workers}, "only one worker was asked"
        assert await everyone(2) == first
        ends, stays = found.workers
        ends.process.kill()
        await ends.process.wait()
        assert {*await everyone(3)} == {stays.port}  # no request failed
    result = CliRunner().invoke(main, ["stats", "--json", *(str(one.log) for one in found.workers)])
    assert json.loads(result.output)["total"]["calls"] == 1 + 3 * len(CONVERSATIONS)


async def test_no_key_of_a_query_is_in_the_logs_of_nginx(confdir: Path, tmp_path: Path) -> None:
    """If a worker is gone, nginx would log an error with the whole request."""
    async with site(lambda: [chat.ROLE, chat.STOP, chat.DONE], 1, confdir, tmp_path) as found:
        path = "/v1/chat/completions?key=open-sesame"
        assert (await found.client.post(path, json=chat.request(stream=True))).status_code == 200
        found.workers[0].process.kill()
        await found.workers[0].process.wait()
        assert (await found.client.post(path, json=chat.request(stream=True))).status_code == 502
    log = (tmp_path / "access.log").read_text()
    assert [line.split('"')[1] for line in log.splitlines()] == ["POST /v1/chat/completions"] * 2
    assert "open-sesame" not in log + (tmp_path / "error.log").read_text()


TURNS = 50
AT_ONCE = 24


@pytest.mark.load
async def test_one_of_three_workers_is_killed_under_load(
    confdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each conversation sends one turn after the other. After a third of them, a worker is killed."""
    served: dict[int, list[int]] = {number: [] for number in range(AT_ONCE)}
    before: list[float] = []
    after: list[float] = []
    failed: list[str] = []
    third, killed = asyncio.Event(), asyncio.Event()

    async with site(
        lambda: [chat.ROLE, *chat.make_text_chunks("I look.\n", CALL), chat.STOP, chat.DONE], 3, confdir, tmp_path
    ) as found:

        async def talk(conversation: int) -> None:
            for turn in range(1, TURNS + 1):
                times = after if killed.is_set() else before
                for _ in range(2):  # a client retries, as SDKs do
                    started = time.perf_counter()
                    try:
                        port, read = await found.ask(conversation, turn)
                    except httpx.HTTPError as error:
                        failed.append(type(error).__name__)
                        continue
                    times.append(time.perf_counter() - started)
                    assert read.calls == [("read", {"filePath": "/a"})]
                    served[conversation].append(port)
                    break
                if len(before) >= AT_ONCE * TURNS // 3:
                    third.set()

        async def kill() -> None:
            await third.wait()
            found.workers[0].process.kill()
            await found.workers[0].process.wait()
            killed.set()

        await asyncio.gather(*map(found.ask, served))  # each worker has compiled its patterns
        await asyncio.gather(kill(), *map(talk, served))
    gone = found.workers[0].port
    assert all(len(ports) == TURNS for ports in served.values()), "a turn had no answer, not even at the second try"
    others = [ports for ports in served.values() if gone not in ports]
    stayed = [ports for ports in others if len({*ports}) == 1]
    moved = [ports for ports in served.values() if gone in ports]
    assert stayed == others
    assert all(len({*ports}) == 2 for ports in moved)  # to one other worker, without further changes
    print_line(
        capsys,
        f"{AT_ONCE} conversations of {TURNS} turns, three workers, one killed: {dict(Counter(failed))} failed once, "
        f"{len(stayed)} conversations stayed, {len(moved)} of the killed worker moved once\n"
        + "\n".join(f"{name}: {_times(times)}" for name, times in (("before", before), ("after", after))),
    )


def _times(times: list[float]) -> str:
    cut = quantiles(times, n=100)
    p50, p99 = cut[49] * 1e3, cut[98] * 1e3
    return f"{len(times)} answers, p50 {p50:.0f} ms, p99 {p99:.0f} ms, {p99 / p50:.1f} times that"
