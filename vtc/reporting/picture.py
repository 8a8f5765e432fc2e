"""A session at a glance: exchanges over time, their calls, what prompts kept, time in VTC; and two conversations side
by side.

Geometry and rows, as plain data. A template draws it as SVG (`vtc/proxy/page.html`), and escapes what it writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from statistics import median
from typing import NamedTuple

from vtc.reporting.transcript import TOOLS_TITLE, TranscriptBlock, render_blocks

CHART_WIDTH, CHART_HEIGHT = 480, 64
"""Of the plane that a chart is drawn on, in units of its own: it is as wide as there is room."""
SPAN_COUNT = 48
"""Spans of time of a session that is shown; each is a bar."""
BAR_GAP = 1


type Kinds = Mapping[str, str]
"""The kinds of what is counted, in the words for people and from the bottom of a bar up, each with its tone: one of a
few words that stand for colours."""

CALL_KINDS: Kinds = {"without repair": "good", "repaired": "mended", "left as text": "warn", "unread": "warn"}
PROMPT_KINDS: Kinds = {"usable": "good", "computed again": "warn"}
TIME_KINDS: Kinds = {"median": "quiet"}


@dataclass(frozen=True, slots=True)
class ExchangeSample:
    """One exchange; `outcome` is how it ended."""

    at: float
    """Seconds since the epoch."""
    outcome: str
    made: int = 0
    """Calls that needed no repair."""
    repaired: int = 0
    refused: int = 0
    """What looked like calls and stayed text."""
    unread: int = 0
    """Replies with what may be a call that was not read."""
    kept: int = 0
    """Characters of the prompt before it that it kept, and those it lost."""
    lost: int = 0
    seconds: float = 0.0
    """Time in VTC."""


class BarSegment(NamedTuple):
    """A piece of a bar, by its upper edge and its height."""

    tone: str
    y: float
    height: float


class Bar(NamedTuple):
    """A span of time: pieces from the bottom up."""

    x: float
    width: float
    segments: tuple[BarSegment, ...]
    figures: Mapping[str, float]
    """By kind; what to say of it."""
    since: float
    until: float


class Chart(NamedTuple):
    """One figure over time; `top` is what the full height stands for, `sums` are of the whole session, by kind."""

    name: str
    kinds: Kinds
    bars: tuple[Bar, ...]
    top: float
    sums: Mapping[str, float]


def draw_charts(samples: Sequence[ExchangeSample], outcomes: Kinds) -> list[Chart]:
    """Draw what there is; a chart without anything to show is left out."""
    if not samples:
        return []
    spans = _split_time(samples)
    every = (
        _draw_chart("exchanges", outcomes, spans, lambda samples: Counter(sample.outcome for sample in samples)),
        _draw_chart("calls", CALL_KINDS, spans, _count_calls),
        _draw_chart("prompt cache", PROMPT_KINDS, spans, _sum_prompts, share=True),
        _draw_chart("time in VTC", TIME_KINDS, spans, _compute_median_time),
    )
    return [chart for chart in every if chart.bars]


class _Span(NamedTuple):
    number: int
    since: float
    until: float
    samples: list[ExchangeSample]


def _split_time(samples: Sequence[ExchangeSample]) -> list[_Span]:
    """Spans of equal length, from the first exchange to the last."""
    first, last = min(sample.at for sample in samples), max(sample.at for sample in samples)
    length = (last - first) / SPAN_COUNT or 1 / SPAN_COUNT
    spans = [_Span(n, first + n * length, first + (n + 1) * length, []) for n in range(SPAN_COUNT)]
    for sample in samples:
        spans[min(SPAN_COUNT - 1, int((sample.at - first) / length))].samples.append(sample)
    return spans


def _draw_chart(
    name: str,
    kinds: Kinds,
    spans: Sequence[_Span],
    figures_of: Callable[[Sequence[ExchangeSample]], Mapping[str, float]],
    *,
    share: bool = False,
) -> Chart:
    """Draw a bar for each span; with `share` all are of full height, and show how their parts share it."""
    figured = [(span, figures) for span in spans if sum((figures := figures_of(span.samples)).values())]
    top = max((sum(figures.values()) for _, figures in figured), default=0)
    bars = tuple(_draw_bar(span, kinds, figures, sum(figures.values()) if share else top) for span, figures in figured)
    return Chart(name, kinds, bars, top, figures_of([sample for span in spans for sample in span.samples]))


def _draw_bar(span: _Span, kinds: Kinds, figures: Mapping[str, float], top: float) -> Bar:
    width = CHART_WIDTH / SPAN_COUNT
    parts = tuple(_stack_segments(kinds, figures, top))
    return Bar(round(span.number * width, 2), round(width - BAR_GAP, 2), parts, figures, span.since, span.until)


def _stack_segments(kinds: Kinds, figures: Mapping[str, float], top: float) -> Iterator[BarSegment]:
    y = float(CHART_HEIGHT)
    for kind, tone in kinds.items():
        if value := figures.get(kind, 0):
            height = max(1.0, value / top * CHART_HEIGHT)  # a single one of thousands is still seen
            y = max(0.0, y - height)
            yield BarSegment(tone, round(y, 2), round(height, 2))


def _count_calls(samples: Sequence[ExchangeSample]) -> Mapping[str, float]:
    return {
        "without repair": sum(sample.made for sample in samples),
        "repaired": sum(sample.repaired for sample in samples),
        "left as text": sum(sample.refused for sample in samples),
        "unread": sum(sample.unread for sample in samples),
    }


def _sum_prompts(samples: Sequence[ExchangeSample]) -> Mapping[str, float]:
    return {"usable": sum(sample.kept for sample in samples), "computed again": sum(sample.lost for sample in samples)}


def _compute_median_time(samples: Sequence[ExchangeSample]) -> Mapping[str, float]:
    """Take the median, in milliseconds: the first exchange with a model takes far longer than the others."""
    return {"median": median(sample.seconds for sample in samples) * 1e3 if samples else 0.0}


# Two conversations beside each other, line by line, for people to see what changed. What both have stands there once,
# and of what is long the beginning.


MAX_EXACT_LINES = 2_000
"""Lines of both together beyond which lines that often occur are not looked for: that would take seconds."""
FIRST_BLOCKS, LAST_BLOCKS = 3, 3
"""Messages that are shown of many that stayed the same."""


class SideBySideRow(NamedTuple):
    """A line of each; None where the other's line has no counterpart."""

    left: str | None
    right: str | None
    changed: bool


def pair_lines(left: Sequence[str], right: Sequence[str]) -> list[SideBySideRow]:
    """Pair the lines: equal ones beside each other, and in between what one or the other has."""
    matcher = SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > MAX_EXACT_LINES)
    table: list[SideBySideRow] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        pairs = zip_longest(left[a:b], right[c:d])
        table += [SideBySideRow(before, after, tag != "equal") for before, after in pairs]
    return table


class FoldedText(NamedTuple):
    """A text of which the first lines are shown at once."""

    shown: str
    rest: str = ""
    """What a reader unfolds."""
    label: str = ""
    """What to call that: `12 more lines`."""


class Passage(NamedTuple):
    """What both sides have, which is told once, as `left`; or what each has in the place of the other's."""

    changed: bool
    left: FoldedText | None
    right: FoldedText | None = None


def pair_passages(
    received: Sequence[TranscriptBlock], sent: Sequence[TranscriptBlock], most: int, most_same: int
) -> list[Passage]:
    """Set two conversations beside each other; `most` lines of a text are shown, `most_same` if both have it."""
    out: list[Passage] = []
    for tag, a, b, c, d in SequenceMatcher(None, received, sent, autojunk=False).get_opcodes():
        if tag == "equal":
            out += [Passage(False, text) for text in _fold_equal_blocks(received[a:b], most_same)]
        else:
            out += _pair_changed_blocks(received[a:b], sent[c:d], most, most_same)
    return out


def _fold_equal_blocks(blocks: Sequence[TranscriptBlock], most: int) -> Iterator[FoldedText]:
    between = blocks[FIRST_BLOCKS : len(blocks) - LAST_BLOCKS]
    for block in blocks if len(between) < 2 else blocks[:FIRST_BLOCKS]:
        yield fold_text(str(block), 1 if block.title == TOOLS_TITLE else most + 1)
    if len(between) < 2:
        return
    yield FoldedText("", "\n\n".join(map(str, between)), f"{len(between)} more messages")
    yield from _fold_equal_blocks(blocks[-LAST_BLOCKS:], most)


def _pair_changed_blocks(
    received: Sequence[TranscriptBlock], sent: Sequence[TranscriptBlock], most: int, most_same: int
) -> Iterator[Passage]:
    """Pair the lines of messages that are not the same on both sides; tools are no message, and told in short."""
    tools = [[block for block in blocks if block.title == TOOLS_TITLE] for blocks in (received, sent)]
    texts = [[block for block in blocks if block.title != TOOLS_TITLE] for blocks in (received, sent)]
    for (left, right), limit in ((texts, most), (tools, 1)):
        paired = pair_lines(render_blocks(left).splitlines(), render_blocks(right).splitlines())
        for changed, run in groupby(paired, lambda row: row.changed):
            several = [*run]
            before = _join_lines([row.left for row in several], limit if changed else min(limit, most_same))
            yield Passage(changed, before, _join_lines([row.right for row in several], limit) if changed else None)


def _join_lines(lines: Sequence[str | None], most: int) -> FoldedText | None:
    """Put the lines of one side together; None if it has none."""
    own = [line for line in lines if line is not None]
    return fold_text("\n".join(own), most) if own else None


def fold_text(text: str, most: int) -> FoldedText:
    """Fold what follows the first lines of a text, unless it is little."""
    lines = text.split("\n")
    if len(lines) <= most + 2:
        return FoldedText(text)
    rest = lines[most:]
    return FoldedText("\n".join(lines[:most]), "\n".join(rest), f"{len(rest)} more lines")
