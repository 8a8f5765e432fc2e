"""Model servers on this machine, found at their default ports when the user names no server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import click

from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.findings import list_models
from vtc.proxy.asking.status import request_status

USUAL_PORTS = (11434, 1234, 8000, 8080, 30000)
"""Default ports of Ollama, LM Studio, vLLM, llama.cpp and SGLang."""
PROBE_SECONDS = 1.0


class LocalServer(NamedTuple):
    """A model server that answered, and the names of its models."""

    url: str
    models: Sequence[str]


def find_servers() -> list[LocalServer]:
    """Find the model servers at the usual ports, which are probed concurrently. A VTC is not a model server."""
    with ThreadPoolExecutor(len(USUAL_PORTS) or 1) as pool:
        return [
            server for server in pool.map(_ask_server, (f"http://127.0.0.1:{port}" for port in USUAL_PORTS)) if server
        ]


def _ask_server(url: str) -> LocalServer | None:
    asker = Asker(url, seconds=PROBE_SECONDS)
    models = list_models(asker, ("ollama-chat",))
    return LocalServer(url, models) if models and not request_status(asker)[0] else None


def choose_server(command: str) -> str:
    """Return the URL of the model server that answers; empty if none does.

    If multiple servers answer, the user chooses one. Without a terminal, `UsageError` names them; its advice begins
    with `command`.
    """
    servers = find_servers()
    if len(servers) < 2:
        return servers[0].url if servers else ""
    rows = [f"{server.url} ({_format_models(server.models)})" for server in servers]
    if not sys.stdin.isatty():
        urls = ", ".join(server.url for server in servers)
        raise click.UsageError(f"multiple model servers answer: {urls}; name one: {command} {servers[0].url}")
    return servers[prompt_choice("Multiple model servers answer:", rows)].url


def _format_models(names: Sequence[str]) -> str:
    """Format the first three names of models."""
    shown = ", ".join(names[:3])
    return f"{shown}, …" if len(names) > 3 else shown


def prompt_choice(title: str, rows: Sequence[str]) -> int:
    """Ask the user to choose one of the rows; return its index."""
    click.echo(title, err=True)
    for number, row in enumerate(rows, 1):
        click.echo(f"  {number}  {row}", err=True)
    answer: int = click.prompt("Which one?", type=click.IntRange(1, len(rows)), default=1, err=True)
    return answer - 1


def format_ports() -> str:
    """Format the list of usual ports."""
    return ", ".join(map(str, USUAL_PORTS))
