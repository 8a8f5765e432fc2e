"""The way of chunks: how many functions of `vtc` are called, and in how many files.

It counts what a person has to follow, and is the same in every run. Generator expressions and comprehensions are read
where they stand and do not count, nor does what msgspec, json and re do. A return to a file is a call into one that was
left before. Caches are cleared, so that nothing counts what ran before, and then warm: every chunk has been on its way
once before it is counted.

The limits are what was reached last: the figures only fall, and `make test` fails above them.
"""

from __future__ import annotations

import json
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
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.dialects.syntax.scan import TRIE_BUDGET
from vtc.exchange import Stream

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
    """Some chunks, after others; `limits` are those of their way, by API."""

    what: str
    before: Sequence[str]
    """Texts of the frames before them."""
    texts: Sequence[str]
    limits: Mapping[str, Limits]
    ends: bool = False
    """True if the reply ends after them, and its end counts, too."""


CHAT, OLLAMA = "chat completions", "Ollama"
APIS = {CHAT: "plain", OLLAMA: "ollama"}
"""By name, a shape of replies."""
TEXT = ("It", " works", ",", " but")
ARGUMENTS = {"path": "src/a.py", "content": samples.repeated(samples.LINE, 64)}
CALL = f"<tool_call>\n{json.dumps({'name': 'write_file', 'arguments': ARGUMENTS})}\n</tool_call>"
"""A call in hermes's dialect."""
CASES = (
    Case("fast path: ` word`", TEXT, [" word"], {CHAT: Limits(2, 2, 0), OLLAMA: Limits(3, 2, 0)}),
    Case("fast path: a newline, which waits", TEXT, ["\n"], dict.fromkeys(APIS, Limits(3, 2, 0))),
    Case("slow path: ` a < b`", TEXT, [" a < b"], {CHAT: Limits(23, 10, 6), OLLAMA: Limits(29, 11, 9)}),
    Case(
        "slow path: ` a <b> c`, which may be a call",
        TEXT,
        [" a <b> c"],
        {CHAT: Limits(34, 13, 7), OLLAMA: Limits(40, 14, 10)},
    ),
    Case(
        "slow path: ` a < b` and the newline before it, which waited",
        (*TEXT, "\n"),
        [" a < b"],
        {CHAT: Limits(46, 12, 15), OLLAMA: Limits(57, 13, 22)},
    ),
    Case(
        "delivers a call (hermes) that came in two chunks",
        ("I will write it.", "\n\n", CALL[:-8]),
        [CALL[-8:]],
        {CHAT: Limits(75, 27, 22), OLLAMA: Limits(80, 27, 27)},
    ),
    Case(
        "a call (hermes) in pieces of four characters, and the end of the reply",
        ("I will write it.", "\n\n"),
        samples.pieces(CALL),
        {CHAT: Limits(911, 36, 465), OLLAMA: Limits(922, 36, 470)},
        ends=True,
    ),
    Case(
        "1,000 frames of Markdown",
        (),
        samples.said(samples.ANSWER, 1000),
        {CHAT: Limits(4389, 18, 3261), OLLAMA: Limits(5494, 23, 3419)},
    ),
)
MOST_TRACED = 100
"""Chunks of a case beyond which its way is counted only."""


def way(stream: Stream, chunks: Sequence[bytes], *, ends: bool = False) -> list[Hop]:
    """List the calls that chunks take, in order, and those of the end of the reply."""
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
        for chunk in chunks:
            stream.feed(chunk)
        if ends:
            stream.finish()
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
    """Follow the chunks of every case, for each API."""
    COMPILED_PATTERNS.clear()
    TRIE_BUDGET.drop_all()
    return {f"{api}, {case.what}": (case, _way(SHAPES[name], case)) for api, name in APIS.items() for case in CASES}


def _way(shape: Shape, case: Case) -> list[Hop]:
    """Follow the chunks of a case, when they have been that way before."""
    texts = [*case.before, *case.texts]
    is_lines = shape.media_type != "text/event-stream"
    chunks = samples.lines(texts) if is_lines else samples.reply(texts)
    end = len(chunks) - (1 if is_lines else 2)
    start = end - len(case.texts)
    hops: list[Hop] = []
    for _ in range(2):
        stream = frames.stream(shape)
        for chunk in chunks[:start]:
            stream.feed(chunk)
        hops = way(stream, chunks[start:] if case.ends else chunks[start:end], ends=case.ends)
    return hops


def counted(hops: Sequence[Hop]) -> Limits:
    """Count the calls, the files and the returns of a way."""
    return Limits(len(hops), len({hop.file for hop in hops}), returns(hops))


def figures() -> Iterator[Figure]:
    """Count calls, files and returns for each case."""
    for what, (case, hops) in ways().items():
        count, limits = counted(hops), case.limits[what.partition(",")[0]]
        details: dict[str, float] = dict(count._asdict())
        yield Figure(GROUP, f"{what}: calls", "", [count.calls], limits.calls, details=details)
        yield Figure(GROUP, f"{what}: files", "", [count.files], limits.files)
        yield Figure(GROUP, f"{what}: returns", "", [count.returns], limits.returns)


def trace() -> str:
    """Write the calls of each case in order, indented by how deep they are."""
    lines = []
    for what, (case, hops) in ways().items():
        count = counted(hops)
        lines.append(f"\n{what}: {count.calls} calls in {count.files} files, {count.returns} returns to a file")
        for number, hop in enumerate(hops if len(case.texts) <= MOST_TRACED else (), 1):
            lines.append(f"  {number:3}  {f'{hop.file}:{hop.line}':<40} {'  ' * hop.depth}{hop.name}")
    return "\n".join(lines)
