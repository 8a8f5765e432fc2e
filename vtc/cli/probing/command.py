"""`vtc probe`: what a model server does with tools, and the profiles for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from vtc.cli.common import (
    complete_names,
    json_output,
    load_profiles,
    normalize_url,
    profile_directories,
    show_json,
    trust_settings,
)
from vtc.cli.probing.template import BY_USER, MOST_REQUESTS, BoundedAsker
from vtc.profiles.schema import API_NAMES
from vtc.proxy import launch
from vtc.proxy.trust import Trust
from vtc.scrub import escape_invisible, scrub_data

if TYPE_CHECKING:
    from vtc.cli.probing.probe import ProbeRecord

IN_ALL = 10
"""Times as long as one answer may take all of them may."""


@click.command(short_help="Ask a model server what it does with tools.")
@click.argument("at", metavar="URL")
@click.option("--model", default="", help="The model to ask for; else the first that the server lists.")
@click.option("--api", type=click.Choice(API_NAMES), help="The API to ask in; else the first that the server speaks.")
@click.option(
    "--server",
    default="",
    help="The server profile, if it is not recognised.",
    shell_complete=complete_names("servers"),
)
@click.option("--key-env", default="", metavar="NAME", help="The environment variable that holds the server's key.")
@click.option("--write", "directory", type=click.Path(file_okay=False, path_type=Path), help="Write profiles to DIR.")
@click.option("--timeout", type=click.FloatRange(0.1), default=60, show_default=True, help="Seconds for one answer.")
@click.option(
    "--tokens", type=click.IntRange(16), default=1024, show_default=True, help="Tokens of one answer at most."
)
@trust_settings
@profile_directories
@json_output
def probe(
    at: str,
    model: str,
    api: str | None,
    server: str,
    key_env: str,
    directory: Path | None,
    timeout: float,
    tokens: int,
    sets: tuple[str, ...],
    directories: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Ask the model server at URL what it does with tools, and say how to run VTC before it.

    Sends at most 30 short requests with made-up, harmless tools; nothing that the model calls is carried out. Ends with
    0 if an agent will work as proposed, with 1 if not. With --write two profiles are written, for the model and for its
    server, in which each line says what was seen.
    """
    from vtc.cli.probing import report  # these read the tables of a probe, which no other command needs
    from vtc.cli.probing.probe import Probe

    profiles = load_profiles(directories)
    if server and server not in profiles.servers:
        raise click.BadParameter(f"there is no server {server!r}; `vtc profiles` lists all", param_hint="--server")
    address, key = _address(at), _key(key_env)
    click.echo(_format_announcement(address, model, api, tokens), err=True)
    with _progress() as about:
        asker = BoundedAsker(
            address, key=key, seconds=timeout, in_all=IN_ALL * timeout, progress=about, trust=Trust.from_settings(sets)
        )
        seen = Probe(asker, profiles, tokens).run(model=model, of=(api,) if api else (), named=server)
    files: list[Path] = []
    if directory and seen.proposal and seen.stopped != BY_USER:
        files = seen.proposal.write(directory, _head(seen), asker.secrets)
    folders = [*directories, *([directory] if directory and files else [])]
    proposed = report.options(seen, folders, server=server, api=api or "", is_written=bool(files))
    proposed += launch.format_sets(sets)
    clients = report.clients(seen, proposed, profiles.agents.values(), key_env)
    findings = scrub_data(report.as_json(seen, report.command(seen, proposed), files, clients), asker.secrets)
    if as_json:
        show_json(findings)
    else:
        report.show(escape_invisible(findings))
    sys.exit(0 if seen.verdict()[0] else 1)


def _address(text: str) -> str:
    if "@" in text:
        raise click.BadParameter("leave out user and password; a key is taken from --key-env", param_hint="URL")
    return normalize_url(text, "URL")


def _key(name: str) -> str:
    if name and not os.environ.get(name):
        raise click.BadParameter(f"the variable {name} is not set", param_hint="--key-env")
    return os.environ.get(name, "") if name else ""


def _format_announcement(address: str, model: str, api: str | None, tokens: int) -> str:
    return (
        f"vtc: asks {address} about itself, then {model or 'the first model that it lists'} for short answers"
        f"{f' in {api}' if api else ''}:\n"
        f"vtc: at most {MOST_REQUESTS} requests, {tokens} tokens each, temperature 0; one prompt has about 6,000 "
        "tokens. The tools are made up, and no call is carried out."
    )


def _head(seen: ProbeRecord) -> str:
    kind = f"{seen.kind or 'a server'} {seen.server.version}".strip()
    asked = f"vtc probe {seen.server.url} --model {seen.server.model}"
    return f"Written by `{asked}` on {datetime.now(UTC):%Y-%m-%d}; {kind}.\nBehind each key stands what was seen."


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show on a terminal how far it is; what is printed is left alone."""
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    shown = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with shown:
        task = shown.add_task("", total=MOST_REQUESTS)

        def show(question: str) -> None:
            shown.update(task, advance=1, description=question)

        yield show
