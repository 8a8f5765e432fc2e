"""A session at a glance: exchanges over time, their calls, what prompts kept, time in VTC; and two texts side by side.

Geometry and rows, as plain data. A template draws it as SVG (`vtc/proxy/page.html`), and escapes what it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from statistics import median
from typing import NamedTuple

WIDTH, HEIGHT = 480, 64
"""Of the plane that a chart is drawn on, in units of its own: it is as wide as there is room."""
BINS = 48
"""Spans of time of a session that is shown; each is a bar."""
GAP = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One exchange; `tone` is how it ended, as one of a few words that stand for colours."""

    at: float
    """Seconds since the epoch."""
    tone: str
    made: int = 0
    """Calls that needed no repair."""
    repaired: int = 0
    refused: int = 0
    """What looked like calls and stayed text."""
    kept: int = 0
    """Characters of the prompt before it that it kept, and those it lost."""
    lost: int = 0
    seconds: float = 0.0
    """Time in VTC."""


class Part(NamedTuple):
    """A piece of a bar, by its upper edge and its height."""

    tone: str
    y: float
    height: float


class Bar(NamedTuple):
    """A span of time: pieces from the bottom up."""

    x: float
    width: float
    parts: tuple[Part, ...]
    told: Mapping[str, float]
    """By tone; what to say of it."""
    since: float
    until: float


class Chart(NamedTuple):
    """One figure over time; `top` is what the full height stands for, `sums` are of the whole session, by tone."""

    name: str
    bars: tuple[Bar, ...]
    top: float
    sums: Mapping[str, float]


TONES = ("quiet", "good", "mended", "warn", "bad")
"""From the bottom of a bar up."""


def charts(samples: Sequence[Sample]) -> list[Chart]:
    """Draw what there is; a chart without anything to show is left out."""
    if not samples:
        return []
    spans = _spans(samples)
    every = (
        _chart("exchanges", spans, lambda samples: Counter(sample.tone for sample in samples)),
        _chart("calls", spans, _calls),
        _chart("prompts", spans, _prompt, share=True),
        _chart("time in VTC", spans, _time),
    )
    return [chart for chart in every if chart.bars]


class _Span(NamedTuple):
    number: int
    since: float
    until: float
    samples: list[Sample]


def _spans(samples: Sequence[Sample]) -> list[_Span]:
    """Spans of equal length, from the first exchange to the last."""
    first, last = min(sample.at for sample in samples), max(sample.at for sample in samples)
    length = (last - first) / BINS or 1 / BINS
    spans = [_Span(n, first + n * length, first + (n + 1) * length, []) for n in range(BINS)]
    for sample in samples:
        spans[min(BINS - 1, int((sample.at - first) / length))].samples.append(sample)
    return spans


def _chart(
    name: str,
    spans: Sequence[_Span],
    figures_of: Callable[[Sequence[Sample]], Mapping[str, float]],
    *,
    share: bool = False,
) -> Chart:
    """Draw a bar for each span; with `share` all are of full height, and show how their parts share it."""
    figured = [(span, figures) for span in spans if sum((figures := figures_of(span.samples)).values())]
    top = max((sum(figures.values()) for _, figures in figured), default=0)
    bars = tuple(_bar(span, figures, sum(figures.values()) if share else top) for span, figures in figured)
    return Chart(name, bars, top, figures_of([sample for span in spans for sample in span.samples]))


def _bar(span: _Span, figures: Mapping[str, float], top: float) -> Bar:
    width = WIDTH / BINS
    parts = tuple(_parts(figures, top))
    return Bar(round(span.number * width, 2), round(width - GAP, 2), parts, figures, span.since, span.until)


def _parts(figures: Mapping[str, float], top: float) -> Iterator[Part]:
    y = float(HEIGHT)
    for tone in TONES:
        if value := figures.get(tone, 0):
            height = max(1.0, value / top * HEIGHT)  # a single one of thousands is still seen
            y = max(0.0, y - height)
            yield Part(tone, round(y, 2), round(height, 2))


def _calls(samples: Sequence[Sample]) -> Mapping[str, float]:
    return {
        "good": sum(sample.made for sample in samples),
        "mended": sum(sample.repaired for sample in samples),
        "warn": sum(sample.refused for sample in samples),
    }


def _prompt(samples: Sequence[Sample]) -> Mapping[str, float]:
    return {"good": sum(sample.kept for sample in samples), "warn": sum(sample.lost for sample in samples)}


def _time(samples: Sequence[Sample]) -> Mapping[str, float]:
    """Take the median, in milliseconds: the first exchange with a model takes far longer than the others."""
    return {"quiet": median(sample.seconds for sample in samples) * 1e3 if samples else 0.0}


# Two texts beside each other, line by line, for people to see what changed.


LONG = 2_000
"""Lines of both together beyond which lines that often occur are not looked for: that would take seconds."""


class SideBySideRow(NamedTuple):
    """A line of each; None where the other's line has no counterpart."""

    left: str | None
    right: str | None
    changed: bool


def rows(left: Sequence[str], right: Sequence[str]) -> list[SideBySideRow]:
    """Pair the lines: equal ones beside each other, and in between what one or the other has."""
    matcher = SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > LONG)
    table: list[SideBySideRow] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        pairs = zip_longest(left[a:b], right[c:d])
        table += [SideBySideRow(before, after, tag != "equal") for before, after in pairs]
    return table
