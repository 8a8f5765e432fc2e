"""Measure `Stream.feed` without a proxy: microseconds of CPU per frame, by shape of reply.

This takes seconds and shows the effect of a change. Inside mitmproxy the same code runs cold and costs two to four
times as much, so the targets are in `proxy`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

from benchmarks import exchange, samples, versions
from benchmarks.figures import Figure, measure_interleaved
from benchmarks.samples import SHAPES, Shape
from vtc.apis.relay import Relay
from vtc.exchange import Stream
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles
from vtc.wire import Frame

FRAMES = 8000
GROUP = "frames: Stream.feed alone, a frame"


@cache
def load_planner() -> Planner:
    return Planner(load_profiles([builtin_directory(), samples.PROFILES]), Settings())


@cache
def make_chunks(shape: str) -> Sequence[bytes]:
    return SHAPES[shape].make_chunks(FRAMES)


def open_stream(shape: Shape) -> Stream:
    """Open an exchange up to its reply."""
    body = exchange.encode_json(samples.make_shape_request(shape))
    return exchange.open_session(load_planner(), body, shape.path).stream()


def measure_frame(shape: str) -> float:
    """Measure microseconds of CPU per frame, including the end of the reply."""
    stream, chunks = open_stream(SHAPES[shape]), make_chunks(shape)
    started = time.process_time()
    for chunk in chunks:
        stream.feed(chunk)
    stream.finish()
    return (time.process_time() - started) / FRAMES * 1e6


def count_parsed_frames(shape: str) -> int:
    """Count the frames that do not take the fast path; the number is the same in every run."""
    count, feed = 0, Relay.feed

    def feed_and_count(relay: Relay[ReplyPipeline], frame: Frame) -> list[bytes]:
        nonlocal count
        count += 1
        return feed(relay, frame)

    with patch.object(Relay, "feed", feed_and_count):
        measure_frame(shape)
    return count


def measure(rounds: int) -> Iterator[Figure]:
    """Measure all shapes alternately."""
    parsed = {name: count_parsed_frames(name) for name in SHAPES}  # warm up: also compiles
    measured = measure_interleaved([*SHAPES], measure_frame, rounds)
    for (name, shape), times in zip(SHAPES.items(), measured, strict=True):
        yield Figure(
            GROUP, shape.label, "us", times, note=f"{parsed[name]} of {FRAMES} parsed", details={"read": parsed[name]}
        )


def compare_versions(rounds: int, other: Path) -> Iterator[Figure]:
    """Compare this version with that of another folder."""
    rows = {name: (GROUP, shape.label) for name, shape in SHAPES.items()}
    return versions.compare_versions("benchmarks.frames", rows, "us", rounds, other)


if __name__ == "__main__":
    versions.serve_measurements(measure_frame)
