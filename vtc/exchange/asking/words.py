"""Regular expressions for servers' errors, and numbers in these errors.

The expressions are rows of tables (`rejections.yaml`, `window.yaml`, `named_fields.yaml`); they ignore case.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from vtc.guards.patterns import Expression

_THOUSANDS = re.compile(r"\b[0-9]{1,3}(?:,[0-9]{3}){1,6}(?![\w,])")
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
MAX_INTEGER = (1 << 63) - 1
"""Greatest integer in an error: the servers' 64-bit limit."""


@cache
def compile_any(*expressions: str) -> re.Pattern[str]:
    """Compile some expressions as alternatives of one; raises ValueError if one is invalid."""
    try:
        return re.compile("|".join(expressions), re.I | re.S)
    except re.error as error:
        raise ValueError(f"{error}: {expressions}") from None


class Expressions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a table whose fields are expressions. Creating it raises ValueError if one is invalid."""

    def __post_init__(self) -> None:
        for value in msgspec.structs.astuple(self):
            if isinstance(value, tuple):
                compile_any(*value)
            elif isinstance(value, str):
                compile_any(value)


class RejectionWords(Expressions, frozen=True, kw_only=True):
    """Expressions for one kind of rejection."""

    words: tuple[Expression, ...]


def read_number(text: str | None) -> int | float | None:
    """Parse a number in an error: at most 19 ASCII digits on either side of the point, within 64 bits.

    Return None for any other text. JSON and Python's own rules are not used, because they raise for some digits.
    """
    match = _NUMBER.fullmatch(text or "")
    if not match:
        return None
    value = float(match[0]) if match[1] else int(match[0])
    return value if abs(value) <= MAX_INTEGER else None


def find_number(message: str, *expressions: str) -> int:
    """Find an integer by the first expression that matches; 0 if there is none."""
    message = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), message)
    matches = (match for words in expressions if (match := compile_any(words).search(message)))
    numbers = (read_number(group) for match in matches for group in match.groups() if group)
    return next((value for value in numbers if isinstance(value, int)), 0)
