"""Charts of many exchanges over time, and the side-by-side comparison of two conversations, as plain data.

The charts show exchanges, calls, the use of the prompt cache, and time in VTC. The template
`vtc/proxy/showing/page/page.html` draws them as SVG and escapes all text.
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
"""Size of a chart in units of its SVG view box, which is stretched to the available width."""
SPAN_COUNT = 48
"""Number of time spans in a chart, each of which is one bar."""
BAR_GAP = 1
"""Space between two bars."""


type Kinds = Mapping[str, str]
"""Tones of the counted kinds, by their labels and in the order of a bar's segments from the bottom up. A tone is a word
that denotes a color in the style sheet."""

CALL_KINDS: Kinds = {"without repair": "good", "repaired": "mended", "left as text": "warn", "unread": "warn"}
PROMPT_KINDS: Kinds = {"usable": "good", "computed again": "warn"}
TIME_KINDS: Kinds = {"median": "quiet"}


@dataclass(frozen=True, slots=True)
class ExchangeSample:
    """The figures of one exchange; `outcome` is a label of the exchanges chart."""

    at: float
    """Seconds since the epoch."""
    outcome: str
    made: int = 0
    """Number of calls that needed no repair."""
    repaired: int = 0
    """Number of repaired calls."""
    refused: int = 0
    """Number of texts that began like a call and stayed text."""
    unread: int = 0
    """Number of replies with a possible call that was not read."""
    kept: int = 0
    """Characters of the last prompt that this prompt preserves."""
    lost: int = 0
    """Characters of the last prompt that it does not preserve."""
    seconds: float = 0.0
    """Time in VTC."""


class BarSegment(NamedTuple):
    """A colored segment of a bar; `y` is its upper edge."""

    tone: str
    y: float
    height: float


class Bar(NamedTuple):
    """The bar of one time span; `segments` are ordered from the bottom up."""

    x: float
    width: float
    segments: tuple[BarSegment, ...]
    figures: Mapping[str, float]
    """The counts by kind, for the bar's tooltip."""
    since: float
    until: float


class Chart(NamedTuple):
    """One figure over time; `top` is the value of the full height, `sums` are the totals by kind."""

    name: str
    kinds: Kinds
    bars: tuple[Bar, ...]
    top: float
    sums: Mapping[str, float]


def draw_charts(samples: Sequence[ExchangeSample], outcomes: Kinds) -> list[Chart]:
    """Draw the charts that have at least one bar."""
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
    """Split the time from the first exchange to the last into spans of equal length."""
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
    """Draw a bar for each span; with `share` all bars have full height and their segments show the shares."""
    figures_by_span = [(span, figures_of(span.samples)) for span in spans]
    non_empty = [(span, figures) for span, figures in figures_by_span if sum(figures.values())]
    top = max((sum(figures.values()) for _, figures in non_empty), default=0)
    bars = tuple(
        _draw_bar(span, kinds, figures, sum(figures.values()) if share else top) for span, figures in non_empty
    )
    return Chart(name, kinds, bars, top, figures_of([sample for span in spans for sample in span.samples]))


def _draw_bar(span: _Span, kinds: Kinds, figures: Mapping[str, float], top: float) -> Bar:
    width = CHART_WIDTH / SPAN_COUNT
    parts = tuple(_stack_segments(kinds, figures, top))
    return Bar(round(span.number * width, 2), round(width - BAR_GAP, 2), parts, figures, span.since, span.until)


def _stack_segments(kinds: Kinds, figures: Mapping[str, float], top: float) -> Iterator[BarSegment]:
    y = float(CHART_HEIGHT)
    for kind, tone in kinds.items():
        if value := figures.get(kind, 0):
            height = max(1.0, value / top * CHART_HEIGHT)  # so that one of thousands is still visible
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
    """Compute the median in milliseconds, because the first exchange with a model takes far longer than the others."""
    return {"median": median(sample.seconds for sample in samples) * 1e3 if samples else 0.0}


# Side-by-side comparison of two conversations. Equal passages appear once, and long texts are folded.


MAX_EXACT_LINES = 2_000
"""Number of lines of both texts beyond which frequent lines are not matched, because that would take seconds."""
FIRST_BLOCKS, LAST_BLOCKS = 3, 3
"""Number of messages that are shown at the start and the end of a long run of equal messages."""


class SideBySideRow(NamedTuple):
    """A pair of lines; None if the other line has no counterpart."""

    left: str | None
    right: str | None
    changed: bool


def pair_lines(left: Sequence[str], right: Sequence[str]) -> list[SideBySideRow]:
    """Pair equal lines with each other, and the changed lines between them in order."""
    matcher = SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > MAX_EXACT_LINES)
    rows: list[SideBySideRow] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        pairs = zip_longest(left[a:b], right[c:d])
        rows += [SideBySideRow(before, after, tag != "equal") for before, after in pairs]
    return rows


class FoldedText(NamedTuple):
    """A text whose first lines are shown, and whose rest can be unfolded."""

    shown: str
    rest: str = ""
    label: str = ""
    """Label of the rest: `12 more lines`."""


class Passage(NamedTuple):
    """A pair of differing texts, or a text that is equal on both sides, which is only `left`."""

    changed: bool
    left: FoldedText | None
    right: FoldedText | None = None


def pair_passages(
    received: Sequence[TranscriptBlock], sent: Sequence[TranscriptBlock], max_lines: int, max_equal_lines: int
) -> list[Passage]:
    """Pair the passages of two conversations.

    At most `max_lines` lines of a differing text are shown unfolded, and `max_equal_lines` of an equal one.
    """
    out: list[Passage] = []
    for tag, a, b, c, d in SequenceMatcher(None, received, sent, autojunk=False).get_opcodes():
        if tag == "equal":
            out += [Passage(False, text) for text in _fold_equal_blocks(received[a:b], max_equal_lines)]
        else:
            out += _pair_changed_blocks(received[a:b], sent[c:d], max_lines, max_equal_lines)
    return out


def _fold_equal_blocks(blocks: Sequence[TranscriptBlock], max_lines: int) -> Iterator[FoldedText]:
    """Fold long blocks, and the middle of a long run of blocks."""
    between = blocks[FIRST_BLOCKS : len(blocks) - LAST_BLOCKS]
    for block in blocks if len(between) < 2 else blocks[:FIRST_BLOCKS]:
        yield fold_text(str(block), 1 if block.title == TOOLS_TITLE else max_lines + 1)
    if len(between) < 2:
        return
    yield FoldedText("", "\n\n".join(map(str, between)), f"{len(between)} more messages")
    yield from _fold_equal_blocks(blocks[-LAST_BLOCKS:], max_lines)


def _pair_changed_blocks(
    received: Sequence[TranscriptBlock], sent: Sequence[TranscriptBlock], max_lines: int, max_equal_lines: int
) -> Iterator[Passage]:
    """Pair the lines of differing messages, and then those of the tools, of which only one line is shown unfolded."""
    tools = [[block for block in blocks if block.title == TOOLS_TITLE] for blocks in (received, sent)]
    texts = [[block for block in blocks if block.title != TOOLS_TITLE] for blocks in (received, sent)]
    for (left, right), limit in ((texts, max_lines), (tools, 1)):
        paired = pair_lines(render_blocks(left).splitlines(), render_blocks(right).splitlines())
        for changed, group in groupby(paired, lambda row: row.changed):
            rows = [*group]
            before = _join_lines([row.left for row in rows], limit if changed else min(limit, max_equal_lines))
            yield Passage(changed, before, _join_lines([row.right for row in rows], limit) if changed else None)


def _join_lines(lines: Sequence[str | None], max_lines: int) -> FoldedText | None:
    """Join the lines of one side; None if it has none."""
    present = [line for line in lines if line is not None]
    return fold_text("\n".join(present), max_lines) if present else None


def fold_text(text: str, max_lines: int) -> FoldedText:
    """Fold the text after its first `max_lines` lines, unless at most two lines follow."""
    lines = text.split("\n")
    if len(lines) <= max_lines + 2:
        return FoldedText(text)
    rest = lines[max_lines:]
    return FoldedText("\n".join(lines[:max_lines]), "\n".join(rest), f"{len(rest)} more lines")
