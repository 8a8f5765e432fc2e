"""A full disk: one plain line in the log, and traffic continues."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import httpx
import pytest
from mitmproxy import exceptions

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE, Start
from tests.e2e.test_start import mitmdump
from tests.e2e.upstream import Reply, serving

pytestmark = pytest.mark.rest

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
ASK = chat.request(stream=True)
EXCHANGES = 12


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of another process")
async def test_log_of_exchanges_on_a_full_disk(confdir: Path, tmp_path: Path) -> None:
    """Each written line is complete; when there is space again, new lines are written."""
    log = tmp_path / "vtc.jsonl"
    async with serving(lambda _: Reply(chat.make_stream(*CALL))) as model:
        options = [f"confdir={confdir}", f"vtc_log={log}", "flow_detail=0"]
        arguments = ["-m", f"reverse:{model.url}", *(part for option in options for part in ("--set", option))]
        async with mitmdump(tmp_path, *arguments) as process:
            assert process.stdout
            lines = [await process.stdout.readline()]
            while not (found := re.search(rb"listening at (?:http://)?(\S+:\d+)", lines[-1])):
                lines.append(await process.stdout.readline())
            limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            async with httpx.AsyncClient(
                base_url=f"http://{found[1].decode()}", trust_env=False, timeout=PATIENCE
            ) as client:
                for number in range(EXCHANGES):
                    if number == 1:
                        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size * 5 // 2, limits[1]))
                    if number == EXCHANGES - 1:
                        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
                    read = chat.read((await client.post(PATH, json=ASK)).content)
                    assert read.calls == [("read", {"filePath": "/a"})]
            process.terminate()
            output, _ = await process.communicate()
    reports = [line for line in (b"".join(lines) + output).decode().splitlines() if "written" in line]
    assert len(reports) == 1
    assert reports[0].endswith(f"vtc: exchanges are not logged because {log} cannot be written: File too large")
    written = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [entry["outcome"] for entry in written] == ["rewritten"] * 3


async def test_cases_that_cannot_be_saved(start: Start) -> None:
    lab = await start(chat.make_stream(*CALL), vtc_keep_bodies="on")
    await lab.post(ASK)
    flow = await lab.flow()
    with pytest.raises(exceptions.CommandError) as failed:
        lab.proxy.master.commands.call("vtc.save", [flow], "/dev/full")
    assert str(failed.value) == "vtc.save: /dev/full cannot be written: No space left on device"
    assert (await lab.post(ASK)).message.calls
