"""`vtc replay`: process captured exchanges with the current profiles. Nothing is sent over the network."""

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
    build_planner,
    complete_names,
    profile_directories,
    read_text,
)
from vtc.cli.flags import add_flags
from vtc.profiles.planner import Planner
from vtc.reporting import parse_cases


@click.command(short_help="Show how results change for captured exchanges.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@profile_directories
@click.option("--model", help="The model profile.", shell_complete=complete_names("models"))
@add_flags("replay")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each exchange or case.")
def replay(file: Path, directories: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Process captured exchanges with the current profiles and show the changes.

    FILE contains flows that mitmproxy saved (`mitmdump -w FILE`, or mitmweb's File, Save), a HAR file, or cases that
    `vtc.save` wrote (.yaml). Each flow is replayed with the options of its capture, unless they are given here, and
    with your own profiles only if --profiles names them. Exits with 1 if a result changes, or if FILE contains no
    exchange.
    """
    plans = build_planner(directories, **options)
    try:
        results = _replay_cases(file, plans) if file.suffix in (".yaml", ".yml") else _replay_flows(file, plans)
        counts = dict.fromkeys(("same", "changed", "skipped"), 0)
        for result in results:
            counts[result["result"]] += 1
            _show_result(result, as_json)
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from None
    if not any(counts.values()):
        raise click.ClickException(f"{file}: the file contains no exchange with a model")
    if not as_json:
        click.echo(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit(1 if counts["changed"] else 0)


def _replay_flows(file: Path, plans: Planner) -> Iterator[dict[str, Any]]:
    """Replay the exchanges in a file of saved flows; show the progress on a terminal."""
    from vtc.proxy import flows, replaying  # mitmproxy takes a second to load

    console = Console(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        progress.open(file, "rb", description="replaying") as opened,
    ):
        for flow in flows.load_flows(opened):
            if flows.find_client_api(flow):
                yield replaying.replay_flow(flow, plans)


def _replay_cases(file: Path, plans: Planner) -> Iterator[dict[str, Any]]:
    """Parse the text of each case and compare the result with the expected calls."""
    for case in parse_cases(read_text(file)):
        events = case.read_events([case.text], case.resolve_dialects(plans.profiles), case.resolve_tools())
        changes = case.list_differences(events)
        yield {"name": case.name, "result": "changed" if changes else "same", "changes": changes}


def _show_result(result: dict[str, Any], as_json: bool) -> None:
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
