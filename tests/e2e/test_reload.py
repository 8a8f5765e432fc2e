"""A profile edited while a flow runs through a whole proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apis import chat
from tests.e2e.conftest import PATIENCE, Start
from tests.e2e.upstream import Reply
from vtc.proxy import reload

PROFILE = "kind: policy\nname: mine\nmatch: {{model: [lab-*]}}\nguards: {{denied_tools: [{}], on_denied: text}}\n"
CALL = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
ASK = chat.request(stream=True)


async def test_a_flow_in_flight_keeps_its_plan_and_the_next_one_has_the_new(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "INTERVAL", 0)
    (tmp_path / "mine.yaml").write_text(PROFILE.format("other"))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        asked.set()
        await go_on.wait()
        for piece in chat.streamed(CALL):
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
