"""Model servers of this machine: ask the usual ports, where the user names none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import click

from vtc.proxy.asker import Asker
from vtc.proxy.findings import list_models
from vtc.proxy.status import request_status

USUAL_PORTS = (11434, 1234, 8000, 8080, 30000)
"""Those of Ollama, LM Studio, vLLM, llama.cpp and SGLang."""
PROBE_SECONDS = 1.0


class LocalServer(NamedTuple):
    """A model server that answered, and the names of its models."""

    url: str
    models: Sequence[str]


def find_servers() -> list[LocalServer]:
    """Ask all ports at once which of them are a model server's; VTC itself is none."""
    with ThreadPoolExecutor(len(USUAL_PORTS) or 1) as pool:
        return [
            server for server in pool.map(_ask_server, (f"http://127.0.0.1:{port}" for port in USUAL_PORTS)) if server
        ]


def _ask_server(url: str) -> LocalServer | None:
    asker = Asker(url, seconds=PROBE_SECONDS)
    models = list_models(asker, ("ollama-chat",))
    return LocalServer(url, models) if models and not request_status(asker)[0] else None


def choose_server(command: str) -> str:
    """Return the URL of the one that answers, or that the user chooses; empty if none does."""
    servers = find_servers()
    if len(servers) < 2:
        return servers[0].url if servers else ""
    rows = [f"{server.url} ({', '.join(server.models[:3])}{', …' * (len(server.models) > 3)})" for server in servers]
    if not sys.stdin.isatty():
        urls = ", ".join(server.url for server in servers)
        raise click.UsageError(f"several model servers answer, {urls}: name one, {command} {servers[0].url}")
    return servers[prompt_choice("Several model servers answer:", rows)].url


def prompt_choice(title: str, rows: Sequence[str]) -> int:
    """Have the user choose one of several; returns its index."""
    click.echo(title, err=True)
    for number, row in enumerate(rows, 1):
        click.echo(f"  {number}  {row}", err=True)
    answer: int = click.prompt("Which one?", type=click.IntRange(1, len(rows)), default=1, err=True)
    return answer - 1


def format_ports() -> str:
    """Write the ports that were asked."""
    return ", ".join(map(str, USUAL_PORTS))
