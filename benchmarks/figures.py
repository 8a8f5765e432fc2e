"""What a benchmark measured beside what it should be: one table for people, one JSON for machines."""

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
    """One thing that was measured several times. `samples` are in `unit`; `target` is the most they may be, if any."""

    group: str
    what: str
    unit: str
    samples: Sequence[float]
    target: float | None = None
    note: str = ""
    each: bool = False
    """The target is for each of the samples, and not for their median."""
    details: dict[str, float] = field(default_factory=dict)
    """Medians of what the samples were made of, for the JSON."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the samples; of fewer than four, the least and the greatest."""
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
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "spread": self.spread,
            "target": self.target,
            "verdict": self.verdict,
            "samples": list(self.samples),
            "details": self.details,
            "note": self.note,
        }


def interleaved[T](sides: Sequence[T], measure: Callable[[T], float], rounds: int) -> list[list[float]]:
    """The samples of each side, taken in turn, so that what else the machine does falls on all of them alike.

    Every other round goes backwards: the first of a round is no better off than the last.
    """
    samples: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
        for place in order:
            samples[place].append(measure(sides[place]))
    return samples


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round."""
    return [one / other for one, other in zip(over, under, strict=True)]


def number(value: float) -> str:
    """Write three digits that count, or all before the point; a count as it is."""
    if isinstance(value, int):
        return str(value)
    digits = max(0, 2 - len(str(int(abs(value)))) + 1)
    return f"{value:.{digits}f}"


def table(figures: Iterable[Figure]) -> str:
    rows = [("what", "target", "median", "quartiles", "", "")]
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            rows.append((group, "", "", "", "", ""))
        low, high = figure.spread
        target = "" if figure.target is None else f"<= {number(figure.target)}"
        spread = f"{number(low)} - {number(high)}"
        rows.append(
            (f"  {figure.what}", target, f"{number(figure.median)} {figure.unit}", spread, figure.verdict, figure.note)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for what, target, median, spread, verdict, note in rows:
        cells = (what.ljust(widths[0]), target.rjust(widths[1]), median.rjust(widths[2]), spread.rjust(widths[3]))
        lines.append(f"{'  '.join(cells)}  {verdict:<6}  {note}".rstrip())
    return "\n".join(lines)


def write(figures: Iterable[Figure], file: Path) -> None:
    machine = {
        "python": platform.python_version(),
        "machine": platform.platform(),
        **{name: version(name) for name in ("mitmproxy", "msgspec")},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"machine": machine, "figures": [one.as_dict() for one in figures]}, indent=1) + "\n")
