"""Read the arguments of a Python call with unescaped quotes in a string, or with a missing comma.

    bash(command="python -c 'print("hi")'", timeout=5)

A string ends only at a quote before structure: another argument, or the end of the call. If there are two
interpretations, none is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from vtc.dialects.arguments.broken_json import escape_quotes
from vtc.dialects.arguments.python import NAME_EXPRESSION, read_literal
from vtc.dialects.repair import Repair

MAX_KWARGS_STEPS = 10_000
"""Maximum number of places tried as start or end of a value; a value costs one more for each `CHARACTERS_PER_STEP`."""
CHARACTERS_PER_STEP = 50
"""Characters of a value per step, since each place at which it may end scans the value again."""
_KEY = re.compile(rf"\s*({NAME_EXPRESSION})\s*=\s*(?!=)")  # used with match
_AFTER_VALUE = re.compile(rf"\s*+(?:(,)\s*+)?(?:(?={NAME_EXPRESSION}\s*=(?!=))|\Z)")  # used with match
_UNQUOTED = re.compile(  # used with match
    rf"[^'\"\s](?:\s*+[^'\"\s])*?(?=\s*+(?:,\s*+{NAME_EXPRESSION}\s*+=(?!=)|,?\s*+\Z))"
)


class KwargsState(NamedTuple):
    """The arguments read so far."""

    values: tuple[tuple[str, str], ...] = ()
    """Keys, each with its value as JSON."""
    repairs: frozenset[Repair] = frozenset()


def read(text: str) -> KwargsState | None:
    """Read the arguments between the parentheses of a call; None unless there is exactly one interpretation."""
    search = _KwargsSearch(text)
    readings = list(islice(search.find_interpretations(0, KwargsState()), 2))
    return readings[0] if len(readings) == 1 and search.steps >= 0 and readings[0].repairs else None


class _KwargsSearch:
    """A search for all interpretations of some arguments."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = MAX_KWARGS_STEPS

    def find_interpretations(self, at: int, before: KwargsState) -> Iterator[KwargsState]:
        """Find all interpretations of the arguments from `at` on, after those in `before`."""
        self.steps -= 1
        key = _KEY.match(self.text, at)
        if self.steps < 0 or key is None or key[1] in dict(before.values):
            return
        for value, end, repairs in self._find_values(key.end()):
            following = _AFTER_VALUE.match(self.text, end)
            assert following is not None
            ends = following.end() == len(self.text)
            comma = frozenset() if following[1] or ends else frozenset({Repair.JSON_MISSING_COMMA})
            more = KwargsState((*before.values, (key[1], value)), before.repairs | repairs | comma)
            if ends:
                yield more
            else:
                yield from self.find_interpretations(following.end(), more)

    def _find_values(self, at: int) -> Iterator[tuple[str, int, frozenset[Repair]]]:
        """Find the possible values at a position: each as JSON, with its end and the repairs."""
        quote = self.text[at : at + 1]
        if quote not in ("'", '"'):
            bare = _UNQUOTED.match(self.text, at)
            value = read_literal(bare[0]) if bare else None
            if bare and value is not None:
                yield value, bare.end(), frozenset()
            return
        for match in re.finditer(rf"\\.|{quote}", self.text[at + 1 :], re.DOTALL):
            self.steps -= 1
            end = at + 1 + match.start()
            if self.steps < 0:
                return
            if match[0] != quote or not _AFTER_VALUE.match(self.text, end + 1):
                continue
            inner = self.text[at + 1 : end]
            self.steps -= len(inner) // CHARACTERS_PER_STEP
            escaped = escape_quotes(inner, quote)
            value = read_literal(f"{quote}{escaped}{quote}")
            if value is not None:
                held = escaped != inner
                repairs = frozenset({Repair.JSON_INNER_QUOTES} if held else {})
                yield value, end + 1, repairs
                if held and re.search(rf"{quote}\s*[,+]|\w\s*=\s*{quote}", inner):
                    # The string may have ended earlier: a second interpretation makes the arguments ambiguous.
                    yield value, end + 1, repairs
