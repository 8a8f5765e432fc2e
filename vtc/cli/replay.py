"""`vtc replay`: what today's profiles make of what was captured. Nothing leaves the machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from vtc.cli.common import (
    add_forcing_options,
    build_planner,
    build_settings,
    complete_names,
    profile_directories,
    read_text,
)
from vtc.profiles.planner import Planner
from vtc.reporting import parse_cases


@click.command(short_help="Show what changes in captured exchanges.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@profile_directories
@click.option("--model", help="The model profile.", shell_complete=complete_names("models"))
@add_forcing_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object an exchange or case.")
def replay(file: Path, directories: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Run captured exchanges through today's profiles and show what changes.

    FILE holds flows that mitmproxy saved (`mitmdump -w FILE`, or mitmweb's File, Save), a HAR file, or cases that
    `vtc.save` wrote (.yaml). Each flow is replayed with the options that it was captured with, but for those given
    here, and with your profiles only if --profiles names them. Ends with 1 if anything changes, or nothing is found.
    """
    plans = build_planner(directories, build_settings(**options))
    try:
        results = _cases(file, plans) if file.suffix in (".yaml", ".yml") else _flows(file, plans)
        counts = dict.fromkeys(("same", "changed", "skipped"), 0)
        for result in results:
            counts[result["result"]] += 1
            _show(result, as_json)
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from None
    if not any(counts.values()):
        raise click.ClickException(f"{file}: no exchange with a model in it")
    if not as_json:
        click.echo(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit(1 if counts["changed"] else 0)


def _flows(file: Path, plans: Planner) -> Iterator[dict[str, Any]]:
    from vtc.proxy import flows, replaying  # mitmproxy takes a second to load

    console = Console(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        progress.open(file, "rb", description="replaying") as opened,
    ):
        for flow in flows.load_flows(opened):
            if flows.find_client_api(flow):
                yield replaying.replay_flow(flow, plans)


def _cases(file: Path, plans: Planner) -> Iterator[dict[str, Any]]:
    for kept in parse_cases(read_text(file)):
        events = kept.read_events([kept.text], kept.resolve_dialects(plans.profiles), kept.resolve_tools())
        changes = kept.list_differences(events)
        yield {"name": kept.name, "result": "changed" if changes else "same", "changes": changes}


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    colour = {"same": "green", "changed": "red", "skipped": "yellow"}[result["result"]]
    reason = f": {result['reason']}" if result.get("reason") else ""
    click.echo(click.style(f"{result['result']:8}", fg=colour) + result["name"] + reason)
    for change in result.get("changes", ()):
        for line in change.splitlines():
            fg = {"+": "green", "-": "red"}.get(line[:1])
            click.secho(f"    {line}", fg=fg)
