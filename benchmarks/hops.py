"""Count the functions of `vtc` that process a chunk, and their files.

This is the path that a reader of the code has to follow; it is the same in every run. Generator expressions and
comprehensions do not count, because they are read in place; neither do calls inside msgspec, json and re. A return is a
call into a file that appeared earlier in the path, but not immediately before. Caches are cleared, so that earlier work
has no effect, and then warmed: every chunk is processed once before it is counted.

The limits are the lowest counts reached so far. They may only fall, and `make test` fails above them.
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

PACKAGE = str(Path(vtc.__file__).parent) + "/"
GROUP = "hops: calls of functions inside vtc"


class Hop(NamedTuple):
    """One call; `depth` is the number of functions of `vtc` among its callers."""

    file: str
    line: int
    name: str
    depth: int


class Limits(NamedTuple):
    """Counts of calls, files and returns to a file, or the limits of these counts."""

    calls: int
    files: int
    returns: int


@dataclass(frozen=True, slots=True)
class Case:
    """Chunks whose hops are counted after other chunks; `limits` are by API."""

    label: str
    before: Sequence[str]
    """Texts of the preceding frames."""
    texts: Sequence[str]
    limits: Mapping[str, Limits]
    ends: bool = False
    """True if the reply ends after them; then the hops of its end also count."""


CHAT, OLLAMA = "chat completions", "Ollama"
APIS = {CHAT: "plain", OLLAMA: "ollama"}
"""Shape of the replies, by API."""
TEXT = ("It", " works", ",", " but")
ARGUMENTS = {"path": "src/a.py", "content": samples.repeat_text(samples.LINE, 64)}
CALL = f"<tool_call>\n{json.dumps({'name': 'write_file', 'arguments': ARGUMENTS})}\n</tool_call>"
"""A call in hermes's dialect."""
CASES = (
    Case("fast path: ` word`", TEXT, [" word"], {CHAT: Limits(2, 2, 0), OLLAMA: Limits(3, 2, 0)}),
    Case("fast path: a newline, which is buffered", TEXT, ["\n"], dict.fromkeys(APIS, Limits(3, 2, 0))),
    Case("slow path: ` a < b`", TEXT, [" a < b"], {CHAT: Limits(23, 10, 6), OLLAMA: Limits(29, 11, 9)}),
    Case(
        "slow path: ` a <b> c`, which may be a call",
        TEXT,
        [" a <b> c"],
        {CHAT: Limits(34, 13, 7), OLLAMA: Limits(40, 14, 10)},
    ),
    Case(
        "slow path: ` a < b` and the buffered newline before it",
        (*TEXT, "\n"),
        [" a < b"],
        {CHAT: Limits(46, 12, 15), OLLAMA: Limits(57, 13, 22)},
    ),
    Case(
        "the second of two chunks of a call (hermes)",
        ("I will write it.", "\n\n", CALL[:-8]),
        [CALL[-8:]],
        {CHAT: Limits(74, 29, 21), OLLAMA: Limits(79, 29, 26)},
    ),
    Case(
        "a call (hermes) in pieces of four characters, and the end of the reply",
        ("I will write it.", "\n\n"),
        samples.split_pieces(CALL),
        {CHAT: Limits(885, 39, 463), OLLAMA: Limits(898, 40, 468)},
        ends=True,
    ),
    Case(
        "1,000 frames of Markdown",
        (),
        samples.repeat_tokens(samples.ANSWER, 1000),
        {CHAT: Limits(4389, 18, 3261), OLLAMA: Limits(5462, 25, 3420)},
    ),
)
MAX_TRACED_CHUNKS = 100
"""Maximum chunks of a case whose calls are printed; the calls of longer cases are only counted."""


def record_hops(stream: Stream, chunks: Sequence[bytes], *, ends: bool = False) -> list[Hop]:
    """Return the calls for chunks in order and, if `ends`, for the end of the reply."""
    hops: list[Hop] = []
    seen: set[FrameType] = set()  # resuming a generator is no new call

    def record_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or frame in seen or not code.co_filename.startswith(PACKAGE):
            return
        seen.add(frame)
        if code.co_name != "<genexpr>":
            hops.append(
                Hop(
                    code.co_filename.removeprefix(PACKAGE), code.co_firstlineno, code.co_qualname, _count_callers(frame)
                )
            )

    sys.setprofile(record_call)
    try:
        for chunk in chunks:
            stream.feed(chunk)
        if ends:
            stream.finish()
    finally:
        sys.setprofile(None)
    return hops


def _count_callers(frame: FrameType) -> int:
    depth, caller = 0, frame.f_back
    while caller:
        depth += caller.f_code.co_filename.startswith(PACKAGE)
        caller = caller.f_back
    return depth


def count_returns(hops: Sequence[Hop]) -> int:
    """Count the calls that return to an earlier file."""
    count, seen, last = 0, set[str](), ""
    for hop in hops:
        count += hop.file != last and hop.file in seen
        seen.add(hop.file)
        last = hop.file
    return count


@cache
def record_cases() -> Mapping[str, tuple[Case, list[Hop]]]:
    """Record the hops of every case, for each API."""
    COMPILED_PATTERNS.clear()
    TRIE_BUDGET.drop_all()
    return {
        f"{api}, {case.label}": (case, _record_case(SHAPES[name], case)) for api, name in APIS.items() for case in CASES
    }


def _record_case(shape: Shape, case: Case) -> list[Hop]:
    """Record the hops of a case in its second run, when the caches are warm."""
    texts = [*case.before, *case.texts]
    is_lines = shape.media_type != "text/event-stream"
    chunks = samples.make_ollama_lines(texts) if is_lines else samples.make_reply(texts)
    end = len(chunks) - (1 if is_lines else 2)
    start = end - len(case.texts)
    hops: list[Hop] = []
    for _ in range(2):
        stream = frames.open_stream(shape)
        for chunk in chunks[:start]:
            stream.feed(chunk)
        hops = record_hops(stream, chunks[start:] if case.ends else chunks[start:end], ends=case.ends)
    return hops


def count_hops(hops: Sequence[Hop]) -> Limits:
    """Count calls, files and returns."""
    return Limits(len(hops), len({hop.file for hop in hops}), count_returns(hops))


def measure() -> Iterator[Figure]:
    """Count calls, files and returns for each case."""
    for label, (case, hops) in record_cases().items():
        count, limits = count_hops(hops), case.limits[label.partition(",")[0]]
        details: dict[str, float] = dict(count._asdict())
        yield Figure(GROUP, f"{label}: calls", "", [count.calls], limits.calls, details=details)
        yield Figure(GROUP, f"{label}: files", "", [count.files], limits.files)
        yield Figure(GROUP, f"{label}: returns", "", [count.returns], limits.returns)


def format_trace() -> str:
    """Format the calls of each case in order, indented by depth."""
    lines = []
    for label, (case, hops) in record_cases().items():
        count = count_hops(hops)
        lines.append(f"\n{label}: {count.calls} calls in {count.files} files, {count.returns} returns to a file")
        for number, hop in enumerate(hops if len(case.texts) <= MAX_TRACED_CHUNKS else (), 1):
            lines.append(f"  {number:3}  {f'{hop.file}:{hop.line}':<40} {'  ' * hop.depth}{hop.name}")
    return "\n".join(lines)
