"""The reader alone: microseconds a delta, by dialect and size of a call, and on prose.

Deltas are four characters, and the end of the reply is part of the time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import batched

from benchmarks import samples
from benchmarks.figures import Figure
from benchmarks.samples import TOOLS
from vtc.dialects import Description, Reader, compile_grammar

GROUP = "engine: one reader"
SMALL, CALL, LARGE = 8 << 10, 64 << 10, 4 << 20
SIZES = (SMALL, CALL, 1 << 20)
SLICES = 16
"""Of the largest call."""


def per_delta(deltas: Sequence[str], reader: Callable[[], Reader]) -> float:
    """Microseconds of CPU a delta, end of the reply included."""
    one = reader()
    started = time.process_time()
    for delta in deltas:
        one.feed(delta)
    one.finish()
    return (time.process_time() - started) / len(deltas) * 1e6


def reader(*dialects: Description) -> Callable[[], Reader]:
    """Makes readers; the expressions that every reply needs are compiled."""
    grammar = compile_grammar(dialects)
    return lambda: Reader(grammar, TOOLS, max_call_bytes=1 << 30)


def of_call(dialect: Description, size: int, rounds: int) -> float:
    deltas = samples.pieces(samples.call_of(size, dialect))
    new = reader(dialect)
    return statistics.median(per_delta(deltas, new) for _ in range(rounds))


def growth(dialect: Description) -> tuple[float, float]:
    """Microseconds a delta of a call of 4 MB, and of calls of 8 KB that are read in between, slice by slice: what the
    machine does meanwhile falls on both.
    """
    large, small = (samples.pieces(samples.call_of(size, dialect)) for size in (LARGE, SMALL))
    new = reader(dialect)
    one, seconds, others = new(), 0.0, []
    for part in batched(large, len(large) // SLICES + 1):
        started = time.process_time()
        for delta in part:
            one.feed(delta)
        seconds += time.process_time() - started
        others += [per_delta(small, new) for _ in range(SLICES // 4)]
    started = time.process_time()
    one.finish()
    seconds += time.process_time() - started
    return seconds / len(large) * 1e6, statistics.mean(others)


def figures(dialects: Mapping[str, Description], rounds: int, *, largest: Sequence[str]) -> Iterator[Figure]:
    """A call by dialect and size, then prose. Of one size a figure's samples are the dialects; `largest` names those
    that also read the sizes which take seconds.
    """
    known = sorted(dialects.values(), key=lambda one: one.name)
    medians: dict[int, dict[str, float]] = {size: {} for size in SIZES}
    for dialect in known:
        of_call(dialect, SMALL, 1)  # compiles
        for size in SIZES if dialect.name in largest else (SMALL, CALL):
            medians[size][dialect.name] = of_call(dialect, size, rounds if size <= CALL else 1)
    for size, by_name in medians.items():
        yield _of_dialects(f"a call of {size >> 10} KB, a delta", by_name, "us", 5.0 if size == CALL else None)
    grown = {name: growth(dialects[name]) for name in largest}
    yield _of_dialects(
        f"a call of {LARGE >> 10} KB, a delta", {name: one for name, (one, _) in grown.items()}, "us", None
    )
    yield _of_dialects(
        "a delta at 4 MB / at 8 KB", {name: one / other for name, (one, other) in grown.items()}, "x", 1.2
    )
    framed = reader(*(one.rescued for one in known if one.rescued))
    answer = samples.said(samples.ANSWER, 20_000)
    prose = samples.pieces(samples.repeated(samples.PROSE, 20_000 * samples.PIECE))
    for what, deltas in (("what models say, as tokens", answer), ("prose full of markup, in fours", prose)):
        per_delta(deltas[:100], framed)
        times = [per_delta(deltas, framed) for _ in range(rounds)]
        yield Figure(GROUP, f"{what}, every framed dialect armed, a delta", "us", times, 2.0)
    whole = samples.repeated(samples.PROSE, 100 << 10)
    times = [per_delta([whole], framed) / 1e3 for _ in range(rounds)]
    yield Figure(GROUP, "100 KB of such prose at once", "ms", times)
    longer = samples.repeated(samples.PROSE, LARGE)
    grown_by = per_delta([longer], framed) / 1e3 / statistics.median(times) * len(whole) / len(longer)
    yield Figure(GROUP, f"a character of it, {LARGE >> 20} MB at once / 100 KB at once", "x", [grown_by], 1.5)


def _of_dialects(what: str, by_name: dict[str, float], unit: str, target: float | None) -> Figure:
    """The target is for every dialect, so the slowest is named."""
    slowest = max(by_name, key=lambda name: by_name[name])
    note = f"most: {slowest} {by_name[slowest]:.2f}"
    if target is not None and (over := sorted(name for name in by_name if by_name[name] > target)):
        note = f"{note}; over the target: {', '.join(over)}"
    what = f"{what} ({len(by_name)} dialects)"
    return Figure(GROUP, what, unit, list(by_name.values()), target, note, each=True, details=by_name)
