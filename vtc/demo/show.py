"""The demonstration: model server, mitmproxy with the addon, and an agent on the official OpenAI client."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vtc.demo import server
from vtc.proxy import launch

SECRET_WORD = "marmalade"
READ_FILE_TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a text file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Path of the file"}},
            "required": ["path"],
        },
    },
}


@contextmanager
def run_proxy(upstream: str, confdir: Path, *, web: bool) -> Iterator[tuple[str, str]]:
    """Run mitmdump or mitmweb with the addon; yield the addresses of the proxy and of mitmweb."""
    more = ["--set", "vtc_tools=prompt", "--set", "vtc_dialect=qwen3-coder", "--set", f"confdir={confdir}"]
    more += ["--no-web-open-browser", "--web-port", str(_find_free_port())] if web else []
    command = launch.build_command("mitmweb" if web else "mitmdump", upstream, "127.0.0.1", 0, more)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield _wait_for_addresses(process, web)
        finally:
            process.terminate()


def _wait_for_addresses(process: subprocess.Popen[str], web: bool) -> tuple[str, str]:
    """Wait until mitmproxy listens. Afterwards its log is discarded, so that a full pipe never blocks it."""
    assert process.stdout is not None
    listening = page = ""
    log = []
    for line in process.stdout:
        log.append(line)
        if match := re.search(r"listening at (?:http://)?\S+:(\d+)\.$", line.strip()):
            listening = f"http://127.0.0.1:{match[1]}"
        if match := re.search(r"Web server listening at (\S+)", line):
            page = match[1]
        if listening and (page or not web):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return listening, page
    raise SystemExit("the proxy did not start:\n" + "".join(log))


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_agent(base_url: str, folder: Path, console: Console, model: server.DemoServer) -> str:
    """Run an agent until it answers: print both sides of each turn and return the answer."""
    import openai

    client = openai.OpenAI(base_url=f"{base_url}/v1", api_key="not-needed")
    messages: list[Any] = [{"role": "user", "content": "What does note.txt say?"}]
    while True:
        with client.chat.completions.stream(
            model=server.DEMO_MODEL,
            messages=messages,
            tools=[READ_FILE_TOOL],  # type: ignore[list-item]
        ) as stream:
            choice = stream.get_final_completion().choices[0]
        message = choice.message
        calls = [
            {"id": call.id, "name": call.function.name, "arguments": json.loads(call.function.arguments)}
            for call in message.tool_calls or []
        ]
        received = {"content": message.content, "tool_calls": calls, "finish_reason": choice.finish_reason}
        _show(console, model.written[-1], json.dumps(received, indent=2))
        if not calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for call in calls:
            path = folder / call["arguments"]["path"]
            result = path.read_text()
            console.print(f"the agent runs {call['name']}({call['arguments']}) -> {result.strip()!r}\n", style="cyan")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def _show(console: Console, written: str, received: str) -> None:
    table = Table(expand=True)
    table.add_column("the model wrote (text, no tool support)", ratio=1)
    table.add_column("the client received (openai, streaming)", ratio=1)
    table.add_row(Text(written), Text(received))
    console.print(table)


def run_demo(*, web: bool) -> bool:
    """Run one agent turn and print both sides; with `web`, mitmweb stays open until Ctrl-C. Return True on success."""
    exit_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 80)
    with (
        tempfile.TemporaryDirectory() as folder,
        server.run_server() as model,
        run_proxy(model.url, Path(folder, "mitmproxy"), web=web) as (url, page),
    ):
        Path(folder, "note.txt").write_text(f"The secret word is {SECRET_WORD}.\n")
        console.print(f"client -> {url} (mitmproxy with VTC) -> {model.url} (scripted model server)\n")
        answer = run_agent(url, Path(folder), console, model)
        worked = SECRET_WORD in answer
        console.print("the agent finished its task" if worked else "the agent did not finish its task")
        if web:
            at, _, token = page.partition("/?")
            console.print(f"\nexchanges are listed at {at}/vtc?{token}", soft_wrap=True)
            console.print(f"mitmweb, with the flows, is at {page} (Ctrl-C ends it)", soft_wrap=True)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    return worked


def exit_on_signals() -> None:
    """Exit when the terminal is closed or `make` is stopped, so that the proxy is stopped, too."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _exit)


def _exit(signum: int, _: object) -> None:
    sys.exit(128 + signum)
