"""Patterns of policies (globs, or a regular expression between slashes), and a budget for the work that they cause."""

from __future__ import annotations

import fnmatch
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, Any

import msgspec
import regex

MAX_STEPS = 40_000
"""Steps that the checks of one reply may take, about 0.1 s: a step is one keyword of a schema, or one visited value."""
MAX_EXPRESSION_SECONDS = 0.05
"""Seconds that all regular expressions of one reply may take together."""
MAX_EXPRESSION_CHARS = 2_000
"""Maximum characters of a regular expression in a tool's schema, because compiling takes time, too."""


class TakesTooLongError(Exception):
    """The budget is used up, so the work was abandoned."""

    def __init__(self, what: str = "looking through its arguments") -> None:
        super().__init__(f"{what} takes too long")


_NAMED_ARGUMENTS: dict[object, object] = getattr(sys.modules[regex.compile.__module__], "_named_args", {})
"""A cache that `regex.purge` does not clear."""


class Budget:
    """The steps and the time that remain for checking the calls of one reply.

    A schema or an expression of a few bytes can take years for a value of a few bytes, and all clients share one
    process. Steps are counted, so that results are the same on every machine. Only regular expressions have a time
    limit, because their work cannot be counted. A call beyond the budget cannot be checked, so guards deny it.
    """

    def __init__(self, steps: int = MAX_STEPS, seconds: float = MAX_EXPRESSION_SECONDS) -> None:
        self._steps = steps
        self._seconds = seconds
        self._compiled: dict[str, regex.Pattern[str]] = {}  # not in the module: a client's text

    def spend(self, steps: int = 1) -> None:
        """Use up steps. Raises TakesTooLongError if none remain."""
        self._steps -= steps
        if self._steps < 0:
            raise TakesTooLongError

    def search(self, pattern: str, text: str) -> bool:
        """Return True if an expression matches anywhere in a text. Raises TakesTooLongError."""
        if pattern not in self._compiled:
            self._compiled[pattern] = regex.compile(pattern)
            regex.purge()
            _NAMED_ARGUMENTS.clear()
        return self.run(self._compiled[pattern].search, text) is not None

    def run[Found](self, method: Callable[..., Found], *arguments: Any) -> Found:
        """Call a method of a compiled expression with the remaining time. Raises TakesTooLongError."""
        self.spend()
        if self._seconds <= 0:
            raise TakesTooLongError
        started = time.perf_counter()
        try:
            return method(*arguments, timeout=self._seconds)
        except TimeoutError:
            raise TakesTooLongError from None
        finally:
            self._seconds -= time.perf_counter() - started


type Expression = Annotated[str, msgspec.Meta(extra_json_schema={"format": "regular expression"})]
"""A Python regular expression."""
type Pattern = Annotated[str, msgspec.Meta(extra_json_schema={"format": "glob or /regular expression/"})]
type Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1)] | Pattern
"""One pattern or a list: a glob for the whole name (`read_*`) or a regular expression for a part of it (`/^get_/`);
case-insensitive."""


def any_match(patterns: Patterns, name: str) -> bool:
    """Return True if one of the patterns matches a tool's name."""
    return any(_compile(pattern).search(name) for pattern in list_patterns(patterns))


def check_patterns(patterns: Patterns, key: str) -> None:
    """Raise ValueError if one of the patterns is an invalid regular expression; its message begins with `key`."""
    for pattern in list_patterns(patterns):
        with prefix_errors(key):
            check_pattern(pattern)


def check_pattern(pattern: str) -> None:
    """Raise ValueError if a pattern between slashes is an invalid regular expression."""
    if _is_expression(pattern):
        compile_expression(pattern[1:-1], pattern)


_LIKE_EXPRESSION = re.compile(  # used with match
    r"(?=/.*(?:\.[*+?]|[\\^$(|])).*/"  # between slashes, as rules on arguments have them
    r"|\^.*|.*\$|\.\*.*|(?=.*(?:\\[bBdDsSwW.]|\.\+|\([^()|]*+\|[^()]*+\))).*",
    re.DOTALL,
)


def check_glob(pattern: str) -> None:
    """Raise ValueError if a glob is written as a regular expression, which would never match."""
    if _LIKE_EXPRESSION.fullmatch(pattern):
        raise ValueError(f"{pattern} is a regular expression; write a glob, for example *qwen3*")


def check_host(pattern: str) -> None:
    """Raise ValueError if a host pattern has more than a host and a port, and would never match."""
    check_glob(pattern)
    if "/" in pattern:
        host = pattern.rpartition("://")[2].partition("/")[0]
        raise ValueError(f"{pattern} is a URL; write its host, or host and port: {host}")


def compile_expression(text: str, shown: str = "") -> regex.Pattern[str]:
    """Compile a regular expression of a profile. Raises ValueError, whose message quotes `shown` in place of `text`."""
    try:
        return regex.compile(text)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown or text!r} is not a regular expression: {error}") from None


@contextmanager
def prefix_errors(key: str) -> Iterator[None]:
    """Prefix the message of a ValueError that is raised inside the `with` block with a key of the profile."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> regex.Pattern[str]:
    text = pattern[1:-1] if _is_expression(pattern) else rf"\A{fnmatch.translate(pattern)}"
    return regex.compile(text, regex.IGNORECASE)


def _is_expression(pattern: str) -> bool:
    return len(pattern) > 2 and pattern[0] == pattern[-1] == "/"


def list_patterns(patterns: Patterns) -> tuple[str, ...]:
    """Return the patterns of a profile's key, which may hold a single one or a list."""
    return (patterns,) if isinstance(patterns, str) else patterns
