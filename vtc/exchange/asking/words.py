"""The words by which servers refuse a request: tables of regular expressions, upper and lower case alike."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from vtc.guards.patterns import Expression

_THOUSANDS = re.compile(r"\b[0-9]{1,3}(?:,[0-9]{3}){1,6}(?![\w,])")
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
MAX_INTEGER = (1 << 63) - 1
"""The greatest whole number that an error may tell: what servers keep in 64 bits."""


@cache
def compile_any(*words: str) -> re.Pattern[str]:
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
                compile_any(*value)
            elif isinstance(value, str):
                compile_any(value)


class RejectionWords(Expressions, frozen=True, kw_only=True):
    """The words by which servers say one thing."""

    words: tuple[Expression, ...]


def read_number(text: str | None) -> int | float | None:
    """Read a number that an error tells: at most 19 ASCII digits on either side of the point, within 64 bits.

    Return None for any other text. It is never parsed as JSON or by Python's own rules, which raise for some digits.
    """
    match = _NUMBER.fullmatch(text or "")
    if not match:
        return None
    value = float(match[0]) if match[1] else int(match[0])
    return value if abs(value) <= MAX_INTEGER else None


def find_number(message: str, *expressions: str) -> int:
    """Find a whole number by the first expression that fits; 0 if a message tells none."""
    message = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), message)
    matches = (match for words in expressions if (match := compile_any(words).search(message)))
    told = (read_number(group) for match in matches for group in match.groups() if group)
    return next((value for value in told if isinstance(value, int)), 0)
