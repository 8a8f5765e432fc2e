"""Tests of `vtc run`: the proxy that it starts, and errors about its arguments."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.agents.apis import Call
from tests.agents.model_server import ScriptedModel, serve
from tests.apis import chat
from tests.cli.conftest import UsualPorts
from tests.e2e.conftest import PATH, PATIENCE
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.cli import main
from vtc.proxy import launch


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", "--dry-run", *arguments])


def build_command(*arguments: str) -> list[str]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return shlex.split(result.output)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["127.0.0.1:8000"], ["--mode", "reverse:http://127.0.0.1:8000"]),
        (["8000"], ["--mode", "reverse:http://127.0.0.1:8000"]),
        (["[::1]:8000"], ["--mode", "reverse:http://[::1]:8000"]),
        (["https://api.example.com/"], ["--mode", "reverse:https://api.example.com"]),
        (["--port", "9000", "--host", "0.0.0.0"], ["--listen-host", "0.0.0.0", "--listen-port", "9000"]),
        (["--tools", "prompt", "--dialect", "hermes"], ["--set", "vtc_tools=prompt", "--set", "vtc_dialect=hermes"]),
        (["--blocks", "last"], ["--set", "vtc_blocks=last"]),
        (["--api", "openai-chat"], ["--set", "vtc_upstream_api=openai-chat"]),
        (["--observe"], ["--set", "vtc_mode=observe"]),
        (["--log", "x.jsonl"], ["--set", "vtc_log=x.jsonl"]),
        (["--web"], ["--set", "web_columns=comment"]),
        ([], ["--set", "flow_detail=0"]),
        (["--web"], ["--set", "flow_detail=0"]),
        (["localhost:1", "--", "-q", "--set", "a=b"], ["-q", "--set", "a=b"]),
        (["--", "-q"], ["-q"]),
    ],
)
def test_arguments_of_mitmproxy(arguments: list[str], part: list[str]) -> None:
    found = build_command(*arguments)
    assert any(found[at : at + len(part)] == part for at in range(len(found)))


def test_unusable_address_is_reported_with_options_of_vtc_run() -> None:
    """The error does not name mitmproxy's options (`--mode …@PORT`)."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        called = [sys.executable, "-m", "vtc", "run", "--port", str(port)]
        done = subprocess.run(called, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 1
    assert f"Error: cannot listen at 127.0.0.1:{port} (Address already in use); " in done.stderr
    assert "--port" in done.stderr


@pytest.mark.rest
def test_unusable_address_of_mitmweb_is_reported_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        called = [sys.executable, "-m", "vtc", "run", "--port", "0", "--web", "--", "--set", f"web_port={port}"]
        done = subprocess.run(called, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 1
    assert f"Error: cannot listen at 127.0.0.1:{port} (Address already in use); is mitmweb running" in done.stderr
    assert f"web_port={port + 1}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.rest
def test_foreign_address_is_not_reported_as_in_use() -> None:
    called = [sys.executable, "-m", "vtc", "run", "--host", "192.0.2.1"]  # for documentation (RFC 5737)
    done = subprocess.run(called, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 1
    assert "Error: cannot listen at 192.0.2.1:8088 (" in done.stderr
    assert "already" not in done.stderr


def test_a_second_upstream_is_refused_and_a_filter_is_not() -> None:
    result = CliRunner().invoke(main, ["run", "--dry-run", "localhost:1", "localhost:2"])
    assert result.exit_code == 2
    assert "unexpected localhost:2" in result.output
    assert build_command("localhost:1", "--", "~d x")[-1] == "~d x"


@pytest.mark.parametrize("more", [["-v"], ["-v", "--web"]])
def test_mitmproxys_own_lines_can_be_had(more: list[str]) -> None:
    assert "flow_detail=0" not in build_command("localhost:1", *more)


def test_file_of_a_dialect(tmp_path: Path) -> None:
    (file := tmp_path / "mine.yaml").write_text('{kind: dialect, name: mine, call: "<|run|>{json}<|end|>"}')
    (other := tmp_path / "other.yaml").write_text("{kind: model, name: other, match: {model: other}}")
    assert (
        f"--set vtc_profiles={file} --set vtc_dialect=mine"
        in run("http://127.0.0.1:1", "--dialect-file", str(file)).output
    )
    result = run("http://127.0.0.1:1", "--dialect-file", str(other))
    assert result.exit_code == 2
    assert "contains 0 dialects, one is needed" in result.output


def test_profiles_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    found = build_command("--profiles", "a", "--profiles", str(tmp_path))
    assert [part for part in found if part.startswith("vtc_profiles=")] == [
        f"vtc_profiles={tmp_path / 'a'}",
        f"vtc_profiles={tmp_path}",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--dialect", "hermez"], 2, "there is no dialect 'hermez' (did you mean 'hermes'?)"),
        (["--profiles", "/nope"], 2, "'/nope' does not exist"),
        (["--profiles", "bad.yaml"], 1, "bad.yaml:1: kind: "),
    ],
)
def test_mistakes_are_reported_before_anything_is_started(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("kind: modle\n")
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.output


def test_an_unknown_api_is_reported_with_the_known_ones() -> None:
    result = run("--api", "openai-chats")
    assert result.exit_code == 2
    assert "there is no API 'openai-chats'" in result.output
    assert "anthropic-messages" in result.output


def test_without_an_upstream_it_is_an_ordinary_proxy() -> None:
    assert "--mode" not in build_command("--", "-q")


def test_mitmproxy_arguments_have_priority(tmp_path: Path) -> None:
    (tmp_path / "vtc.yaml").write_text("options: {vtc_tools: auto, vtc_models: [a=b]}\n")
    found = build_command(
        "--config",
        str(tmp_path / "vtc.yaml"),
        *("--tools", "prompt", "--"),
        *("--set", "vtc_tools=native", "--set=vtc_models=c=d"),
    )
    assert [one for one in launch.list_settings(found) if one.startswith("vtc")] == [
        *("vtc_tools=auto", "vtc_models=a=b", "vtc_tools=prompt", "vtc_tools=native", "vtc_models=c=d")
    ]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["flow_detail=2"], "flow_detail"),
        (["connection_strategy=eager"], "connection_strategy"),
        (["--web", "store_streamed_bodies=false"], "store_streamed_bodies"),
    ],
)
def test_mitmproxy_is_given_no_second_value_for_its_own_options(arguments: list[str], name: str) -> None:
    """mitmproxy exits if an option has two values."""
    *own, spec = arguments
    found = launch.list_settings(build_command("localhost:1", *own, "--", "--set", spec))
    assert [one for one in found if one.startswith(name)] == [spec]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["vtc_tools", "prompt"], "vtc_tools has no value: --set vtc_tools=…"),
        (["vtc_lenient"], "vtc_lenient has no value"),
        (["vtc_models", "--set", "vtc_models=a=b"], "vtc_models has no value"),
        (["vtc_tols=prompt"], "there is no option vtc_tols (did you mean 'vtc_tools'?)"),
        (["vtc_tools=xml"], "vtc_tools must be one of auto, native, prompt, not 'xml'"),
        (["vtc_server=vlm"], "there is no server 'vlm' (did you mean 'vllm'?)"),
        (["vtc_keep_alive=soon"], "vtc_keep_alive must be a whole number, not 'soon'"),
        (["vtc_upstream_api=chat"], "vtc_upstream_api: there is no API 'chat'"),
    ],
)
def test_an_option_that_the_addon_would_refuse_is_refused_before_anything_is_started(
    specs: list[str], message: str
) -> None:
    result = run("localhost:1", "--", "--set", *specs)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        ("http://127.0.0.1:8000/api/v1", "leave out /api; it belongs in the client's base URL"),
        ("ftp://x", "not a URL; write it like "),
        ("http://", "not a URL; write it like "),
        ("http://127.0.0.1:99999", "the port must be from 1 to 65535"),
        ("http://127.0.0.1:abc", "the port must be from 1 to 65535"),
        ("http://[::1", "not a URL; write it like "),
        ("http://two words:80", "not a URL; write it like "),
        ("http://me:open-sesame@127.0.0.1:8000", "leave out user and password"),
    ],
)
def test_an_invalid_upstream_is_rejected(upstream: str, message: str) -> None:
    result = run(upstream)
    assert result.exit_code == 2
    assert message in result.output
    assert "open-sesame" not in result.output


@asynccontextmanager
async def start_vtc(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """Start VTC; yield the process and the address for clients."""
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    command = [sys.executable, "-m", "vtc", "run", "--port", "0", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, preexec_fn=heeds)
    try:
        async with asyncio.timeout(3 * PATIENCE):
            assert process.stdout is not None
            while not (listening := re.search(rb"listening at (\S+:\d+)", line := await process.stdout.readline())):
                assert line, "it ended before it listened"
            yield process, f"http://{listening[1].decode().removeprefix('http://')}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "127.0.0.1:8000/v1/", "http://127.0.0.1:8000/"])
def test_v1_at_the_end_of_an_upstream_is_removed(url: str) -> None:
    assert "reverse:http://127.0.0.1:8000" in build_command(url)


async def test_dry_run_prints_the_servers_report() -> None:
    def script(seen: Seen) -> Reply:
        listed = b'{"data": [{"id": "m-7b", "owned_by": "vllm"}]}'
        is_chat = seen.path.endswith("/chat/completions")
        return Reply([listed], JSON, 200 if seen.method == "GET" else 400 if is_chat else 404, "length")

    async with serving(script) as upstream:
        result = await asyncio.to_thread(run, upstream.url)
    assert f"# found now, probed again at the start: {upstream.url} is vLLM" in result.stderr
    assert "it speaks openai-chat" in result.stderr
    assert "its models: m-7b" in result.stderr
    assert "#" not in result.stdout


async def test_it_runs(confdir: Path, tmp_path: Path) -> None:
    reply = Reply(chat.make_stream(*chat.DIALECTS["tag"]("read", {"filePath": "/a"})))
    unread = Reply(chat.make_stream("I look. ", "@@read(filePath=/a)@@"))
    log = tmp_path / "vtc.jsonl"
    async with serving(lambda request: unread if b"again" in request.body else reply) as upstream:
        arguments = [upstream.url, "--log", str(log), "--", "--set", f"confdir={confdir}"]
        async with start_vtc(*arguments) as (process, address):
            async with httpx.AsyncClient(base_url=address, trust_env=False, verify=False, timeout=PATIENCE) as client:
                response = await client.post(PATH, json=chat.request(stream=True))
                await client.post(PATH, json=chat.request(stream=True, user="again"))
            process.terminate()
            output, _ = await process.communicate()
    assert chat.read(response.content).calls == [("read", {"filePath": "/a"})]
    assert b"a possible call was not read: @@read( " in output
    assert process.returncode == 0
    result = CliRunner().invoke(main, ["stats", str(log)])
    assert result.exit_code == 0
    assert "tag" in result.output


@pytest.mark.rest
async def test_ctrl_c_reports_no_connected_clients_but_pending_exchanges(confdir: Path) -> None:
    """Python 3.12.1 prints a traceback for each cancelled task of a connection."""

    async def without_end() -> AsyncIterator[bytes]:
        for piece in chat.make_stream("I look"):
            if piece != chat.DONE:
                yield piece
        await asyncio.Event().wait()

    async with (
        serving(lambda _: Reply(without_end())) as upstream,
        start_vtc(upstream.url, "--", "--set", f"confdir={confdir}") as (process, address),
        httpx.AsyncClient(base_url=address, trust_env=False, verify=False, timeout=PATIENCE) as client,
    ):
        url = urlsplit(address)
        _, idle = await asyncio.open_connection(url.hostname, url.port)
        async with client.stream("POST", PATH, json=chat.request(stream=True)) as response:
            await anext(response.aiter_bytes())
            process.send_signal(signal.SIGINT)
            output, _ = await process.communicate()
        idle.close()
    lines = output.decode().splitlines()
    assert process.returncode == 0
    assert any(": 1 exchange" in line for line in lines), lines
    assert [line for line in lines if not re.match(r"(?:\[[\d:.]+\] |\s+)?(vtc: |$)", line)] == []


@pytest.mark.parametrize(
    "arguments",
    [["127.0.0.1:8088"], ["localhost:9000", "--port", "9000"], ["10.0.0.7:1", "--host", "10.0.0.7", "--port", "1"]],
)
def test_its_own_address_is_no_upstream(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "is the address at which VTC itself would listen" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-w", "flows", "localhost:1"], "there is no option -w; arguments of mitmproxy go after `--`"),
        (["-w", "flows", "localhost:1"], "vtc run URL -- -w flows"),
        (["localhost:1", "-s", "x=y"], "vtc run URL -- -s x=y"),
        (["-q", "http://localhost:1"], "vtc run URL -- -q"),
        (["--ssl-insecure", "--web"], "vtc run URL -- --ssl-insecure"),
        (["localhost:1", "--tool", "prompt"], "there is no option --tool (did you mean --tools?)"),
        (["localhost:1", "--key_env", "X"], "there is no option --key_env (did you mean --key-env?)"),
    ],
)
def test_mitmproxy_option_before_the_dashes_is_reported_with_its_place(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["run", "--dry-run", "https://localhost:1"], 2),
        (["launch", "sh", "https://localhost:1"], 1),
        (["probe", "https://localhost:1"], 1),
        (["doctor", "https://localhost:1", "--port", "1"], 1),
    ],
)
def test_invalid_certificate_file_is_reported_in_one_line(
    command: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = {"kind": "agent", "name": "sh", "api": "openai-chat", "commands": ["sh"]}
    (tmp_path / "agent.yaml").write_text(json.dumps(agent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    sets = ["--set", f"ssl_verify_upstream_trusted_ca={tmp_path}/agent.yaml"]
    result = CliRunner().invoke(main, [*command, "--profiles", str(tmp_path), *sets])
    assert result.exit_code == code, result.output
    assert f"ssl_verify_upstream_trusted_ca: {tmp_path}/agent.yaml has no certificate in PEM format" in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("server", ["http://127.0.0.1:8000", "127.0.0.1:8000/", "localhost:8000", "8000"])
def test_server_without_a_command_is_reported_with_the_command(server: str) -> None:
    result = CliRunner().invoke(main, [server])
    assert result.exit_code == 2
    assert f"vtc run {server}" in result.output


KEYED = "{kind: server, name: keyed, match: {host: api.example.com}, key_env: LAB_KEY}"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["https://api.example.com"], 0, "clients that send no key use that of LAB_KEY in the environment, at api.ex"),
        (["https://api.example.com", "--host", "0.0.0.0"], 1, "clients on other machines could use the key"),
        (["https://api.example.com", "--host", "0.0.0.0", "--", "--set", "vtc_share_keys=off"], 1, "--share-keys"),
        (["https://api.example.com", "--host", "0.0.0.0", "--share-keys"], 0, "vtc_share_keys=on"),
        (["--host", "0.0.0.0"], 1, "clients on other machines could use the key"),
        (["http://127.0.0.1:8000", "--host", "0.0.0.0"], 0, "--listen-host 0.0.0.0"),
    ],
)
def test_key_of_the_environment_is_lent_to_other_machines_only_on_request(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "canary-run-0f1e2d3c")
    (tmp_path / "keyed.yaml").write_text(KEYED)
    result = run("--profiles", str(tmp_path / "keyed.yaml"), *arguments)
    assert result.exit_code == code
    assert message in result.output
    assert "canary" not in result.output
    assert ("lends" in result.output) == bool(code)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["https://api.groq.com"],
            0,
            "clients that send no key use that of LAB_KEY in the environment, at api.groq.com",
        ),
        (["https://api.groq.com"], 0, "vtc_key_env=LAB_KEY"),
        (["https://api.groq.com", "--host", "0.0.0.0"], 1, "clients on other machines could use the key"),
        (["https://api.groq.com", "--host", "0.0.0.0", "--share-keys"], 0, "vtc_share_keys=on"),
        ([], 2, "--key-env: name the server of the key"),
    ],
)
def test_the_key_of_the_upstream_may_be_named_on_the_command_line(
    arguments: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "canary-run-0f1e2d3c")
    result = run("--key-env", "LAB_KEY", *arguments)
    assert (result.exit_code, message in result.output) == (code, True)
    assert "canary" not in result.output


@pytest.mark.parametrize(("name", "code"), [("LAB_LACKS", 1), ("sk-canary-0f1e2d", 2)])
def test_missing_variable_is_reported_and_a_key_in_its_place_is_hidden(name: str, code: int) -> None:
    result = run("--key-env", name, "https://api.groq.com")
    assert result.exit_code == code
    assert "canary" not in result.output


@pytest.mark.parametrize(("upstream", "code"), [("https://api.example.com", 1), ("", 1), ("http://127.0.0.1:8", 0)])
def test_missing_key_is_reported_before_anything_starts(
    upstream: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is not used does not matter."""
    monkeypatch.delenv("LAB_KEY", raising=False)
    (tmp_path / "keyed.yaml").write_text(KEYED)
    result = run("--profiles", str(tmp_path / "keyed.yaml"), *([upstream] if upstream else []))
    assert result.exit_code == code
    assert ("key_env: the environment has no variable LAB_KEY; set it" in result.output) == bool(code)


def test_without_an_upstream_the_one_that_answers_on_a_usual_port_is_taken(usual_ports: UsualPorts) -> None:
    with serve(ScriptedModel("native", Call("read_file", "path", ""))) as url:
        usual_ports(9, int(url.rpartition(":")[2]))
        assert f"reverse:{url}" in build_command()
        assert "--mode" not in build_command("--proxy")
        assert "reverse:" not in " ".join(build_command("--", "--mode", "socks5"))
        assert "name the server of the key" in run("--key-env", "PATH").output
    assert "--mode" not in build_command()  # now no one answers
