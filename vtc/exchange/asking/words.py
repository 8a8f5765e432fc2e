"""The words by which servers refuse a request: tables of regular expressions, upper and lower case alike."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from vtc.guards.patterns import Expression

_THOUSANDS = re.compile(r"\b\d{1,3}(?:,\d{3})+\b")


@cache
def pattern(*words: str) -> re.Pattern[str]:
    """Compile what any of these expressions find; raises ValueError."""
    try:
        return re.compile("|".join(words), re.I | re.S)
    except re.error as error:
        raise ValueError(f"{error}: {words}") from None


class Expressions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a table. Raises ValueError for what is no expression."""

    def __post_init__(self) -> None:
        for value in msgspec.structs.astuple(self):
            if isinstance(value, tuple):
                pattern(*value)
            elif isinstance(value, str):
                pattern(value)


class RefusalWords(Expressions, frozen=True, kw_only=True):
    """The words by which servers say one thing."""

    words: tuple[Expression, ...]


def number(message: str, *expressions: str) -> int:
    """Find a number by the first expression that fits; 0 if a message tells none."""
    message = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), message)
    matches = (match for words in expressions if (match := pattern(words).search(message)))
    return next((int(group) for match in matches for group in match.groups() if group), 0)
