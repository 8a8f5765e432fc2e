"""`vtc stats`: figures of logged exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from vtc.cli.common import json_output, show_json, show_table
from vtc.json_text import decode_json
from vtc.proxy.showing.stats import CallCounts, Figures, Stats
from vtc.reporting.plain import validate_report


@click.command(short_help="Show figures of logged exchanges, by client, model and dialect.")
@click.argument("logs", nargs=-1, required=True, type=click.File(encoding="utf-8"))
@json_output
def stats(logs: tuple[Any, ...], as_json: bool) -> None:
    """Show figures of the exchanges in LOGS, by client, model and dialect.

    LOGS are files that `vtc run --log FILE` wrote (the option `vtc_log`); `-` is standard input.
    """
    stats, number = Stats(), 0
    for log in logs:
        for number, line in enumerate(log, 1):
            try:
                entry = decode_json(line.encode())
                if validate_report(entry) is None:
                    raise ValueError
                if entry["outcome"] != "left alone":
                    stats.add(entry)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise click.ClickException(f"{log.name}:{number}: not a line of a log that `vtc_log` wrote") from None
    if not number:
        raise click.ClickException(f"no exchange in {', '.join(log.name for log in logs)}")
    if as_json:
        show_json(stats.as_dict())
        return
    for kind, figures in (("client", stats.clients), ("model", stats.models)):
        _show_exchanges(kind, {**figures, "all": stats.total})
    _show_calls(stats.dialects)


def _show_exchanges(kind: str, figures: Mapping[str, Figures]) -> None:
    heads = (kind, "exchanges", "calls", "repaired", "as text", "unread", "failed", "kB", "ms in VTC", "cache usable")
    rows = []
    for name, figure in figures.items():
        counts = (figure.exchanges, figure.calls, figure.repaired, figure.refused, figure.unread, figure.failed)
        rows.append(
            (
                name,
                *map(str, counts),
                f"{figure.traffic / 1000:.1f}",
                f"{figure.seconds * 1e3:.0f}",
                _format_share(figure.prompt_kept),
            )
        )
    show_table(heads, rows, figures=True)


def _format_share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _show_calls(figures: Mapping[str, CallCounts]) -> None:
    rows = []
    for name, figure in sorted(figures.items()):
        repairs = ", ".join(f"{repair} {count}" for repair, count in figure.repairs.most_common())
        rows.append((name, str(figure.calls), str(figure.repaired), str(figure.refused), repairs))
    show_table(("dialect", "calls", "repaired", "as text", "repairs"), rows)
