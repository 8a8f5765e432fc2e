"""All benchmarks, or some: `python -m benchmarks [--quick] [--against FOLDER] [--trace] [SECTION …]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import engine, exchange, figures, frames, hops, hostile
from benchmarks.figures import Figure
from benchmarks.proxy import exchanges
from vtc.profiles import builtin_directory, load

LARGEST_QUICK = ("bare-json", "hermes", "invoke", "pythonic", "qwen3-coder", "tag")
"""Dialects of every family, for a quick look at what grows."""


EPILOG = """\
sections, in the order of their cost:
  hops     how many functions of how many files a chunk goes through; a second
  frames   microseconds a frame of Stream.feed alone, by shape of reply; half a minute
  request  decoding, deciding about and rewriting a long request
  memory   what an open stream takes
  hostile  the longest gap in another client's stream; five minutes
  start    what VTC adds to the start of mitmdump
  engine   the reader alone, by dialect
  proxy    a real mitmdump with VTC beside one that does nothing; ten minutes

after a change of the reply's way:
  python -m benchmarks hops frames                   what changed?
  python -m benchmarks --trace                       the functions that a chunk goes through, in order
  git worktree add ../before main
  python -m benchmarks --against ../before frames    this commit and that one at the same time; also request, proxy
"""
COMPARED = ("proxy", "frames", "request")
"""Sections that can measure two versions in one run."""


def sections(quick: bool, against: Path | None = None) -> Mapping[str, Callable[[], Iterator[Figure]]]:
    profiles = load([builtin_directory()])
    largest = LARGEST_QUICK if quick else tuple(profiles.dialects)
    rounds = 3 if quick else 7

    def requests() -> Iterator[Figure]:
        if against:
            yield from exchange.compared(rounds, against)
            return
        yield from exchange.rewriting(rounds)
        yield from exchange.steps(rounds)
        yield from exchange.new_tools(profiles, rounds)

    return {
        "start": lambda: exchanges.start(rounds),
        "proxy": lambda: iter(exchanges.figures(1 if quick else 4, against)),
        "frames": lambda: frames.compared(rounds, against) if against else frames.figures(rounds),
        "hops": hops.figures,
        "hostile": lambda: hostile.figures(rounds),
        "engine": lambda: engine.figures(profiles.dialects, rounds, largest=largest),
        "request": requests,
        "memory": lambda: exchange.memory(profiles, 2),
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
        help="compare with the VTC in another folder: proxy, frames and request only",
    )
    parser.add_argument("--trace", action="store_true", help="print the calls of each chunk of `hops`, in order")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go as JSON")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="by default all; see below")
    arguments = parser.parse_args()
    if arguments.against and not (arguments.against / "addons" / "addon.py").exists():
        parser.error(f"there is no VTC in {arguments.against}")
    known = sections(arguments.quick, arguments.against and arguments.against.resolve())
    chosen = arguments.sections or (["hops"] if arguments.trace else COMPARED if arguments.against else known)
    if unknown := set(arguments.sections) - set(known):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if arguments.against and (unknown := set(chosen) - set(COMPARED)):
        parser.error(f"no two versions can be compared by: {', '.join(sorted(unknown))}")
    found: list[Figure] = []
    started = time.perf_counter()
    for name in chosen:
        for figure in known[name]():
            found.append(figure)
            print(f"\r\033[K{time.perf_counter() - started:5.0f} s  {figure.what}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr)
    print(figures.table(found))
    if arguments.trace:
        print(hops.trace())
    figures.write(found, arguments.json)
    print(f"\n{time.perf_counter() - started:.0f} s; as JSON in {arguments.json}")


if __name__ == "__main__":
    main()
