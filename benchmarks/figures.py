"""Figures of the benchmarks with their targets, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """Samples of one measurement, in `unit`; `target` is their maximum, if there is one."""

    group: str
    label: str
    unit: str
    samples: Sequence[float]
    target: float | None = None
    note: str = ""
    each: bool = False
    """True if each sample must meet the target, instead of their median."""
    details: dict[str, float] = field(default_factory=dict)
    """Medians of the values from which the samples were computed, for the JSON."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """Lower and upper quartile of the samples; the minimum and maximum if there are fewer than four."""
        if len(self.samples) < 4:
            return min(self.samples), max(self.samples)
        low, _, high = statistics.quantiles(self.samples, n=4)
        return low, high

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "ok" if (max(self.samples) if self.each else self.median) <= self.target else "MISSED"

    def as_dict(self) -> dict[str, object]:
        return {
            "group": self.group,
            "what": self.label,
            "unit": self.unit,
            "median": self.median,
            "spread": self.spread,
            "target": self.target,
            "verdict": self.verdict,
            "samples": list(self.samples),
            "details": self.details,
            "note": self.note,
        }


def measure_interleaved[T](sides: Sequence[T], measure: Callable[[T], float], rounds: int) -> list[list[float]]:
    """Measure the sides alternately and return the samples of each.

    Other work of the machine then affects all sides equally. Every other round runs in reverse order, so that no side
    has the advantage of its position.
    """
    samples: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
        for place in order:
            samples[place].append(measure(sides[place]))
    return samples


def compute_ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Divide the samples of two sides, round by round."""
    return [numerator / denominator for numerator, denominator in zip(over, under, strict=True)]


def format_number(value: float) -> str:
    """Format a value with three significant digits, or all digits of its integer part; an integer unchanged."""
    if isinstance(value, int):
        return str(value)
    digits = max(0, 2 - len(str(int(abs(value)))) + 1)
    return f"{value:.{digits}f}"


def format_table(figures: Iterable[Figure]) -> str:
    rows = [("figure", "target", "median", "quartiles", "", "")]
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            rows.append((group, "", "", "", "", ""))
        low, high = figure.spread
        target = "" if figure.target is None else f"<= {format_number(figure.target)}"
        spread = f"{format_number(low)} - {format_number(high)}"
        rows.append(
            (
                f"  {figure.label}",
                target,
                f"{format_number(figure.median)} {figure.unit}",
                spread,
                figure.verdict,
                figure.note,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for label, target, median, spread, verdict, note in rows:
        cells = (label.ljust(widths[0]), target.rjust(widths[1]), median.rjust(widths[2]), spread.rjust(widths[3]))
        lines.append(f"{'  '.join(cells)}  {verdict:<6}  {note}".rstrip())
    return "\n".join(lines)


def write_json(figures: Iterable[Figure], file: Path) -> None:
    machine = {
        "python": platform.python_version(),
        "machine": platform.platform(),
        **{name: version(name) for name in ("mitmproxy", "msgspec")},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"machine": machine, "figures": [figure.as_dict() for figure in figures]}, indent=1) + "\n"
    )
