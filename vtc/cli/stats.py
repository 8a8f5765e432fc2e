"""`vtc stats`: the figures of a log of exchanges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from vtc.cli.common import json_output, show_json
from vtc.proxy.stats import Calls, Figures, Stats


@click.command(short_help="Count a log of exchanges.")
@click.argument("logs", nargs=-1, required=True, type=click.File(encoding="utf-8"))
@json_output
def stats(logs: tuple[Any, ...], as_json: bool) -> None:
    """Count the exchanges in LOGS, the files of the option `vtc_log` (`-`: standard input)."""
    found = Stats()
    for log in logs:
        for number, line in enumerate(log, 1):
            try:
                entry = json.loads(line)
                if entry.get("client"):  # others were left alone
                    found.add(entry)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise click.ClickException(f"{log.name}:{number}: no line of a log: {error}") from None
    if as_json:
        show_json(found.as_dict())
        return
    console = Console()
    total = Figures.together(found.rows.values())
    for kind, figures in (("client", found.clients), ("model", found.models)):
        console.print(_exchanges(kind, {**figures, "all": total}))
    console.print(_calls(found.dialects))


def _exchanges(kind: str, figures: Mapping[str, Figures]) -> Table:
    table = Table(kind, "exchanges", "calls", "repaired", "left as text", "failed", "bytes", "in VTC")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in figures.items():
        counts = (one.exchanges, one.calls, one.repaired, one.refused, one.failed, one.traffic)
        table.add_row(name, *(f"{count:,}" for count in counts), f"{one.seconds * 1e3:.0f} ms", end_section=False)
    return table


def _calls(figures: Mapping[str, Calls]) -> Table:
    table = Table("dialect", "calls", "repaired", "left as text", "repairs")
    for name, one in sorted(figures.items()):
        repairs = ", ".join(f"{repair} {count}" for repair, count in one.repairs.most_common())
        table.add_row(name, str(one.calls), str(one.repaired), str(one.refused), repairs)
    return table
