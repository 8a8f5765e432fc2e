"""Frames of a reply through `Stream.feed`, without a proxy: microseconds of CPU a frame, by shape of reply.

It takes seconds, and shows what changed. Inside mitmproxy the same code runs cold and costs two to four times as much,
so the targets are those of `proxy`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

from benchmarks import exchange, samples, versions
from benchmarks.figures import Figure, interleaved
from benchmarks.samples import SHAPES, Shape
from vtc.apis.relay import Relay
from vtc.exchange import Stream
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.profiles import Planner, Settings, builtin_directory, load
from vtc.wire import Frame

FRAMES = 8000
GROUP = "frames: Stream.feed alone, a frame"


@cache
def planner() -> Planner:
    return Planner(load([builtin_directory(), samples.PROFILES]), Settings())


@cache
def chunks(shape: str) -> Sequence[bytes]:
    return SHAPES[shape].chunks(FRAMES)


def stream(shape: Shape) -> Stream:
    """Open an exchange up to its reply."""
    body = exchange.encoded(samples.asked(shape))
    return exchange.opened(planner(), body, shape.path).stream()


def per_frame(shape: str) -> float:
    """Measure microseconds of CPU a frame, the end of the reply included."""
    one, given = stream(SHAPES[shape]), chunks(shape)
    started = time.process_time()
    for chunk in given:
        one.feed(chunk)
    one.finish()
    return (time.process_time() - started) / FRAMES * 1e6


def frames_read(shape: str) -> int:
    """Count the frames that do not take the fast path. It is the same in every run."""
    count, feed = 0, Relay.feed

    def counted(relay: Relay[ReplyPipeline], frame: Frame) -> list[bytes]:
        nonlocal count
        count += 1
        return feed(relay, frame)

    with patch.object(Relay, "feed", counted):
        per_frame(shape)
    return count


def figures(rounds: int) -> Iterator[Figure]:
    """Measure all shapes in turn."""
    read = {name: frames_read(name) for name in SHAPES}  # it also compiles
    measured = interleaved([*SHAPES], per_frame, rounds)
    for (name, shape), times in zip(SHAPES.items(), measured, strict=True):
        yield Figure(
            GROUP, shape.what, "us", times, note=f"{read[name]} of {FRAMES} read", details={"read": read[name]}
        )


def compared(rounds: int, other: Path) -> Iterator[Figure]:
    """Measure this version and that of another folder."""
    rows = {name: (GROUP, shape.what) for name, shape in SHAPES.items()}
    return versions.compared("benchmarks.frames", rows, "us", rounds, other)


if __name__ == "__main__":
    versions.answer(per_frame)
