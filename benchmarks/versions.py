"""Compare two versions of `vtc`: each in a separate process, both at the same time on one CPU."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

from benchmarks.figures import Figure, compute_ratios
from benchmarks.proxy.processes import ROOT, Process, choose_cpus, run_process

WORKER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import vtc
sys.path[0] = sys.argv[2]
runpy.run_module(sys.argv[3], run_name="__main__")
"""
"""A program that imports `vtc` from one folder and the benchmarks from another; both versions get the same input."""


def serve_measurements(measure: Callable[[str], float]) -> None:
    """Serve one of the two processes: each line of input names a row to measure."""
    for line in sys.stdin:
        print(json.dumps({"took": measure(json.loads(line))}), flush=True)


def compare_versions(
    module: str, rows: Mapping[str, tuple[str, str]], unit: str, rounds: int, other: Path
) -> Iterator[Figure]:
    """Compare this version with that of another folder.

    `module` is a benchmark that calls `serve_measurements`; `rows` are the group and the label of each of its rows.
    """
    with ExitStack() as stack:
        cpus, _ = choose_cpus()
        theirs, ours = (
            stack.enter_context(run_process([sys.executable, "-P", "-c", WORKER, str(root), str(ROOT), module], cpus))
            for root in (other, ROOT)
        )

        def ask(process: Process, name: str) -> float:
            return float(process.ask(name)["took"])

        with ThreadPoolExecutor(2) as at_once:
            for name, (group, label) in rows.items():
                list(at_once.map(ask, (theirs, ours), repeat(name)))
                pairs = [[*at_once.map(ask, (theirs, ours), repeat(name))] for _ in range(rounds)]
                before, after = ([pair[side] for pair in pairs] for side in (0, 1))
                note = f"{statistics.median(after):.2f} / {statistics.median(before):.2f} {unit}"
                yield Figure(f"{group}, this / {other.name}", label, "x", compute_ratios(after, before), note=note)
