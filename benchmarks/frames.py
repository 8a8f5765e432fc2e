"""Frames of a reply through `Stream.feed`, without a proxy: microseconds of CPU a frame, by shape of reply.

It takes seconds, and shows what changed. Inside mitmproxy the same code runs cold and costs two to four times as much,
so the targets are those of `proxy`. As a process of its own (`python -m benchmarks.frames`) it answers each line that
names a shape with a line of JSON, `{"us": 1.27}`; so two versions of `vtc` can be compared in one run.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import repeat
from pathlib import Path
from unittest.mock import patch

from benchmarks import exchange, samples
from benchmarks.figures import Figure, interleaved, ratios
from benchmarks.proxy.processes import ROOT, Process, cpus, running
from benchmarks.samples import SHAPES, Shape
from vtc.apis.relay import Relay
from vtc.exchange import Stream
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.profiles import Planner, Settings, builtin_directory, load
from vtc.wire import Frame

FRAMES = 8000
GROUP = "frames: Stream.feed alone, a frame"
WORKER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import vtc
sys.path[0] = sys.argv[2]
runpy.run_module("benchmarks.frames", run_name="__main__")
"""
"""Takes `vtc` from one folder and the benchmarks from another, so that both versions are given the same."""


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
    """Measure this version and that of another folder, both at the same time on one CPU."""
    with ExitStack() as stack:
        on, _ = cpus()
        theirs, ours = (
            stack.enter_context(running([sys.executable, "-P", "-c", WORKER, str(root), str(ROOT)], on))
            for root in (other, ROOT)
        )

        def ask(process: Process, shape: str) -> float:
            return float(process.ask(shape)["us"])

        with ThreadPoolExecutor(2) as at_once:
            for name, shape in SHAPES.items():
                list(at_once.map(ask, (theirs, ours), repeat(name)))
                pairs = [[*at_once.map(ask, (theirs, ours), repeat(name))] for _ in range(rounds)]
                before, after = ([pair[side] for pair in pairs] for side in (0, 1))
                note = f"{statistics.median(after):.2f} / {statistics.median(before):.2f} us"
                yield Figure(f"{GROUP}, this / {other.name}", shape.what, "x", ratios(after, before), note=note)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps({"us": per_frame(json.loads(line))}), flush=True)
