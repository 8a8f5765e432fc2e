"""Find the regular expressions of VTC that take more than linear time: `python -m tests.expressions` prints them.

All expressions that `re.compile` and `regex.compile` (and `re.search(…)` and similar functions) create for a module of
`vtc` are recorded while all modules are imported, all dialects compiled and all recorded replies read. Each expression
then searches repetitions of its own literals. An expression that is safe only because of its use has a comment at its
definition, and the recording shows if the comment is wrong:

    # used with match              it is tried at one position of a text, not at each
    # used as recorded             it is tried with the method and arguments of each recorded use
    # for at most N characters     no text that it is given is longer
"""

from __future__ import annotations

import importlib
import linecache
import pkgutil
import re
import re._parser as parser  # type: ignore[import-not-found]
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise, product
from re import _constants as ops  # type: ignore[attr-defined]
from types import FrameType
from typing import Any
from zlib import crc32

import regex

USED_WITH_MATCH = re.compile(r"# used with match\b|\bre\.(?:full)?match\(|\)\.(?:full)?match$")
AT_MOST = re.compile(r"# for at most ([\d,]+) characters\b")
SIZES = (1 << 10, 1 << 12, 1 << 14)
"""Lengths of the texts in characters, each four times the one before; the second is tried first."""
SLOW_SECONDS = 0.001
"""CPU time for the second length below which growth is not measured: a linear search takes a tenth of it."""
MAX_GROWTH = 8
"""Factor by which the time may grow between two lengths: linear growth is 4, quadratic 16."""
METHODS = {"search", "match", "fullmatch"}
MAX_UNITS = 12
MAX_SECONDS = 5


class Recorded:
    """A compiled expression that records the methods it is used with and the length of its longest text."""

    def __init__(self, compiled: Any, place: str, source: str) -> None:
        self.compiled = compiled
        self.place = place
        self.source = source
        self.used: set[str] = set()
        self.longest = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)

    def _record_use(self, method: str, text: Any, pos: int = 0, endpos: int = sys.maxsize) -> None:
        self.used.add(method)
        self.longest = max(self.longest, min(len(text), endpos) - pos)

    def search(self, string: Any, *place: int, **more: Any) -> Any:
        self._record_use("search", string, *place)
        return self.compiled.search(string, *place, **more)

    def match(self, string: Any, *place: int, **more: Any) -> Any:
        self._record_use("match", string, *place)
        return self.compiled.match(string, *place, **more)

    def fullmatch(self, string: Any, *place: int, **more: Any) -> Any:
        self._record_use("fullmatch", string, *place)
        return self.compiled.fullmatch(string, *place, **more)

    def finditer(self, string: Any, *place: int, **more: Any) -> Any:
        self._record_use("search", string, *place)
        return self.compiled.finditer(string, *place, **more)

    def findall(self, string: Any, *place: int, **more: Any) -> Any:
        self._record_use("search", string, *place)
        return self.compiled.findall(string, *place, **more)

    def split(self, string: Any, *count: int, **more: Any) -> Any:
        self._record_use("search", string)
        return self.compiled.split(string, *count, **more)

    def sub(self, new: Any, string: Any, *count: int, **more: Any) -> Any:
        self._record_use("search", string)
        return self.compiled.sub(new, string, *count, **more)

    def subn(self, new: Any, string: Any, *count: int, **more: Any) -> Any:
        self._record_use("search", string)
        return self.compiled.subn(new, string, *count, **more)

    @property
    def at_most(self) -> int:
        """Maximum length of the expression's texts in characters, according to its comment."""
        comment = AT_MOST.search(self.source)
        return int(comment[1].replace(",", "")) if comment else sys.maxsize

    @property
    def by_match(self) -> bool:
        """True if the expression is tried at one position only."""
        return USED_WITH_MATCH.search(self.source) is not None


RECORDED: dict[tuple[Any, int, str], Recorded] = {}


def _find_vtc_frame() -> FrameType | None:
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__", "").partition(".")[0] in (
        "re",
        "regex",
        "_regex_core",
        "functools",
        __name__,
    ):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame if frame.f_globals.get("__name__", "").partition(".")[0] == "vtc" else None


def _read_source(frame: FrameType) -> str:
    """Return the source lines, with comments, of the call that compiles an expression."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    lines = linecache.getlines(frame.f_code.co_filename)[(positions[0] or 1) - 1 : positions[1] or 1]
    return "".join(lines).strip()


def start_recording() -> None:
    """Record all expressions that are compiled for VTC from now on."""
    for module in (re, sys.modules[regex.compile.__module__]):
        setattr(module, "_compile", _wrap_compile(getattr(module, "_compile")))  # noqa: B009, B010


def _wrap_compile(compiling: Callable[..., Any]) -> Callable[..., Any]:
    def compile_recorded(pattern: Any, *arguments: Any, **more: Any) -> Any:
        if isinstance(pattern, Recorded):
            return pattern
        compiled, frame = compiling(pattern, *arguments, **more), _find_vtc_frame()
        if frame is None or isinstance(pattern, (re.Pattern, regex.Pattern)):
            return compiled
        place = f"{frame.f_globals['__name__']}:{frame.f_lineno}"
        key = (compiled.pattern, compiled.flags, place)
        if key not in RECORDED:
            RECORDED[key] = Recorded(compiled, place, _read_source(frame))
        return RECORDED[key]

    return compile_recorded


def load_all() -> None:
    """Import all modules, compile all dialects, and read the recorded replies."""
    import vtc

    for module in pkgutil.walk_packages(vtc.__path__, "vtc."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from tests.dialects.material import CASES, cases

    for path in sorted((CASES / "reading").glob("*.yaml")):
        for case in cases(path.stem):
            case.read([case.text])
            case.read(case.text)


# Texts that an expression searches.


def _sample(tree: Any) -> str:
    """Return the shortest text that a part of an expression matches."""
    text = ""
    for op, value in tree:
        match op:
            case ops.LITERAL:
                text += chr(value)
            case ops.NOT_LITERAL:
                text += "!" if value != ord("!") else "a"
            case ops.ANY:
                text += "a"
            case ops.IN:
                text += _members(value)[0]
            case ops.BRANCH:
                text += _sample(value[1][0])
            case ops.SUBPATTERN:
                text += _sample(value[3])
            case ops.ATOMIC_GROUP:
                text += _sample(value)
            case ops.MAX_REPEAT | ops.MIN_REPEAT | ops.POSSESSIVE_REPEAT:
                text += _sample(value[2]) * value[0]
            case _:
                pass
    return text


_CATEGORIES = {ops.CATEGORY_SPACE: " \n", ops.CATEGORY_WORD: "a", ops.CATEGORY_DIGIT: "1"}
_OTHERS = "a1 \n<\"'\\{}`!"


def _members(parts: Any) -> str:
    """Return characters of a set."""
    if parts and parts[0][0] is ops.NEGATE:
        taken = _members(parts[1:])
        return "".join(each for each in _OTHERS if each not in taken) or "\u00e9"
    found = ""
    for op, value in parts:
        match op:
            case ops.LITERAL:
                found += chr(value)
            case ops.RANGE:
                found += chr(value[0])
            case ops.CATEGORY:
                found += _CATEGORIES.get(value, "!<")
    return found


def _iterate_parts(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the parts of an expression that can be repeated in a text, each with the literal text before it."""
    run = ""
    for op, value in tree:
        if op is ops.LITERAL:
            run += chr(value)
            continue
        if run:
            yield before, run
            before, run = before + run, ""
        match op:
            case ops.MAX_REPEAT | ops.MIN_REPEAT | ops.POSSESSIVE_REPEAT:
                yield from _iterate_parts(value[2], before)
                if unit := _sample(value[2]):
                    yield before, unit
            case ops.SUBPATTERN:
                yield from _iterate_parts(value[3], before)
            case ops.ATOMIC_GROUP:
                yield from _iterate_parts(value, before)
            case ops.ASSERT | ops.ASSERT_NOT:
                yield from _iterate_parts(value[1], before)
            case ops.BRANCH:
                for branch in value[1]:
                    yield from _iterate_parts(branch, before)
            case ops.IN:
                yield from ((before, each) for each in _members(value)[:6])
            case ops.ANY:
                yield before, "a"
        before += _sample([(op, value)])
    if run:
        yield before, run


def make_texts(pattern: str, flags: int) -> Iterator[Callable[[int], str]]:
    """Yield functions that make a text of a given size: a possible beginning, a repeated part, and an end without a
    match.
    """
    try:
        found = [*_iterate_parts(parser.parse(pattern, flags & ~re.DEBUG & 0x1FF))]
    except (re.error, ValueError):  # valid for `regex` only
        found = [("", part) for part in re.findall(r"\w+|[^\w\\]", pattern)]
    units = {unit for _, unit in found} | {head + unit for head, unit in found}
    longest = sorted(units, key=lambda unit: (-len(unit), unit))
    short = sorted((unit for unit in units if len(unit) <= 2), key=lambda unit: (-len(unit), unit))
    chosen = [*dict.fromkeys((*longest[:MAX_UNITS], *short[:MAX_UNITS], " ", "\n", "a"))]
    heads = [*dict.fromkeys(("", *sorted((head for head, _ in found), key=len, reverse=True)[:2]))]
    for head, unit in dict.fromkeys(
        (*found, *product(heads, chosen), *(("", a + b) for a, b in product(short[:6], short[:6])))
    ):
        for tail in ("!", '"'):
            yield lambda size, head=head, unit=unit, tail=tail: head + (unit * (size // len(unit) + 1))[:size] + tail


# Growth of the time.


def measure_seconds(work: Callable[[], object], times: int) -> float:
    """Return the CPU time of this thread for the fastest of some runs."""
    best = float("inf")
    for _ in range(times):
        begun = time.thread_time()
        work()
        best = min(best, time.thread_time() - begun)
    return best


def describe_growth(run: Callable[[Any], object], make: Callable[[int], Any], limit: int) -> str:
    """Describe how the time grows with the text, or return an empty string if it grows slowly enough."""
    sizes = [size for size in SIZES if size <= limit]
    if len(sizes) < 2:
        return ""
    for counts in ((1, 1), (9, 5, 2)):  # most are fast, or grow slowly, in one run
        times = [measure_seconds(partial(run, make(size)), count) for size, count in zip(sizes, counts, strict=False)]
        if any(many < max(SLOW_SECONDS, MAX_GROWTH * few) for few, many in pairwise(times)):
            return ""
    text = make(SIZES[1])
    measured = ", ".join(f"{took * 1000:.2f} ms for {size}" for took, size in zip(times, SIZES, strict=False))
    return f"{measured} characters: {text[:40]!r}…{text[-1:]!r}"


@contextmanager
def limit_seconds(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after the given seconds of CPU time."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def find_slowness(one: Recorded) -> str:
    """Describe why an expression is too slow, or return an empty string."""
    text = one.compiled.pattern
    is_bytes = isinstance(text, bytes)
    methods = one.used & METHODS if "# used as recorded" in one.source else set()
    methods = methods or {"search"}
    if one.by_match:
        if "search" in one.used:
            return "used with search, which its definition denies"
        methods = one.used & {"match", "fullmatch"} or {"match", "fullmatch"}
    if one.longest > one.at_most:
        return f"used on a text of {one.longest} characters, which its definition denies"
    pattern = text.decode("latin-1") if is_bytes else text
    for make, method in product(make_texts(pattern, one.compiled.flags), sorted(methods)):
        run = getattr(one.compiled, method)
        made = (lambda size, make=make: make(size).encode("utf-8", "replace")) if is_bytes else make
        try:
            with limit_seconds(MAX_SECONDS):
                if why := describe_growth(run, made, one.at_most):
                    return why
        except TimeoutError:
            return f"no end in {MAX_SECONDS} s: {make(60)!r}"
    return ""


def main(one_in: int) -> None:
    """Print each expression that is too slow, of one in `one_in`, always the same."""
    start_recording()
    load_all()
    for one in [*RECORDED.values()]:
        if crc32(repr(one.compiled.pattern).encode()) % one_in:
            continue
        if why := find_slowness(one):
            sys.stdout.write(f"{one.place}: {why}\n    {str(one.compiled.pattern)[:200]}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
