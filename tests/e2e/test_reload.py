"""A profile is edited while a flow runs through a whole proxy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apis import chat
from tests.e2e.conftest import PATIENCE, Start, by_turn
from tests.e2e.upstream import Reply
from vtc.proxy import reload

PROFILE = "kind: policy\nname: mine\nmatch: {{model: [lab-*]}}\nguards: {{denied_tools: [{}], on_denied: text}}\n"
CALL = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
ASK = chat.request(stream=True)


async def test_a_flow_in_flight_keeps_its_plan_and_the_next_one_has_the_new(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "WATCH_INTERVAL_SECONDS", 0)
    (tmp_path / "mine.yaml").write_text(PROFILE.format("other"))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        asked.set()
        await go_on.wait()
        for piece in chat.make_stream(CALL):
            yield piece

    lab = await start(lambda _: Reply(pieces()), vtc_profiles=[str(tmp_path)])
    first = asyncio.create_task(lab.post(ASK))
    await asked.wait()
    planner = lab.proxy.addon.planner
    (tmp_path / "mine.yaml").write_text(PROFILE.format("read"))
    async with asyncio.timeout(PATIENCE):
        while lab.proxy.addon.planner is planner:  # noqa: ASYNC110 - it tells nobody when it has read them
            await asyncio.sleep(0)
    go_on.set()
    assert (await first).message.calls == [("read", {"filePath": "/a"})]
    assert (await lab.post(ASK)).message.content == CALL


VERSIONED = """\
kind: policy
name: mine
match: {}
guards: {denied_tools: [read], on_denied: steer, denied_message: This is version %d.}
"""
STREAMS = 40


@pytest.mark.rest
async def test_streams_keep_their_plan_while_profiles_change_under_load(start: Start, tmp_path: Path) -> None:
    """Each stream calls a denied tool at its beginning and at its end; every third edit is invalid.

    Ten streams run at any time, and between the two calls of each the profiles change many times.
    """
    file = tmp_path / "mine.yaml"
    version = 0
    steps = asyncio.Condition()

    async def edit_profile() -> None:
        nonlocal version
        async with steps:
            version += 1
            file.write_text("kind: policy\nnaame: mine\n" if version % 3 == 0 else VERSIONED % version)
            look()
            steps.notify_all()

    async def edits(more: int) -> None:
        until = version + more
        async with steps:
            await steps.wait_for(lambda: version >= until)

    async def pieces() -> AsyncIterator[bytes]:
        frames = chat.make_text_chunks(*CALL, "\n")
        for frame in (chat.ROLE, *frames):
            yield frame
        await edits(4)
        for frame in (*frames, chat.STOP, chat.DONE):
            yield frame

    file.write_text(VERSIONED % 0)
    lab = await start(
        by_turn(chat.make_stream("Hi"), *[lambda _: Reply(pieces())] * STREAMS), vtc_profiles=[str(tmp_path)]
    )
    look = lab.proxy.addon.addons[1].check_files
    await lab.post(ASK)  # mitmproxy ends with the first logged error unless it has begun to serve
    at_once, texts = asyncio.Semaphore(10), []

    async def client() -> None:
        async with at_once:
            texts.append((await lab.post(ASK)).message.content)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as clients:
        running = {clients.create_task(client()) for _ in range(STREAMS)}
        while not all(task.done() for task in running):
            await edit_profile()
            await asyncio.sleep(0)
    versions_in_texts = [re.findall(r"This is version (\d+)\.", text) for text in texts]
    assert [len(versions) for versions in versions_in_texts] == [2] * STREAMS
    assert all(first == second for first, second in versions_in_texts)
    used = {int(first) for first, _ in versions_in_texts}
    assert len(used) > 2
    assert not any(number and number % 3 == 0 for number in used)
    for _ in range(STREAMS + 1):
        assert (await lab.report())["failures"] == []
