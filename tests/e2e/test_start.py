"""mitmdump started as a user does, `mitmdump -s addons/addon.py`, in a separate process and any folder."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE
from tests.e2e.upstream import Reply, serving
from vtc.proxy import launch

ADDON = Path(__file__).parents[2] / "addons" / "addon.py"
MITMDUMP = Path(sys.executable).with_name("mitmdump")


@asynccontextmanager
async def mitmdump(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    command = [str(MITMDUMP), "-s", str(ADDON), "--listen-host", "127.0.0.1", "--listen-port", "0", *arguments]
    environment = {**os.environ, **(environment or {})}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, cwd=directory, env=environment)
    try:
        async with asyncio.timeout(3 * PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.rest
async def test_a_bad_profile_keeps_it_from_starting(confdir: Path, tmp_path: Path) -> None:
    """The message names the file, the line, the key and the nearest valid word."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "mine.yaml").write_text("kind: model\nname: mine\nmatch:\n  model: x\nlenientt: true\n")
    async with mitmdump(tmp_path, "--set", f"confdir={confdir}", "--set", f"vtc_profiles={profiles}") as process:
        output, _ = await process.communicate()
    assert process.returncode
    assert f"{profiles}/mine.yaml:5: lenientt: unknown key" in output.decode()
    assert "did you mean 'lenient'?" in output.decode()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        pytest.param(
            "vtc_tols=prompt",
            "vtc: there is no option vtc_tols (did you mean 'vtc_tools'?)",
            marks=pytest.mark.rest,
        ),
        pytest.param(
            "vtc_max_call_bytes=abc",
            "vtc: vtc_max_call_bytes must be a whole number, not 'abc'",
            marks=pytest.mark.rest,
        ),
        pytest.param("vtc_tools", "vtc: vtc_tools has no value: --set vtc_tools=…", marks=pytest.mark.rest),
        pytest.param(
            "vtc_log=/nope/x",
            "vtc: vtc_log: /nope/x cannot be written: No such file or directory",
            marks=pytest.mark.rest,
        ),
    ],
)
async def test_wrong_option_prevents_the_start_and_is_reported_in_one_line(
    option: str, message: str, confdir: Path, tmp_path: Path
) -> None:
    async with mitmdump(tmp_path, "--set", f"confdir={confdir}", "--set", option) as process:
        output, _ = await process.communicate()
    assert process.returncode
    assert message in output.decode()
    assert "Traceback" not in output.decode()


@pytest.mark.rest
@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        (None, "the file cannot be read: [Errno 2] No such file or directory"),
        ("\n", "the file is empty; write a secret into it, for example by `openssl rand -hex 32`"),
        ("0123456789abcdef\nshort\n", "secret 2 has fewer than 16 characters"),
    ],
)
async def test_wrong_secret_prevents_the_start_and_is_not_shown(
    secrets: str | None, message: str, confdir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    if secrets is not None:
        file.write_text(secrets)
    async with mitmdump(tmp_path, "--set", f"confdir={confdir}", "--set", f"vtc_secret_file={file}") as process:
        output, _ = await process.communicate()
    assert process.returncode
    assert message in output.decode()
    assert "short" not in output.decode()


@pytest.mark.rest
async def test_own_package_is_used_if_another_has_its_name(confdir: Path, tmp_path: Path) -> None:
    """`vtc` on the package index is another project."""
    (tmp_path / "vtc").mkdir()
    (tmp_path / "vtc" / "__init__.py").write_text("raise ValueError('theirs')\n")
    settings = ["--set", f"confdir={confdir}", "--set", "vtc_mode=nonsense"]
    async with mitmdump(tmp_path, *settings, environment={"PYTHONPATH": str(tmp_path)}) as process:
        output, _ = await process.communicate()
    assert f"another package or copy named vtc, {tmp_path / 'vtc' / '__init__.py'}, is ignored" in output.decode()
    assert "vtc_mode must be one of" in output.decode()  # this error is VTC's
    assert "Traceback" not in output.decode()


@pytest.mark.rest
async def test_missing_parts_are_reported(confdir: Path, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ModuleNotFoundError(\"No module named 'msgspec'\")\n")
    settings = ["--set", f"confdir={confdir}"]
    async with mitmdump(tmp_path, *settings, environment={"PYTHONPATH": str(tmp_path)}) as process:
        output, _ = await process.communicate()
    assert process.returncode
    assert "VTC cannot be loaded: No module named 'msgspec'. Install it into the environment" in output.decode()
    assert f"pipx inject --include-apps mitmproxy {ADDON.parents[1]}" in output.decode()
    assert "Traceback" not in output.decode()


async def test_proxy_starts_works_and_summarizes_at_the_end(confdir: Path, tmp_path: Path) -> None:
    """Statistics by model are printed when it ends."""
    reply = Reply(chat.make_stream(*chat.DIALECTS["tag"]("read", {"filePath": "/a"})))
    async with serving(lambda _: reply) as upstream:
        mode = f"reverse:{upstream.url}"
        given = [f"confdir={confdir}", "vtc_tools=native", "vtc_tools=prompt"]
        async with mitmdump(tmp_path, *launch.format_sets(given), "-m", mode) as process:
            assert process.stdout is not None
            lines = list[bytes]()
            while not (listening := re.search(rb"listening at (\S+:\d+)", line := await process.stdout.readline())):
                assert line, "it ended before it listened"
                lines.append(line)
            address = f"http://{listening[1].decode().removeprefix('http://')}"
            async with httpx.AsyncClient(base_url=address, trust_env=False, verify=False, timeout=PATIENCE) as client:
                response = await client.post(PATH, json=chat.request(stream=True))
            process.terminate()
            output, _ = await process.communicate()
    assert chat.read(response.content).calls == [("read", {"filePath": "/a"})]
    assert process.returncode == 0
    assert any(b"vtc: vtc_tools is given 2 times: the last value, prompt, wins" in line for line in lines)
    assert (
        f"vtc: read, tag -> tool_calls, 3 tools -> tag prompt - {chat.MODEL} at 127.0.0.1/v1/chat/completions"
        in output.decode()
    )
    for name in ("client httpx", f"model {chat.MODEL}"):
        assert (
            f"vtc: {name}: 1 exchange, 1 call (0 repaired), 0 left as text, 0 unread, 0 errors in VTC"
            in output.decode()
        )
    assert "vtc: dialect tag: 1 call (0 repaired), 0 left as text" in output.decode()


@pytest.mark.rest
async def test_proxy_does_not_start_if_the_owner_of_the_key_is_unknown(confdir: Path, tmp_path: Path) -> None:
    arguments = ["--listen-host", "127.0.0.1", "--set", f"confdir={confdir}", "--set", "vtc_key_env=LAB_KEY"]
    async with mitmdump(tmp_path, *arguments, environment={"LAB_KEY": "canary-start-0f1e2d3c"}) as process:
        output, _ = await process.communicate()
    assert process.returncode
    assert "the key belongs to one server" in output.decode()


@pytest.mark.rest
@pytest.mark.parametrize("at", ["0.0.0.0", "127.0.0.1"])
async def test_proxy_does_not_start_if_the_servers_key_is_missing_or_open_to_others(
    at: str, confdir: Path, tmp_path: Path
) -> None:
    file, key = tmp_path / "keyed.yaml", "canary-start-0f1e2d3c" if at == "0.0.0.0" else ""
    file.write_text("{kind: server, name: keyed, match: {host: 127.0.0.1}, key_env: LAB_KEY}")
    arguments = ["--listen-host", at, "--mode", "reverse:http://127.0.0.1:9", "--set", f"confdir={confdir}"]
    arguments += ["--set", f"vtc_profiles={file}"]
    async with mitmdump(tmp_path, *arguments, environment={"LAB_KEY": key}) as process:
        output, _ = await process.communicate()
    assert process.returncode
    reason = "clients on other machines could use the key" if key else "has no variable LAB_KEY; set it"
    assert reason in output.decode()
    assert "canary" not in output.decode()
