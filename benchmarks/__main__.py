"""Run all benchmarks or some: `python -m benchmarks [--quick] [--against FOLDER] [--trace] [SECTION …]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import engine, exchange, figures, frames, hops, hostile, rejections
from benchmarks.figures import Figure
from benchmarks.proxy import exchanges
from vtc.profiles import builtin_directory, load_profiles

QUICK_LARGE_DIALECTS = ("bare-json", "hermes", "invoke", "pythonic", "qwen3-coder", "tag")
"""One dialect of each family; `--quick` measures the largest calls in them only."""


EPILOG = """\
sections, in the order of their cost:
  hops     number of functions and files that process a chunk; a second
  rejections  share of the reported rejections that are not fixed; five seconds
  frames   microseconds per frame of Stream.feed alone, by shape of reply; half a minute
  request  decoding, planning and rewriting a long request
  memory   memory of an open stream
  hostile  the longest gap in another client's stream; five minutes
  start    time that VTC adds to the start of mitmdump
  engine   the reader alone, by dialect
  proxy    a real mitmdump with VTC next to one that does nothing; ten minutes

after a change of the reply's path:
  python -m benchmarks hops frames                   the effect on each chunk
  python -m benchmarks --trace                       the functions that process a chunk, in order
  git worktree add ../before main
  python -m benchmarks --against ../before frames    both commits at the same time; also request, proxy
"""
COMPARABLE_SECTIONS = ("proxy", "frames", "request")
"""Sections that can measure two versions in one run."""


def make_sections(quick: bool, against: Path | None = None) -> Mapping[str, Callable[[], Iterator[Figure]]]:
    profiles = load_profiles([builtin_directory()])
    largest = QUICK_LARGE_DIALECTS if quick else tuple(profiles.dialects)
    rounds = 3 if quick else 7

    def measure_requests() -> Iterator[Figure]:
        if against:
            yield from exchange.compare_versions(rounds, against)
            return
        yield from exchange.measure_rewriting(rounds)
        yield from exchange.measure_steps(rounds)
        yield from exchange.measure_new_tools(profiles, rounds)

    return {
        "start": lambda: exchanges.measure_start(rounds),
        "proxy": lambda: iter(exchanges.measure(1 if quick else 4, against)),
        "frames": lambda: frames.compare_versions(rounds, against) if against else frames.measure(rounds),
        "hops": hops.measure,
        "rejections": rejections.measure,
        "hostile": lambda: hostile.measure(rounds),
        "engine": lambda: engine.measure(profiles.dialects, rounds, largest=largest),
        "request": measure_requests,
        "memory": lambda: exchange.measure_memory(profiles, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and the largest calls in a few dialects")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FOLDER",
        help="compare with the VTC of another folder (proxy, frames and request only)",
    )
    parser.add_argument("--trace", action="store_true", help="print the calls of each chunk of `hops` in order")
    parser.add_argument(
        "--json", type=Path, default=Path("build/bench.json"), help="file for the figures as JSON (%(default)s)"
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="sections to run (all); see below")
    arguments = parser.parse_args()
    if arguments.against and not (arguments.against / "addons" / "addon.py").exists():
        parser.error(f"no VTC in {arguments.against}")
    available = make_sections(arguments.quick, arguments.against and arguments.against.resolve())
    chosen = arguments.sections or (
        ["hops"] if arguments.trace else COMPARABLE_SECTIONS if arguments.against else available
    )
    if unknown := set(arguments.sections) - set(available):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(available)}")
    if arguments.against and (unknown := set(chosen) - set(COMPARABLE_SECTIONS)):
        parser.error(f"--against does not support: {', '.join(sorted(unknown))}")
    measured: list[Figure] = []
    started = time.perf_counter()
    try:
        for name in chosen:
            for figure in available[name]():
                measured.append(figure)
                print(
                    f"\r\033[K{time.perf_counter() - started:5.0f} s  {figure.label}",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        _print_results(measured, arguments.json)
    if arguments.trace:
        print(hops.format_trace())
    print(f"\n{time.perf_counter() - started:.0f} s; as JSON in {arguments.json}")


def _print_results(measured: Sequence[Figure], path: Path) -> None:
    """Print the figures and write them as JSON, also when a later measurement failed: some take half an hour."""
    print("\r\033[K", end="", file=sys.stderr)
    print(figures.format_table(measured))
    figures.write_json(measured, path)


if __name__ == "__main__":
    main()
