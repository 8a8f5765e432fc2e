"""The line of a possible unread call names a command that works when it is copied."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from tests.e2e.conftest import Lab, Start, start
from vtc.cli import main

__all__ = ["start"]

UNREAD = "I look.\n<<CALL read>>\n<<filePath>>/a<</filePath>>\n<<END>>\n"
ASK = chat.request(stream=True)
HEADERS = [{"x-forwarded-for": "10.0.0.7"}, {"via": "1.1 x"}, {"origin": "https://x.com"}, {"host": "x.com"}]


async def find_command(lab: Lab) -> list[str]:
    """Return the command that the next flow's line names."""
    flow = await lab.next_client_flow()
    (command,) = re.findall(r"a possible call was not read: \S+ … \((.*?)\)", flow.comment)
    return shlex.split(command)


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [*arguments])


async def test_the_command_of_the_line_drafts_the_dialect(start: Start) -> None:
    lab = await start(chat.make_stream(UNREAD))
    await lab.post(ASK)
    program, *arguments = await find_command(lab)
    assert program == "vtc"
    result = await run(*arguments)
    assert result.exit_code == 0, result.output
    assert 'vtc: the draft reads read {"filePath":"/a"}' in result.stderr
    parsed = await run("parse", *arguments[1:])
    assert "<<CALL read>>" in parsed.output
    assert "a possible call was not read" in parsed.output
    assert [seen.path for seen in lab.upstream.seen] == ["/v1/chat/completions"]


@pytest.mark.parametrize("headers", HEADERS, ids=str)
async def test_other_machines_and_web_pages_get_nothing(headers: dict[str, str], start: Start) -> None:
    lab = await start(chat.make_stream(UNREAD))
    await lab.post(ASK)
    id_ = (await lab.next_client_flow()).id
    for asked, more, status in (
        (id_, {}, 200),
        (id_[:13], {}, 200),
        (id_[:12], {}, 404),
        ("x" * 13, {}, 404),
        (id_, headers, 404),
    ):
        answer = await lab.client.get(f"/.vtc/unread/{asked}", headers=more)
        assert (answer.status_code, "<<CALL read>>" in answer.text) == (status, status == 200)


async def test_no_secret_of_the_request_is_printed(start: Start) -> None:
    lab = await start(chat.make_stream(UNREAD.replace("/a", "open-sesame-77")))
    await lab.post(ASK, headers={"authorization": "Bearer open-sesame-77"})
    answer = await lab.client.get(f"/.vtc/unread/{(await lab.next_client_flow()).id}")
    assert (answer.status_code, "open-sesame" in answer.text) == (200, False)


async def test_only_the_last_are_kept(start: Start) -> None:
    lab = await start(chat.make_stream(UNREAD))
    ids = []
    for _ in range(17):
        await lab.post(ASK)
        ids.append((await lab.next_client_flow()).id)
    statuses = [(await lab.client.get(f"/.vtc/unread/{id_}")).status_code for id_ in ids]
    assert statuses == [404] + [200] * 16
    lab.set(vtc_cache="off")
    assert (await lab.client.get(f"/.vtc/unread/{ids[-1]}")).status_code == 404
    await lab.post(ASK)
    while "vtc" not in (flow := await lab.next_client_flow()).metadata or ".vtc" in flow.request.path:
        pass
    assert "(save flows with `-w FILE` for vtc new-dialect)" in flow.comment


async def test_line_names_the_file_if_flows_are_saved(start: Start, tmp_path: Path) -> None:
    lab = await start(chat.make_stream(UNREAD), save_stream_file=f"+{tmp_path / 'my flows'}")
    await lab.post(ASK)
    assert (await find_command(lab))[-1] == str(tmp_path / "my flows")


async def test_unknown_id_and_port_without_vtc_are_reported(start: Start) -> None:
    lab = await start(chat.make_stream(UNREAD))
    port = lab.proxy.url.rpartition(":")[2]
    result = await run("new-dialect", "--flow", "01234567-89ab", "--port", port)
    assert result.exit_code == 1
    assert "has no reply with the id 01234567-89ab" in result.output
    result = await run("new-dialect", "--flow", "01234567-89ab", "--port", "1")
    assert "nothing answers at 127.0.0.1:1" in result.output
    assert "give FILE, or --flow ID for a reply of a running VTC" in (await run("new-dialect")).output
