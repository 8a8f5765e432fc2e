"""Measure the reader alone: microseconds per delta, by dialect and size of a call, and on prose.

A delta has four characters. The time includes the end of the reply.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import batched

from benchmarks import samples
from benchmarks.figures import Figure
from benchmarks.samples import TOOLS
from vtc.dialects import Description, Reader, ReaderOptions, compile_grammar

GROUP = "engine: one reader"
SMALL_CHARS, CALL_CHARS, LARGE_CHARS = 8 << 10, 64 << 10, 4 << 20
SIZES = (SMALL_CHARS, CALL_CHARS, 1 << 20)
SLICES = 16
"""Parts into which the largest call is divided."""


def measure_delta(deltas: Sequence[str], make_reader: Callable[[], Reader]) -> float:
    """Measure microseconds of CPU per delta, including the end of the reply."""
    reader = make_reader()
    started = time.process_time()
    for delta in deltas:
        reader.feed(delta)
    reader.finish()
    return (time.process_time() - started) / len(deltas) * 1e6


def make_reader_factory(*dialects: Description) -> Callable[[], Reader]:
    """Return a function that makes readers; the patterns that every reply needs are compiled once."""
    grammar = compile_grammar(dialects)
    return lambda: Reader(grammar, TOOLS, ReaderOptions(max_call_bytes=1 << 30))


def measure_call(dialect: Description, size: int, rounds: int) -> float:
    """Measure microseconds per delta of a call with `size` characters of content."""
    deltas = samples.split_pieces(samples.write_call(size, dialect))
    make_reader = make_reader_factory(dialect)
    return statistics.median(measure_delta(deltas, make_reader) for _ in range(rounds))


def measure_growth(dialect: Description) -> tuple[float, float]:
    """Measure microseconds per delta in a call of 4 MB, and in calls of 8 KB.

    Slices of the large call alternate with small calls, so that other work of the machine affects both equally.
    """
    large, small = (samples.split_pieces(samples.write_call(size, dialect)) for size in (LARGE_CHARS, SMALL_CHARS))
    make_reader = make_reader_factory(dialect)
    reader, seconds, small_times = make_reader(), 0.0, []
    for part in batched(large, len(large) // SLICES + 1):
        started = time.process_time()
        for delta in part:
            reader.feed(delta)
        seconds += time.process_time() - started
        small_times += [measure_delta(small, make_reader) for _ in range(SLICES // 4)]
    started = time.process_time()
    reader.finish()
    seconds += time.process_time() - started
    return seconds / len(large) * 1e6, statistics.mean(small_times)


def measure(dialects: Mapping[str, Description], rounds: int, *, largest: Sequence[str]) -> Iterator[Figure]:
    """Measure calls by dialect and size, then prose.

    The samples of a figure are the dialects. `largest` names the dialects that also read the sizes that take seconds.
    """
    ordered = sorted(dialects.values(), key=lambda dialect: dialect.name)
    medians: dict[int, dict[str, float]] = {size: {} for size in SIZES}
    for dialect in ordered:
        measure_call(dialect, SMALL_CHARS, 1)  # warm up: compiles the patterns
        for size in SIZES if dialect.name in largest else (SMALL_CHARS, CALL_CHARS):
            medians[size][dialect.name] = measure_call(dialect, size, rounds if size <= CALL_CHARS else 1)
    for size, by_name in medians.items():
        yield _summarize_dialects(
            f"a call of {size >> 10} KB, a delta", by_name, "us", 5.0 if size == CALL_CHARS else None
        )
    grown = {name: measure_growth(dialects[name]) for name in largest}
    yield _summarize_dialects(
        f"a call of {LARGE_CHARS >> 10} KB, a delta", {name: large for name, (large, _) in grown.items()}, "us", None
    )
    yield _summarize_dialects(
        "a delta at 4 MB / at 8 KB", {name: large / small for name, (large, small) in grown.items()}, "x", 1.2
    )
    make_reader = make_reader_factory(*(dialect.rescued for dialect in ordered if dialect.rescued))
    answer = samples.repeat_tokens(samples.ANSWER, 20_000)
    prose = samples.split_pieces(samples.repeat_text(samples.PROSE, 20_000 * samples.PIECE_CHARS))
    for text, deltas in (("typical answers, as tokens", answer), ("prose full of markup, in fours", prose)):
        measure_delta(deltas[:100], make_reader)
        times = [measure_delta(deltas, make_reader) for _ in range(rounds)]
        yield Figure(GROUP, f"{text}, every framed dialect armed, a delta", "us", times, 2.0)
    whole = samples.repeat_text(samples.PROSE, 100 << 10)
    times = [measure_delta([whole], make_reader) / 1e3 for _ in range(rounds)]
    yield Figure(GROUP, "100 KB of this prose at once", "ms", times)
    longer = samples.repeat_text(samples.PROSE, LARGE_CHARS)
    grown_by = measure_delta([longer], make_reader) / 1e3 / statistics.median(times) * len(whole) / len(longer)
    yield Figure(
        GROUP, f"a character of this prose, {LARGE_CHARS >> 20} MB at once / 100 KB at once", "x", [grown_by], 1.5
    )


def _summarize_dialects(label: str, by_name: dict[str, float], unit: str, target: float | None) -> Figure:
    """Combine the figures of the dialects; the target applies to each, so the note names the slowest."""
    slowest = max(by_name, key=lambda name: by_name[name])
    note = f"most: {slowest} {by_name[slowest]:.2f}"
    if target is not None and (over := sorted(name for name in by_name if by_name[name] > target)):
        note = f"{note}; over the target: {', '.join(over)}"
    label = f"{label} ({len(by_name)} dialects)"
    return Figure(GROUP, label, unit, list(by_name.values()), target, note, each=True, details=by_name)
