"""A Markdown table with one row per set-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.tasks.agent import Attempt

COLUMNS = ("set-up", "call", "right", "stray", "solved", "wrong", "tokens", "s")


def format_table(rows: Mapping[str, Sequence[Attempt]]) -> str:
    """Format the table; `rows` are the attempts by set-up."""
    cells = [
        _make_head(next(iter(rows.values()), ())),
        *(_make_row(setup, attempts) for setup, attempts in rows.items()),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    lines = [_format_line(row, widths) for row in cells]
    rule = "|".join("-" * (width + 1) + (":" if column else "-") for column, width in enumerate(widths))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _make_head(attempts: Sequence[Attempt]) -> Sequence[str]:
    """Return the names of the columns with their maxima."""
    needing = sum(attempt.task.needs_tools for attempt in attempts)
    most = {"call": needing, "right": needing, "solved": len(attempts)}
    return [f"{name} /{most[name]}" if name in most else name for name in COLUMNS]


def _make_row(setup: str, attempts: Sequence[Attempt]) -> Sequence[str]:
    needing = [attempt for attempt in attempts if attempt.task.needs_tools]
    counts = (
        sum(attempt.called for attempt in needing),
        sum(attempt.right for attempt in needing),
        sum(attempt.stray for attempt in needing),
        sum(attempt.solved for attempt in attempts),
        sum(attempt.wrong for attempt in attempts),
        sum(attempt.tokens for attempt in attempts),
        round(sum(attempt.seconds for attempt in attempts)),
    )
    return [setup, *map(str, counts)]


def _format_line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *counts = row
    cells = [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(counts, widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"
