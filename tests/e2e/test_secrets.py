"""Secrets of requests and replies, planted as canaries, and looked for in everything that VTC says or keeps."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import PATH, Lab, Replies, Start
from tests.e2e.test_stages import Stage
from tests.e2e.test_text_clients import request
from tests.e2e.upstream import JSON, SSE, Reply
from vtc.dialects.reader import Reader
from vtc.profiles.plan import Planner

BIRDS = [
    f"canary-{where}-0f1e2d" for where in ("token", "cookie", "basic", "key", "query", "body", "deep", "user", "set")
]
TOKEN, COOKIE, BASIC, KEY, QUERY, BODY, DEEP, USER, SET = BIRDS

HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "cookie": f"session={COOKIE}; theme=dark",
    "proxy-authorization": f"Basic {BASIC}",
    "x-api-key": KEY,
    "api-key": KEY,
    "x-goog-api-key": KEY,
}
IN_BODY = {
    "api_key": BODY,
    "user": USER,
    "metadata": {"token": DEEP},
    "extra_headers": {"Authorization": f"Bearer {DEEP}"},
}
SAYING = chat.streamed(*"Look.\n<read><filePath>/a</filePath></read>")
COOKIES = {"set-cookie": f"session={SET}"}


def asking(**fields: Any) -> bytes:
    return chat.encoded(chat.request(stream=True, **IN_BODY, **fields))


CASES: dict[str, tuple[bytes, Replies]] = {
    "a call": (asking(), Reply(SAYING, {**SSE, **COOKIES})),
    "a whole reply": (
        asking(),
        Reply([chat.encoded(chat.completion("<read><filePath>/a</filePath></read>"))], {**JSON, **COOKIES}),
    ),
    "a refusal": (asking(), chat.streamed('<tool_call>{"name": "rm", "arguments": {}}</tool_call>')),
    "no tools": (asking(tools=None), SAYING),
    "a text client": (chat.encoded({**request(stream=True), **IN_BODY}), SAYING),
    "no JSON": (asking()[:-9], SAYING),
    "no request": (chat.encoded({**IN_BODY, "messages": BODY}), SAYING),
    "no object": (chat.encoded([BODY]), SAYING),
    "odd messages": (chat.encoded({**IN_BODY, "messages": [BODY, {"role": BODY, "tool_calls": BODY}]}), SAYING),
    "odd tools": (asking(tools=[BODY, {"type": "function", "function": {"name": 5, "parameters": BODY}}]), SAYING),
    "a refused key": (asking(), Reply([b'{"error": "bad key"}'], {**JSON, **COOKIES}, 401, framing="length")),
    "a broken stream": (asking(), Reply(SAYING[:4], {**SSE, **COOKIES}, cut=True)),
    "a corrupt body": (asking(), Reply([b"\xff" * 9], {**JSON, "content-encoding": "gzip"}, framing="length")),
    "an unknown coding": (asking(), Reply([b"\xff"], {**SSE, "content-encoding": "x-odd"})),
}  # fmt: skip


async def everything_said(lab: Lab, caplog: pytest.LogCaptureFixture) -> str:
    """All that a person or a file may get to see of it afterwards."""
    flow = await lab.flow()
    logged = [logging.Formatter().format(record) for record in caplog.records if record.name.startswith("vtc")]
    kept = [
        flow.comment,
        flow.marked,
        json.dumps(flow.metadata, default=str),
        lab.proxy.master.commands.call("vtc.stats"),
    ]
    return "\n".join([*logged, *kept])


@pytest.mark.parametrize("mode", ["rewrite", "observe"])
@pytest.mark.parametrize("case", CASES)
async def test_no_secret_is_in_anything_that_is_said(
    case: str, mode: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body, replies = CASES[case]
    lab = await start(replies, vtc_mode=mode, vtc_tools="prompt")
    headers = {**HEADERS, **({"user-agent": "Cline/3"} if case == "a text client" else {})}
    path = f"{PATH}?key={QUERY}&api_key={QUERY}"
    with suppress(httpx.RemoteProtocolError):
        await lab.post(body, path=path, headers=headers)
    said = await everything_said(lab, caplog)
    assert "vtc" in said
    assert [bird for bird in BIRDS if bird in said] == []
    seen = lab.upstream.seen[0]
    assert (seen.path, seen.headers["authorization"]) == (path, HEADERS["authorization"]), "they still reach the server"


@pytest.mark.parametrize("stage", [Stage(Planner, "plan"), Stage(Reader, "feed", 3), Stage(Reader, "finish")], ids=str)
async def test_no_secret_is_in_what_is_said_of_a_fault(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.plant(monkeypatch)
    lab = await start(SAYING)
    await lab.post(asking(), path=f"{PATH}?key={QUERY}", headers=HEADERS)
    said = await everything_said(lab, caplog)
    assert "PlantedError" in said
    assert [bird for bird in BIRDS if bird in said] == []
