"""The way of one chunk: how many functions of `vtc` are called, and in how many files.

It counts what a person has to follow, and is the same in every run. Generator expressions and comprehensions are read
where they stand and do not count, nor does what msgspec, json and re do. A return to a file is a call into one that was
left before. Caches are warm: every chunk has been on its way once before it is counted.

The limits are what was reached last: the figures only fall, and `make test` fails above them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import vtc
from benchmarks import frames, samples
from benchmarks.figures import Figure
from benchmarks.samples import SHAPES, Shape
from vtc.exchange import Stream
from vtc.profiles import builtin_directory, load

HERE = str(Path(vtc.__file__).parent) + "/"
GROUP = "hops: calls of functions inside vtc"


class Hop(NamedTuple):
    """One call; `depth` is how many functions of `vtc` it is called through."""

    file: str
    line: int
    name: str
    depth: int


class Limits(NamedTuple):
    """The most calls, files and returns to a file that a way may have."""

    calls: int
    files: int
    returns: int


@dataclass(frozen=True, slots=True)
class Case:
    """One chunk, after others; `limits` are those of its way, by API."""

    what: str
    before: Sequence[str]
    """Texts of the frames before it."""
    text: str
    limits: Mapping[str, Limits]


CHAT, OLLAMA = "chat completions", "Ollama"
APIS = {CHAT: "plain", OLLAMA: "ollama"}
"""By name, a shape of replies."""
TEXT = ("It", " works", ",", " but")
CASES = (
    Case("fast path: ` word`", TEXT, " word", {CHAT: Limits(3, 2, 0), OLLAMA: Limits(4, 2, 0)}),
    Case("fast path: a newline, which waits", TEXT, "\n", dict.fromkeys(APIS, Limits(5, 2, 0))),
    Case("slow path: ` a < b`", TEXT, " a < b", {CHAT: Limits(46, 15, 16), OLLAMA: Limits(51, 16, 19)}),
    Case(
        "slow path: ` a < b` and the newline before it, which waited",
        (*TEXT, "\n"),
        " a < b",
        {CHAT: Limits(76, 15, 31), OLLAMA: Limits(79, 16, 38)},
    ),
)
DELIVERS = Case(
    "delivers a call (hermes) that came in two chunks",
    (),
    "",
    {CHAT: Limits(109, 32, 48), OLLAMA: Limits(112, 32, 51)},
)


def way(stream: Stream, chunk: bytes) -> list[Hop]:
    """List the calls that a chunk takes, in order."""
    hops: list[Hop] = []
    seen: set[FrameType] = set()  # a generator that goes on is no new call

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or frame in seen or not code.co_filename.startswith(HERE):
            return
        seen.add(frame)
        if code.co_name != "<genexpr>":
            hops.append(Hop(code.co_filename.removeprefix(HERE), code.co_firstlineno, code.co_qualname, _depth(frame)))

    sys.setprofile(note)
    try:
        stream.feed(chunk)
    finally:
        sys.setprofile(None)
    return hops


def _depth(frame: FrameType) -> int:
    depth, caller = 0, frame.f_back
    while caller:
        depth += caller.f_code.co_filename.startswith(HERE)
        caller = caller.f_back
    return depth


def returns(hops: Sequence[Hop]) -> int:
    """Count the calls into a file that was left before."""
    count, seen, last = 0, set[str](), ""
    for hop in hops:
        count += hop.file != last and hop.file in seen
        seen.add(hop.file)
        last = hop.file
    return count


@cache
def ways() -> Mapping[str, tuple[Case, list[Hop]]]:
    """Follow the chunk of every case, for each API."""
    found: dict[str, tuple[Case, list[Hop]]] = {}
    dialects = load([builtin_directory()]).dialects
    said, gap, call = samples.call_of(64, dialects["hermes"]).partition("\n\n")
    for api, name in APIS.items():
        shape = SHAPES[name]
        for case in CASES:
            chunks = _chunks(shape, [*case.before, case.text])
            found[f"{api}, {case.what}"] = case, _way(shape, chunks, len(chunks) - 1)
        chunks = _chunks(shape, [said, gap, call[:-8], call[-8:]])
        found[f"{api}, {DELIVERS.what}"] = DELIVERS, _way(shape, chunks, _delivering(shape, chunks))
    return found


def _chunks(shape: Shape, texts: Sequence[str]) -> list[bytes]:
    """Write the frames of texts without the reply's end."""
    return samples.reply(texts)[:-2] if shape.media_type == "text/event-stream" else samples.lines(texts)[:-1]


def _delivering(shape: Shape, chunks: Sequence[bytes]) -> int:
    """Find the place of the chunk that lets the call go."""
    stream = frames.stream(shape)
    return next(place for place, chunk in enumerate(chunks) if b'"tool_calls"' in b"".join(stream.feed(chunk)))


def _way(shape: Shape, chunks: Sequence[bytes], place: int) -> list[Hop]:
    """Follow the chunk at a place, when the one before it has been that way."""
    hops: list[Hop] = []
    for _ in range(2):
        stream = frames.stream(shape)
        for chunk in chunks[:place]:
            stream.feed(chunk)
        hops = way(stream, chunks[place])
    return hops


def counted(hops: Sequence[Hop]) -> Limits:
    """Count the calls, the files and the returns of a way."""
    return Limits(len(hops), len({hop.file for hop in hops}), returns(hops))


def figures() -> Iterator[Figure]:
    """Count calls, files and returns for each chunk."""
    for what, (case, hops) in ways().items():
        count, limits = counted(hops), case.limits[what.partition(",")[0]]
        details: dict[str, float] = dict(count._asdict())
        yield Figure(GROUP, f"{what}: calls", "", [count.calls], limits.calls, details=details)
        yield Figure(GROUP, f"{what}: files", "", [count.files], limits.files)
        yield Figure(GROUP, f"{what}: returns", "", [count.returns], limits.returns)


def trace() -> str:
    """Write the calls of each chunk in order, indented by how deep they are."""
    lines = []
    for what, (_, hops) in ways().items():
        count = counted(hops)
        lines.append(f"\n{what}: {count.calls} calls in {count.files} files, {count.returns} returns to a file")
        for number, hop in enumerate(hops, 1):
            lines.append(f"  {number:3}  {f'{hop.file}:{hop.line}':<40} {'  ' * hop.depth}{hop.name}")
    return "\n".join(lines)
