"""Conversations whose turns go to three workers in turn, while workers are killed: no reasoning is lost.

The workers share nothing but `VTC_SECRET`. Each has a certificate authority of its own, as in containers. Skipped
without nginx.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apis.conversations import ASKED, get_history_key, make_full_entries, make_question
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import PATIENCE
from tests.e2e.upstream import JSON, SSE, Reply, Seen, serving
from tests.e2e.workers import NGINX, Worker, nginx, worker
from tests.exchange.remembering.sealed_replies import FORMS, SEAL, Form

pytestmark = [
    pytest.mark.skipif(NGINX is None, reason="no nginx here (on Debian: apt-get install nginx-light)"),
    pytest.mark.rest,
]
SECRET = "a secret that all workers share"
PAIRS = [
    ("anthropic-messages", "gemini, with a thought"),
    ("openai-responses", "messages"),
    ("gemini-generate", "responses, with a summary"),
]
"""Clients that carry the reasoning, each with a server that signs it; each API is once on either side."""
TURNS = 9
KILL_AFTER_TURNS = (2, 5)
"""After each of these turns a worker is killed, and another one takes its place."""
CUT_TURN = 7
"""In this turn the worker is killed that serves it, in the middle of its reply."""


def make_seal(turn: int) -> str:
    """Return the seal of a turn, of the length of `SEAL`."""
    return b64encode(f"S{turn:03}".encode()).decode()


@dataclass(slots=True)
class Server:
    """A model server that signs its reasoning, another one in each turn, and checks what comes back."""

    form: Form
    turn: int = 0
    received: list[list[Any]] = field(default_factory=list)
    """The seals in the requests of each turn."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets the reply of `CUT_TURN` continue, after the worker that forwards it was killed."""

    def answer(self, seen: Seen) -> Reply:
        path = seen.path.partition("?")[0]
        shape = SHAPES[self.form.server]
        known = [shape.build_path(stream=stream, model=self.form.model).partition("?")[0] for stream in (True, False)]
        if seen.method == "GET" or path not in known or seen.body == b"{}":
            return Reply([b"{}"], JSON, 400 if path in known else 404, framing="length")
        self.received.append(self.form.back(seen.json))
        body = self.form.streamed.replace(SEAL.encode(), make_seal(self.turn).encode())
        for id_ in (b"toolu_", b"call_", b"fc_", b"rs_"):
            body = body.replace(id_ + b"1", b"%b%d" % (id_, self.turn))
        return Reply(self._cut(body) if self.turn == CUT_TURN and not self.killed.is_set() else [body], SSE)

    async def _cut(self, body: bytes) -> AsyncIterator[bytes]:
        end = body.index(b"\n\n") + 2
        yield body[:end]
        self.begun.set()
        await self.killed.wait()
        yield body[end:]


@pytest.mark.every
@pytest.mark.parametrize(("client", "what"), PAIRS)
async def test_any_worker_serves_any_turn(
    client: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTC_SECRET", SECRET)
    form = FORMS[what]
    server = Server(form)
    starts = iter(range(100))

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(serving(server.answer))

        async def start_worker(port: int = 0) -> Worker:
            folder = tmp_path / str(next(starts))
            folder.mkdir()
            running = worker(upstream.url, folder, folder / "log", "--api", form.server, port=port)
            return await stack.enter_async_context(running)

        async def replace_worker(old: Worker) -> None:
            old.process.kill()
            await old.process.wait()
            workers[workers.index(old)] = await start_worker(old.port)

        workers = [await start_worker() for _ in range(3)]
        url = await stack.enter_async_context(nginx(tmp_path, *(one.port for one in workers), sticky=False))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE))
        path = SHAPES[client].build_path(stream=True, model=form.model)
        entries = make_question(client, "Read it")
        served: list[int] = []
        failed: list[int] = []

        async def ask() -> bytes:
            """Send the conversation; return the reply of the worker that nginx has chosen."""
            fields = {get_history_key(client): entries, "stream": True, "model": form.model, **ASKED[client]}
            async with http.stream("POST", path, json=SHAPES[client].request(**fields)) as response:
                assert response.status_code == 200
                port = int(response.headers["x-worker"].rpartition(":")[2])
                if server.turn == CUT_TURN and not server.killed.is_set():
                    await server.begun.wait()
                    await replace_worker(next(one for one in workers if one.port == port))
                    server.killed.set()
                received = b"".join([piece async for piece in response.aiter_raw()])
            served.append(port)
            return received

        for turn in range(TURNS):
            server.turn = turn
            try:
                out = await ask()
            except httpx.HTTPError:
                failed.append(turn)
                out = await ask()  # a client retries, as SDKs do
            entries += make_full_entries(client, out, "found", stream=True)
            # Each seal of the past turns has reached the server, and no other.
            text = json.dumps(form.expected)
            assert server.received[-1] == [json.loads(text.replace(SEAL, make_seal(past))) for past in range(turn)]
            if turn in KILL_AFTER_TURNS:
                await replace_worker(workers[KILL_AFTER_TURNS.index(turn)])
    assert {*served} == {one.port for one in workers}
    assert failed == [CUT_TURN]
