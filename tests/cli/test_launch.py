"""Tests of `vtc launch`: a real VTC before a scripted server, and small programs on PATH as agents.

An agent sends real requests, and writes its arguments and environment to a file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.agents.apis import CHAT, OLLAMA, Api, Call
from tests.agents.model_server import MODEL, ScriptedModel, serve
from tests.cli.conftest import UsualPorts
from vtc.cli import main

TIMEOUT_SECONDS = 60
LOCAL_HOSTS = ("127.0.0.1", "localhost")
AGENT_PROGRAM = """\
import json, os, signal, sys, urllib.request
from pathlib import Path

base, model = os.environ["LAB_URL"], os.environ["LAB_MODEL"]
folder = Path(os.environ["LAB_FILE"]).parent
tell = lambda **seen: Path(os.environ["LAB_REPORT"]).write_text(json.dumps(seen))
tools = [{"type": "function", "function": {"name": "read_file", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}}}}]
body = {"model": model, "stream": True, "tools": tools, "messages": [{"role": "user", "content": "Read it."}]}
request = urllib.request.Request(f"{base}/chat/completions", json.dumps(body).encode(),
    {"content-type": "application/json", "authorization": "Bearer " + os.environ["LAB_KEY"]})
reply = urllib.request.urlopen(request).read().decode()
with urllib.request.urlopen(urllib.parse.urljoin(base, "/.vtc")) as answer:
    status = json.load(answer)
seen = dict(arguments=sys.argv[1:], reply=reply, vtc=status, url=base, folder=str(folder), model=model,
    key=os.environ["LAB_KEY"], files=sorted(path.name for path in folder.iterdir()), own="LAB_OWN" in os.environ,
    window=os.environ.get("LAB_WINDOW"),
    settings=json.loads(Path(os.environ["LAB_FILE"]).read_text()), proxies=os.environ.get("NO_PROXY"))
tell(**seen)
if "wait" in sys.argv:
    caught = []
    def catch(number, _):
        caught.append(number)
        tell(**seen, signals=caught)
        if number == signal.SIGTERM:
            sys.exit(7)
        os.write(1, b"caught\\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, catch)
    print("ready", flush=True)
    while True:
        signal.pause()
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(sys.argv[sys.argv.index("exit") + 1]) if "exit" in sys.argv else 0)
"""
AGENT_PROFILE = """\
kind: agent
name: lab
description: Lab
api: openai-chat
commands: [lab-agent]
install: pip install lab-agent
variables:
  {LAB_URL: "{address}/v1", LAB_MODEL: "{model}", LAB_KEY: "{key}", LAB_FILE: "{folder}/lab.json", LAB_OWN: null,
   LAB_WINDOW: "{window}"}
arguments: [--model, "{model}"]
files: {lab.json: {model: "{model}"}}
"""


class Machine:
    """A user's home with settings, the fake agent on PATH, and its profile."""

    def __init__(self, path: Path, confdir: Path) -> None:
        self.home, self.temporary, self.report = path / "home", path / "tmp", path / "report.json"
        self.profiles, self.bin, self.work = path / "profiles", path / "bin", path / "work"
        for folder in (self.home, self.temporary, self.profiles, self.bin, self.work):
            folder.mkdir()
        for name in (".claude/settings.json", ".codex/config.toml", ".config/vtc/mine.txt"):
            file = self.home / name
            file.parent.mkdir(parents=True)
            file.write_text("of the user's")
        (self.home / ".mitmproxy").symlink_to(confdir)
        (self.profiles / "lab.yaml").write_text(AGENT_PROFILE)
        program = self.bin / "lab-agent"
        program.write_text(f"#!{sys.executable}\n{AGENT_PROGRAM}")
        program.chmod(0o755)

    def build_environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "LAB_REPORT": str(self.report),
            "LAB_OWN": "a key of the user's",
            "MY_KEY": "sk-mine",
        }

    def build_command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "vtc", "launch", *arguments]

    @contextmanager
    def launch_waiting(self, url: str) -> Iterator[subprocess.Popen[str]]:
        """Launch an agent that has printed `ready` and waits; at the end, kill all processes that still run."""
        with subprocess.Popen(
            self.build_command("lab", url, "--profiles", str(self.profiles), "--", "wait"),
            env=self.build_environment(),
            cwd=self.work,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout
            try:
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def launch(self, url: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Launch the agent and wait for its end."""
        return subprocess.run(
            self.build_command("lab", url, "--profiles", str(self.profiles), *arguments),
            env=self.build_environment() | variables,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )

    @property
    def witnessed(self) -> Mapping[str, Any]:
        seen: Mapping[str, Any] = json.loads(self.report.read_text())
        return seen

    def read_home(self) -> dict[str, str]:
        """Read the files in the home, except mitmproxy's folder."""
        files = {str(path.relative_to(self.home)): path for path in self.home.rglob("*") if path.is_file()}
        return {name: path.read_text() for name, path in files.items() if not name.startswith(".mitmproxy/")}

    def is_over(self) -> bool:
        """Return True if the launch is cleaned up: VTC does not listen any more, and the folder is removed."""
        port = int(self.witnessed["url"].rpartition(":")[2].partition("/")[0])
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return False
        return not Path(self.witnessed["folder"]).parent.exists()


@pytest.fixture
def machine(tmp_path: Path, confdir: Path) -> Machine:
    return Machine(tmp_path, confdir)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel("hermes", Call("read_file", "path", "hello.txt"))


@pytest.fixture
def server(model: ScriptedModel) -> Iterator[str]:
    with serve(model) as url:
        yield url


def test_agent_reaches_the_server_through_vtc_and_nothing_remains(
    machine: Machine, server: str, model: ScriptedModel
) -> None:
    before = machine.read_home()
    done = machine.launch(server, "--", "hello", "--flag", "--", "x", "exit", "3")
    assert done.returncode == 3, done
    seen = machine.witnessed
    assert seen["arguments"] == ["--model", MODEL, "hello", "--flag", "--", "x", "exit", "3"]
    assert '"tool_calls"' in seen["reply"]  # its model writes them as text
    assert "<tool_call>" not in seen["reply"]
    assert (seen["vtc"]["name"], seen["vtc"]["upstream"]) == ("vtc", server)
    assert (seen["model"], seen["key"], seen["own"]) == (MODEL, "any", False)
    assert (seen["files"], seen["settings"]) == (["lab.json"], {"model": MODEL})
    assert [request["model"] for request in model.requests] == [MODEL]
    assert machine.is_over()
    assert machine.read_home() == before
    assert "the agent ended with 3; the log of VTC is in " in done.stderr
    log = Path(done.stderr.split()[-1])
    assert server in log.read_text()
    assert [*machine.temporary.iterdir()] == [log]


def test_login_remains_on_the_makers_own_server(machine: Machine, server: str, model: ScriptedModel) -> None:
    """The agent gets the user's variables and arguments, and the server is not asked for models."""
    login = 'login: {hosts: [127.0.0.1], variables: {LAB_URL: "{address}/v1"}}\n'
    (machine.profiles / "lab.yaml").write_text(AGENT_PROFILE + login)
    (machine.work / "mine.json").write_text("{}")
    mine = {"LAB_MODEL": "my-model", "LAB_KEY": "sk-mine", "LAB_FILE": str(machine.work / "mine.json")}
    done = machine.launch(server, "--", "--model", "opus", **mine)
    assert (done.returncode, done.stderr) == (0, "")
    seen = machine.witnessed
    assert (seen["arguments"], seen["own"], seen["key"]) == (["--model", "opus"], True, "sk-mine")
    assert [request["model"] for request in model.requests] == ["my-model"]
    assert '"tool_calls"' in seen["reply"]


@pytest.mark.rest
def test_views_of_the_exchanges_are_named(machine: Machine, server: str) -> None:
    """mitmweb runs at a free port; the terminal is the agent's, so its view is a command for another one."""
    done = machine.launch(server, "--web", "--ui", "--set", "web_open_browser=false")
    assert done.returncode == 0, done
    port = machine.witnessed["url"].rpartition(":")[2].partition("/")[0]
    listens, pages, watch = done.stderr.splitlines()
    assert listens == f"vtc: VTC listens at http://127.0.0.1:{port}"
    assert re.fullmatch(r"vtc: its pages are at http://127\.0\.0\.1:\d+/\?token=\w+", pages)
    assert watch.endswith(f": vtc tail http://127.0.0.1:{port}")


@pytest.mark.rest
def test_old_logs_are_removed(machine: Machine, server: str) -> None:
    """Only files of this name: the last four, and the new one, remain."""
    for number in range(7):
        log = machine.temporary / f"vtc-launch-{number}.log"
        log.write_text("old")
        os.utime(log, (number, number))
    (machine.temporary / "vtc-launch-x.log").symlink_to("mine.txt")
    (machine.temporary / "other-launch-x.log").write_text("mine")
    log = machine.launch(server, "--", "exit", "3").stderr.split()[-1]
    kept = [f"vtc-launch-{number}.log" for number in range(3, 7)]
    found = {path.name for path in machine.temporary.iterdir()}
    assert found == {*kept, Path(log).name, "vtc-launch-x.log", "other-launch-x.log"}


@pytest.mark.rest
def test_small_window_is_reported_when_an_agent_is_launched(machine: Machine, model: ScriptedModel) -> None:
    model.window = 8192
    with serve(model) as server:
        done = machine.launch(server)
    assert done.stderr == (
        f"vtc: the context window of {MODEL} has 8,192 tokens, which the prompt of an agent nearly fills: enlarge it "
        "at the server\n"
    )
    assert machine.witnessed["window"] == "8192"


@pytest.mark.rest
def test_options_reach_vtc_and_the_key_reaches_the_agent_without_messages(machine: Machine, server: str) -> None:
    done = machine.launch(
        server, "--observe", "--key-env", "MY_KEY", "--model", "other", HTTP_PROXY="http://127.0.0.1:9"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [*machine.temporary.iterdir()] == []
    seen = machine.witnessed
    assert (seen["vtc"]["mode"], seen["key"], seen["model"]) == ("observe", "sk-mine", "other")
    assert seen["proxies"] == "127.0.0.1"


@pytest.mark.rest
@pytest.mark.parametrize("api", [pytest.param(CHAT, id="the agent's API"), pytest.param(OLLAMA, id="another API")])
def test_a_path_that_the_servers_apis_stand_below_goes_to_the_agent(api: Api, machine: Machine) -> None:
    api = replace(api, path=f"/openai{api.path}")
    model = ScriptedModel("hermes", Call("read_file", "path", "hello.txt"), api=api)
    with serve(model) as server:
        done = machine.launch(f"{server}/openai/v1", "--model", MODEL)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"tool_calls"' in machine.witnessed["reply"]
    assert len(model.requests) == 1


@pytest.mark.rest
def test_the_terminal_is_the_agents(machine: Machine, server: str) -> None:
    """Ctrl-C reaches both agent and launch; a signal to launch is forwarded, and VTC ends with the agent."""
    with machine.launch_waiting(server) as process:
        assert process.stdout
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "caught\n"
        assert process.poll() is None
        assert not machine.is_over()
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 7
    assert machine.witnessed["signals"] == [signal.SIGINT, signal.SIGTERM]
    assert machine.is_over()


@pytest.mark.rest
def test_vtc_ends_with_a_killed_launch_and_leaves_no_key(machine: Machine, server: str) -> None:
    with machine.launch_waiting(server) as process:
        port = int(machine.witnessed["url"].rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
            process.kill()
            assert connection.recv(1) == b""  # VTC closes it when it ends
            assert not Path(machine.witnessed["folder"]).parent.exists()


@pytest.mark.rest
def test_a_vtc_that_runs_before_that_very_server_is_used_and_a_signal_is_an_exit_code(
    machine: Machine, server: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (machine.work / "vtc.yaml").write_text(f"port: {port}\nprofiles: ['{machine.profiles}']\n")
    arguments = [sys.executable, "-P", "-m", "vtc", "run", server]
    with subprocess.Popen(
        arguments,
        env=machine.build_environment(),
        cwd=machine.work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout
        try:
            assert any("listening" in line for line in running.stdout)
            done = subprocess.run(
                machine.build_command("lab", server, "--key-env", "MY_KEY", "--", "killed"),
                env=machine.build_environment(),
                cwd=machine.work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
            )
            assert done.returncode == 128 + signal.SIGKILL, done
            assert done.stderr == f"vtc: using the VTC at http://127.0.0.1:{port}\n"
            assert (machine.witnessed["url"], machine.witnessed["key"]) == (f"http://127.0.0.1:{port}/v1", "sk-mine")
            assert running.poll() is None
        finally:
            running.terminate()
            running.stdout.read()


@pytest.mark.rest
@pytest.mark.parametrize(
    ("host", "named"),
    [("127.0.0.1", ["--key-env", "MY_KEY"]), *((host, []) for host in LOCAL_HOSTS)],
)
def test_program_that_imitates_vtc_gets_neither_key_nor_traffic(
    host: str, named: list[str], machine: Machine, server: str
) -> None:
    server = server.replace("127.0.0.1", host)
    with serve_impostor(server) as seen:
        (machine.work / "vtc.yaml").write_text(f"port: {seen.server_address[1]}\nprofiles: ['{machine.profiles}']\n")
        done = subprocess.run(
            machine.build_command("lab", server, *named),
            env=machine.build_environment(),
            cwd=machine.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert seen.asked == ["GET /.vtc"]
    address = f"http://127.0.0.1:{seen.server_address[1]}"
    why = "it does not prove that it is yours (by the key in ~/.mitmproxy)"
    assert (done.returncode, done.stderr) == (0, f"vtc: the VTC at {address} is not used: {why}\n")
    assert machine.witnessed["url"] != f"{address}/v1"
    assert machine.witnessed["key"] == ("sk-mine" if named else "any")


class Impostor(ThreadingHTTPServer):
    """Server that answers like the VTC that a launch searches for, and records its requests."""

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Impostor)
        self.upstream = upstream
        self.asked: list[str] = []


class _Impostor(BaseHTTPRequestHandler):
    server: Impostor

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        value = {"name": "vtc", "version": "0.1.0", "mode": "rewrite", "upstream": self.server.upstream}
        body = json.dumps({**value, "log": "", "proof": "0" * 64}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@contextmanager
def serve_impostor(upstream: str) -> Iterator[Impostor]:
    with Impostor(upstream) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def invoke_launch(machine: Machine, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.chdir(machine.work)
    result = CliRunner().invoke(main, ["launch", *arguments], env=machine.build_environment(), prog_name="vtc")
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["claude", "http://127.0.0.1:9"], 2,
         "Claude Code is not installed; claude is not on PATH: npm install -g @anthropic-ai/claude-code"),
        (["lab", "http://127.0.0.1:9"], 1, "http://127.0.0.1:9 cannot be reached (Connection refused): "),
        (["lab"], 2, "no model server answers on ports 9 of this machine; name one: vtc launch lab URL"),
        (["lab", "http://me:open-sesame@127.0.0.1:9"], 2, "leave out user and password"),
        (["lab", "http://127.0.0.1:9", "--key-env", "NOT_SET"], 2, "the variable NOT_SET is not set or is empty"),
        (["lab", "--key-env", "MY_KEY"], 2, "--key-env: name the server of the key: vtc launch lab URL"),
        (["labb"], 2, "there is no agent 'labb' (did you mean 'lab'?)"),
        (["lab", "--modl", "x"], 2, "there is no option --modl (did you mean --model?); options of the agent go after"),
        (["lab", "--print"], 2, "there is no option --print; options of the agent go after `--`"),
        ([], 2, "Missing argument 'AGENT'"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_anything_starts(
    arguments: list[str],
    code: int,
    problem: str,
    machine: Machine,
    usual_ports: UsualPorts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual_ports(9)
    (machine.work / "vtc.yaml").write_text(f"profiles: ['{machine.profiles}']\n")
    exit_code, output = invoke_launch(machine, *arguments, monkeypatch=monkeypatch)
    assert (exit_code, problem in output) == (code, True), output
    assert not machine.report.exists()


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"<!doctype html><p>Log in", "answers 200 to GET /v1/models with a web page: is this the model server?"),
        (401, b"{}", "answers 401 to GET /v1/models: it wants a key (--key-env NAME)"),
    ],
)
def test_a_server_that_lists_no_models_is_described(
    status: int, body: bytes, problem: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    (machine.work / "vtc.yaml").write_text(f"profiles: ['{machine.profiles}']\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as page:
        threading.Thread(target=page.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{page.server_port}"
            exit_code, output = invoke_launch(machine, "lab", url, monkeypatch=monkeypatch)
        finally:
            page.shutdown()
    assert (exit_code, output) == (1, f"Error: {url} {problem}\n")


def test_several_servers_are_listed_without_a_terminal(
    machine: Machine, server: str, model: ScriptedModel, usual_ports: UsualPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.work / "vtc.yaml").write_text(f"profiles: ['{machine.profiles}']\n")
    with serve(model) as url:
        usual_ports(*(int(each.rpartition(":")[2]) for each in (server, url)))
        exit_code, output = invoke_launch(machine, "lab", monkeypatch=monkeypatch)
    assert (exit_code, f"multiple model servers answer: {server}, {url}; name one: vtc launch lab" in output) == (
        2,
        True,
    )
    assert not machine.report.exists()
