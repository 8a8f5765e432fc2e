"""The command `vtc probe`: test how a model server handles tools, and write profiles for it."""

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
from vtc.cli.probing.bounded_asker import BY_USER, MAX_PROBE_REQUESTS, BoundedAsker
from vtc.profiles.schema import API_NAMES
from vtc.proxy import launch
from vtc.proxy.trust import Trust
from vtc.scrub import escape_invisible, scrub_data

if TYPE_CHECKING:
    from vtc.cli.probing.probe import ProbeRecord

TOTAL_TIME_FACTOR = 10
"""Time limit of all answers together, as a multiple of the limit of one."""


@click.command(short_help="Test how a model server handles tools.")
@click.argument("url", metavar="URL")
@click.option("--model", default="", help="The model to test (default: the first that the server lists).")
@click.option(
    "--api", type=click.Choice(API_NAMES), help="The API to use (default: the first that the server supports)."
)
@click.option(
    "--server",
    default="",
    help="The server profile, if it is not recognised.",
    shell_complete=complete_names("servers"),
)
@click.option("--key-env", default="", metavar="NAME", help="The environment variable that contains the server's key.")
@click.option(
    "--write",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the proposed profiles.",
)
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=60, show_default=True, help="Time limit of one answer, in seconds."
)
@click.option(
    "--tokens", type=click.IntRange(16), default=1024, show_default=True, help="Maximum number of tokens of one answer."
)
@trust_settings
@profile_directories
@json_output
def probe(
    url: str,
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
    """Test how the model server at URL handles tools, and print the command that runs VTC in front of it.

    Sends at most 30 requests with made-up, harmless tools; no call of the model is executed. --write writes two
    profiles, for the model and for its server, in which comments state the observation behind each key. Exits with 1 if
    an agent will not work with the printed command.
    """
    from vtc.cli.probing import report  # imported here because these modules load tables that only a probe needs
    from vtc.cli.probing.probe import Probe

    profiles = load_profiles(directories)
    if server and server not in profiles.servers:
        raise click.BadParameter(f"there is no server {server!r}; `vtc profiles` lists them", param_hint="--server")
    address, key = _parse_address(url), _read_key(key_env)
    click.echo(_format_announcement(address, model, api, tokens), err=True)
    with _show_progress() as show_question:
        asker = BoundedAsker(
            address,
            key=key,
            seconds=timeout,
            total_seconds=TOTAL_TIME_FACTOR * timeout,
            progress=show_question,
            trust=Trust.from_settings(sets),
        )
        record = Probe(asker, profiles, tokens).run(model=model, chosen_apis=(api,) if api else (), server_name=server)
    # The proposed profiles are not written if the user stopped the probe, because it may be incomplete.
    files: list[Path] = []
    if directory and record.proposal and record.stopped != BY_USER:
        files = record.proposal.write(directory, _format_header(record), asker.secrets)
    folders = [*directories, *([directory] if directory and files else [])]
    proposed = report.build_options(
        record, folders, server=server, api=api or "", key_env=key_env, is_written=bool(files)
    )
    proposed += launch.format_sets(sets)
    clients = report.format_clients(record, proposed, profiles.agents.values(), key_env)
    findings = scrub_data(
        report.build_json(record, report.format_command(record, proposed), files, clients), asker.secrets
    )
    if as_json:
        show_json(findings)
    else:
        report.print_report(escape_invisible(findings))
    sys.exit(0 if record.decide_verdict()[0] else 1)


def _parse_address(text: str) -> str:
    """Normalize the URL of a server. Raises `click.BadParameter` if it contains credentials."""
    if "@" in text:
        raise click.BadParameter("leave out user and password; give the key with --key-env", param_hint="URL")
    return normalize_url(text, "URL")


def _read_key(name: str) -> str:
    """Return the key in this environment variable; empty without a name. Raises `click.BadParameter` if it is unset."""
    if name and not os.environ.get(name):
        raise click.BadParameter(f"the environment variable {name} is not set", param_hint="--key-env")
    return os.environ.get(name, "") if name else ""


def _format_announcement(address: str, model: str, api: str | None, tokens: int) -> str:
    return (
        f"vtc: asks {address} about itself, then {model or 'the first model that it lists'} for short answers"
        f"{f' in {api}' if api else ''}:\n"
        f"vtc: at most {MAX_PROBE_REQUESTS} requests, {tokens} tokens each, temperature 0; one prompt has about 6,000 "
        "tokens. The tools are made up, and no call is executed."
    )


def _format_header(record: ProbeRecord) -> str:
    kind = f"{record.kind or 'a server'} {record.server.version}".strip()
    command = f"vtc probe {record.server.url} --model {record.server.model}"
    return f"Written by `{command}` on {datetime.now(UTC):%Y-%m-%d}; {kind}.\nComments state the observations."


@contextmanager
def _show_progress() -> Iterator[Callable[[str], None]]:
    """Show the progress on a terminal, on standard error; yield a function that records the next question."""
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with progress:
        task = progress.add_task("", total=MAX_PROBE_REQUESTS)

        def show(question: str) -> None:
            progress.update(task, advance=1, description=question)

        yield show
