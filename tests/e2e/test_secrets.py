"""Secrets are planted in requests and replies, and searched for in all output and storage of VTC."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from mitmproxy.exceptions import CommandError

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import PATH, Lab, Replies, Start
from tests.e2e.test_stages import Stage
from tests.e2e.text_clients import request
from tests.e2e.upstream import JSON, SSE, Reply
from vtc.dialects import Reader
from vtc.profiles import Planner

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
SAYING = chat.make_stream(*"Look.\n<read><filePath>/a</filePath></read>")
REFUSED = '<tool_call>{"name": "rm", "arguments": {}}'
QUOTED = f"curl -H 'Authorization: Bearer {TOKEN}' -b session={COOKIE} ?api_key={QUERY} sk-{SET} {KEY}"
COOKIES = {"set-cookie": f"session={SET}"}


def asking(**fields: Any) -> bytes:
    return chat.encode_json(chat.request(stream=True, **IN_BODY, **fields))


CASES: dict[str, tuple[bytes, Replies]] = {
    "a call": (asking(), Reply(SAYING, {**SSE, **COOKIES})),
    "a whole reply": (
        asking(),
        Reply([chat.encode_json(chat.completion("<read><filePath>/a</filePath></read>"))], {**JSON, **COOKIES}),
    ),
    "a refusal": (asking(), chat.make_stream(REFUSED + "</tool_call>")),
    "a refusal that quotes them": (asking(), chat.make_stream(f'{REFUSED[:-2]}"x": "{QUOTED}"}}}}</tool_call>')),
    "a call that quotes them": (asking(), chat.make_stream(chat.DIALECTS["tag"]("read", {"filePath": QUOTED}))),
    "bad JSON that quotes them": (asking(), chat.make_stream(f'<tool_call>{{"name": {TOKEN} }}</tool_call>')),
    "no tools": (asking(tools=None), SAYING),
    "a text client": (chat.encode_json({**request(stream=True), **IN_BODY}), SAYING),
    "no JSON": (asking()[:-9], SAYING),
    "no request": (chat.encode_json({**IN_BODY, "messages": BODY}), SAYING),
    "no object": (chat.encode_json([BODY]), SAYING),
    "odd messages": (chat.encode_json({**IN_BODY, "messages": [BODY, {"role": BODY, "tool_calls": BODY}]}), SAYING),
    "odd tools": (asking(tools=[BODY, {"type": "function", "function": {"name": 5, "parameters": BODY}}]), SAYING),
    "a refused key": (asking(), Reply([b'{"error": "bad key"}'], {**JSON, **COOKIES}, 401, framing="length")),
    "a broken stream": (asking(), Reply(SAYING[:4], {**SSE, **COOKIES}, cut=True)),
    "a corrupt body": (asking(), Reply([b"\xff" * 9], {**JSON, "content-encoding": "gzip"}, framing="length")),
    "an unknown coding": (asking(), Reply([b"\xff"], {**SSE, "content-encoding": "x-odd"})),
}  # fmt: skip


def read_files(directory: Path) -> list[str]:
    files = [path.read_text() for path in sorted(directory.glob("*.*"))]
    assert files
    return files


async def everything_said(lab: Lab, caplog: pytest.LogCaptureFixture, directory: Path) -> str:
    """Return everything that is logged, stored or counted of an exchange; mitmproxy shows and saves the flow itself."""
    flow = await lab.flow()
    commands = lab.proxy.master.commands
    with suppress(CommandError):  # some flows have nothing to save
        commands.call("vtc.save", [flow], str(directory / "cases.yaml"))
    logged = [logging.Formatter().format(record) for record in caplog.records if record.name.startswith("vtc")]
    kept = [
        flow.comment,
        flow.marked,
        json.dumps(flow.metadata, default=str),
        commands.call("vtc.stats"),
        commands.call("vtc.explain", [flow]),
        *read_files(directory),
    ]
    return "\n".join([*logged, *kept])


@pytest.mark.parametrize("mode", ["rewrite", "observe"])
@pytest.mark.parametrize("case", CASES)
async def test_output_contains_no_secret(
    case: str, mode: str, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body, replies = CASES[case]
    lab = await start(replies, vtc_mode=mode, vtc_tools="prompt", vtc_log=str(tmp_path / "log.jsonl"))
    headers = {**HEADERS, **({"user-agent": "Cline/3"} if case == "a text client" else {})}
    path = f"/{TOKEN}{PATH}?key={QUERY}&api_key={QUERY}"
    with suppress(httpx.RemoteProtocolError):
        await lab.post(body, path=path, headers=headers)
    output = await everything_said(lab, caplog, tmp_path)
    assert "vtc" in output
    assert [bird for bird in BIRDS if bird in output] == []
    seen = lab.upstream.seen[0]
    assert (seen.path, seen.headers["authorization"]) == (path, HEADERS["authorization"]), "they still reach the server"


@pytest.mark.parametrize("stage", [Stage(Planner, "plan"), Stage(Reader, "feed", 3), Stage(Reader, "finish")], ids=str)
async def test_report_of_a_fault_contains_no_secret(
    stage: Stage, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.plant(monkeypatch)
    lab = await start(SAYING, vtc_log=str(tmp_path / "log.jsonl"))
    await lab.post(asking(), path=f"{PATH}?key={QUERY}", headers=HEADERS)
    output = await everything_said(lab, caplog, tmp_path)
    assert "PlantedError" in output
    assert [bird for bird in BIRDS if bird in output] == []


@pytest.mark.parametrize("behind", range(120, 200, 9))
async def test_no_part_of_a_secret_is_in_an_excerpt(
    behind: int, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Excerpts can cut a secret; an error about bad JSON shows only the beginning of a word."""
    token = "".join(f"{letter}{number}" for number in range(4) for letter in "qwertyuiop")
    padding = REFUSED[:-1] + '"x": "' + "." * (behind - len(REFUSED) - 5)
    bad = f'<tool_call>{{"name": {token}}}</tool_call>'
    lab = await start(
        chat.make_stream(f'{padding}{token}"}}}}</tool_call> {bad}'),
        vtc_lenient="off",
        vtc_log=str(tmp_path / "log.jsonl"),
    )
    await lab.post(asking(), headers={"authorization": f"Bearer {token}"})
    output = await everything_said(lab, caplog, tmp_path)
    assert output.count('"excerpt"') == 2
    assert token[:8] not in output


OWN = "Ab1+/9=zz~Xy-0f1e2d"
"""A key of no known format."""
QUOTED_OWN = quote(OWN, safe="")
PLACES: dict[str, tuple[dict[str, str], str, dict[str, Any]]] = {
    **{
        name: ({name: value}, "", {})
        for name, value in (
            *[("authorization", f"Bearer {OWN}"), ("cookie", f"theme=dark; session={OWN}")],
            *((name, OWN) for name in ("x-api-key", "api-key", "x-goog-api-key", "x-litellm-api-key", "x-auth-token")),
            ("x-goog-iam-authorization-token", OWN),
        )
    },
    "a password": ({"authorization": f"Basic {b64encode(f'me:{OWN}'.encode()).decode()}"}, "", {}),
    **{f"?{name}": ({}, f"{name}={QUOTED_OWN}", {}) for name in ("key", "api-key", "access_token", "%6bey", "KEY")},
    "the body": ({}, "", {"extra_headers": {"Authorization": f"Bearer {OWN}"}}),
}
"""Places of a request that can contain a key: headers, query, fields of the body."""
REPEATED = f"API key not valid: {OWN} ({QUOTED_OWN}, {re.sub('%..', lambda one: one[0].lower(), QUOTED_OWN)})"
ANSWERS: dict[str, Reply] = {
    "an error": Reply([chat.encode_json({"error": {"message": REPEATED, "code": 401}})], JSON, 401, framing="length"),
    "an error with status 200": Reply([chat.encode_json({"error": {"message": REPEATED}})], JSON, framing="length"),
    "a page of a gateway": Reply(
        [f"<html><h1>Bad Gateway</h1><p>{REPEATED}</p></html>".encode()],
        {"content-type": "text/html"},
        *(502, "length"),
    ),
    "no JSON": Reply([REPEATED.encode()], {"content-type": "text/plain"}, 400, framing="length"),
    "no reply": Reply([chat.encode_json({"detail": REPEATED})], JSON, framing="length"),
    "an error amid a stream": Reply(
        [chat.ROLE, *chat.make_text_chunks("Look"), chat.frame({"error": {"message": REPEATED}})]
    ),
    "a refused call": Reply(chat.make_stream(f"<tool_call>{{'name': {OWN}, {QUOTED_OWN}")),
}


@pytest.mark.rest
@pytest.mark.parametrize("client", ["openai-chat", "gemini-generate"])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_output_contains_no_key_that_the_server_repeats(
    answer: str, client: str, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for any place of the key in the request, also if it moves because the server has another API."""
    caplog.set_level(logging.DEBUG)
    log = tmp_path / "log.jsonl"
    lab = await start(ANSWERS[answer], vtc_upstream_api="openai-chat", vtc_log=str(log))
    path = SHAPES[client].build_path(stream=True, model="qwen3-coder")
    leaks = []
    for place, (headers, query, fields) in PLACES.items():
        caplog.clear()
        log.unlink(missing_ok=True)
        (tmp_path / "cases.yaml").unlink(missing_ok=True)
        asked = f"{path}{'&' if '?' in path else '?'}{query}" if query else path
        body = SHAPES[client].request(stream=True, model="qwen3-coder", **fields)
        with suppress(httpx.RemoteProtocolError):
            await lab.post(body, path=asked, headers=headers)
        output = await everything_said(lab, caplog, tmp_path)
        leaks += [
            (place, output.partition(part)[0][-99:]) for part in (OWN[:8], QUOTED_OWN[:8], OWN[-8:]) if part in output
        ]
    assert leaks == []
