"""Names of tools as a policy gives them: globs, or a regular expression between slashes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated

import msgspec
import regex

type Expression = Annotated[str, msgspec.Meta(extra_json_schema={"format": "regular expression"})]
"""A regular expression of Python's."""
type Pattern = Annotated[str, msgspec.Meta(extra_json_schema={"format": "glob or /regular expression/"})]
type Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1)] | Pattern
"""One pattern or several: a glob for the whole name (`read_*`) or a regular expression for a part of it (`/^get_/`);
upper and lower case alike."""


def any_match(patterns: Patterns, name: str) -> bool:
    """Whether any of the patterns holds for a tool's name."""
    return any(_compiled(pattern).search(name) for pattern in each(patterns))


def check(patterns: Patterns, key: str) -> None:
    """Raise ValueError, naming `key`, if one of them is no regular expression."""
    for pattern in each(patterns):
        with naming(key):
            check_one(pattern)


def check_one(pattern: str) -> None:
    """Raise ValueError if a pattern is meant as a regular expression and is none."""
    if _is_expression(pattern):
        expression(pattern[1:-1], pattern)


_EXPRESSION = re.compile(r"/.*(?:\.[*+?]|[\\^$(|]).*/", re.DOTALL)


def check_glob(pattern: str) -> None:
    """Raise ValueError if what can only be a glob is written as a regular expression: it would never match."""
    if _EXPRESSION.fullmatch(pattern):
        raise ValueError(f"{pattern} is a regular expression, and only globs are taken here, like *qwen3*")


def expression(text: str, shown: str = "") -> regex.Pattern[str]:
    """A regular expression of a profile; raises ValueError, with the text as it is `shown` to people."""
    try:
        return regex.compile(text)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown or text!r} is no regular expression: {error}") from None


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Put the key before what a ValueError says."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> regex.Pattern[str]:
    text = pattern[1:-1] if _is_expression(pattern) else rf"\A{fnmatch.translate(pattern)}"
    return regex.compile(text, regex.IGNORECASE)


def _is_expression(pattern: str) -> bool:
    return len(pattern) > 2 and pattern[0] == pattern[-1] == "/"


def each(patterns: Patterns) -> tuple[str, ...]:
    """The patterns, where one may stand for a list of one."""
    return (patterns,) if isinstance(patterns, str) else patterns
