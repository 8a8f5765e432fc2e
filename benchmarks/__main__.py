"""All benchmarks, or some: `python -m benchmarks [--quick] [--json FILE] [start|proxy|engine|request|memory …]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import engine, exchange, figures
from benchmarks.figures import Figure
from benchmarks.proxy import exchanges
from vtc.profiles import loader

LARGEST_QUICK = ("bare-json", "hermes", "invoke", "pythonic", "qwen3-coder", "tag")
"""Dialects of every family, for a quick look at what grows."""


def sections(quick: bool) -> Mapping[str, Callable[[], Iterator[Figure]]]:
    profiles = loader.load([loader.builtin_directory()])
    largest = LARGEST_QUICK if quick else tuple(profiles.dialects)
    rounds = 3 if quick else 7

    def requests() -> Iterator[Figure]:
        yield from exchange.rewriting(profiles, rounds)
        yield from exchange.new_tools(profiles, rounds)

    return {
        "start": lambda: exchanges.start(rounds),
        "proxy": lambda: iter(exchanges.figures(1 if quick else 4)),
        "engine": lambda: engine.figures(profiles.dialects, rounds, largest=largest),
        "request": requests,
        "memory": lambda: exchange.memory(profiles, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and the largest calls in a few dialects")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go as JSON")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="start, proxy, engine, request, memory")
    arguments = parser.parse_args()
    known = sections(arguments.quick)
    if unknown := set(arguments.sections) - set(known):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found: list[Figure] = []
    started = time.perf_counter()
    for name in arguments.sections or known:
        for figure in known[name]():
            found.append(figure)
            print(f"\r\033[K{time.perf_counter() - started:5.0f} s  {figure.what}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr)
    print(figures.table(found))
    figures.write(found, arguments.json)
    print(f"\n{time.perf_counter() - started:.0f} s; as JSON in {arguments.json}")


if __name__ == "__main__":
    main()
