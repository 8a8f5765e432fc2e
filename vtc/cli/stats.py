"""`vtc stats`: the figures of a log of exchanges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from vtc.cli.common import json_output, show_json, show_table
from vtc.proxy.stats import Calls, Figures, Stats


@click.command(short_help="Count a log of exchanges.")
@click.argument("logs", nargs=-1, required=True, type=click.File(encoding="utf-8"))
@json_output
def stats(logs: tuple[Any, ...], as_json: bool) -> None:
    """Count the exchanges in LOGS, the files of the option `vtc_log` (`-`: standard input)."""
    found, number = Stats(), 0
    for log in logs:
        for number, line in enumerate(log, 1):
            try:
                entry = json.loads(line)
                if entry["outcome"] != "left alone":
                    found.add(entry)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise click.ClickException(f"{log.name}:{number}: no line of a log that `vtc_log` wrote") from None
    if not number:
        raise click.ClickException(f"no exchange in {', '.join(log.name for log in logs)}")
    if as_json:
        show_json(found.as_dict())
        return
    for kind, figures in (("client", found.clients), ("model", found.models)):
        _show_exchanges(kind, {**figures, "all": found.total})
    _show_calls(found.dialects)


def _show_exchanges(kind: str, figures: Mapping[str, Figures]) -> None:
    heads = (kind, "exchanges", "calls", "repaired", "as text", "failed", "kB", "ms in VTC", "prompt kept")
    rows = []
    for name, one in figures.items():
        counts = (one.exchanges, one.calls, one.repaired, one.refused, one.failed)
        rows.append(
            (name, *map(str, counts), f"{one.traffic / 1000:.1f}", f"{one.seconds * 1e3:.0f}", _share(one.prompt_kept))
        )
    show_table(heads, rows, figures=True)


def _share(of: float | None) -> str:
    return "" if of is None else f"{of:.0%}"


def _show_calls(figures: Mapping[str, Calls]) -> None:
    rows = []
    for name, one in sorted(figures.items()):
        repairs = ", ".join(f"{repair} {count}" for repair, count in one.repairs.most_common())
        rows.append((name, str(one.calls), str(one.repaired), str(one.refused), repairs))
    show_table(("dialect", "calls", "repaired", "as text", "repairs"), rows)
