"""Two versions of `vtc` in one run: each in a process of its own, both at the same time on one CPU."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

from benchmarks.figures import Figure, ratios
from benchmarks.proxy.processes import ROOT, Process, cpus, running

WORKER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import vtc
sys.path[0] = sys.argv[2]
runpy.run_module(sys.argv[3], run_name="__main__")
"""
"""Takes `vtc` from one folder and the benchmarks from another, so that both versions are given the same."""


def answer(measure: Callable[[str], float]) -> None:
    """Answer each line that names what is to be measured, as one of the two processes."""
    for line in sys.stdin:
        print(json.dumps({"took": measure(json.loads(line))}), flush=True)


def compared(module: str, rows: Mapping[str, tuple[str, str]], unit: str, rounds: int, other: Path) -> Iterator[Figure]:
    """Measure this version and that of another folder.

    `module` is a benchmark that answers (`answer`); `rows` are the group and the line of each thing that it measures.
    """
    with ExitStack() as stack:
        on, _ = cpus()
        theirs, ours = (
            stack.enter_context(running([sys.executable, "-P", "-c", WORKER, str(root), str(ROOT), module], on))
            for root in (other, ROOT)
        )

        def ask(process: Process, name: str) -> float:
            return float(process.ask(name)["took"])

        with ThreadPoolExecutor(2) as at_once:
            for name, (group, what) in rows.items():
                list(at_once.map(ask, (theirs, ours), repeat(name)))
                pairs = [[*at_once.map(ask, (theirs, ours), repeat(name))] for _ in range(rounds)]
                before, after = ([pair[side] for pair in pairs] for side in (0, 1))
                note = f"{statistics.median(after):.2f} / {statistics.median(before):.2f} {unit}"
                yield Figure(f"{group}, this / {other.name}", what, "x", ratios(after, before), note=note)
