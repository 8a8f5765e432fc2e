"""Find leftovers of a model's special tokens at the end of a value in a call that the server parsed.

    {"city": "Paris</｜DSML｜parameter"}         the marker that closes the value, whole or cut

Only special tokens count, because no file ends with one by chance: a plain tag (`</parameter>`) may belong to the
value. A marker that pairs with an opener in the value belongs to it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

from vtc.dialects.syntax.description import Description

_MARKER = re.compile(r"</?\|[^<>\n]{1,60}>")
_SLOT = re.compile(r"\{(?:value|arguments|params|calls)\}")
_MIN_CHARS = {"</": 3, "<|": 6}
"""Minimum characters of a truncated marker, by its first two."""
MARKER_START = re.compile(r"</?(?:[|｜]|\\uff5c)", re.IGNORECASE)
"""Finds the possible start of a marker in JSON."""
_MARKED_VALUE = re.compile(r'(?:<|\\u003c)(?:\\?/)?(?:[|｜]|\\u(?:007c|ff5c))[^"<]{0,256}"', re.IGNORECASE)
"""Finds a value in JSON that may end in a marker; any character of it may be escaped."""
MAX_MARKED_VALUES = 1000
"""Maximum number of values in a call that may end in a marker; with more, all values stay as they are."""
PARTIAL_MARKER = re.compile(r"</?(?:\\(?:u[f5]{0,3})?)?\Z", re.IGNORECASE)
"""Finds the possible start of a marker at the end of a piece of JSON."""


class ValueEnds:
    """The closing markers of values and calls in some dialects, if they are special tokens."""

    __slots__ = ("_closers",)

    def __init__(self, dialects: Sequence[Description] = ()) -> None:
        texts = [text for dialect in dialects for text in (*dialect.calls, *dialect.params, *dialect.sections)]
        behind = [_with_plain_bars(_SLOT.split(text)[-1]) for text in texts if _SLOT.search(text)]
        self._closers = dict.fromkeys(sorted({closer for text in behind for closer in _MARKER.findall(text)}))

    def __bool__(self) -> bool:
        return bool(self._closers)

    def may_occur(self, arguments: str) -> bool:
        """Return True if values in the JSON text of a call's arguments may end in such markers."""
        if not self._closers:
            return False
        return 0 < sum(1 for _ in islice(_MARKED_VALUE.finditer(arguments), MAX_MARKED_VALUES + 1)) <= MAX_MARKED_VALUES

    def strip(self, value: str) -> str:
        """Remove the markers at the end of a value."""
        if "<" not in value:
            return value
        text, end = _with_plain_bars(value), len(value)
        counted: dict[str, int] = {}
        while (at := text.rfind("<", 0, end)) >= 0 and (closer := self._find_closer(text[at:end])):
            # Only the first marker requires counting the text before it; each further one updates the counts.
            for opener in counted:
                counted[opener] -= _find_unclosed(opener, text, at, end)
            opener = _get_opener(closer)
            if opener not in counted:
                counted[opener] = _find_unclosed(opener, text, 0, at)
            if counted[opener] > 0:
                break
            end = at
            while end and text[end - 1].isspace():
                end -= 1
            if end < at and not (text.endswith(">", 0, end) and self._find_closer(text[text.rfind("<", 0, end) : end])):
                end = at
        return value[:end]

    def end_object(self, arguments: str) -> str | None:
        """Complete an object that stops in a string value at such a marker; None if it does not."""
        match = MARKER_START.search(arguments, max(map(arguments.rfind, '"{}')) + 1)
        if not match:
            return None
        try:
            marker = json.loads(f'"{arguments[match.start() :].strip()}"')
        except ValueError:
            return None
        closer, before = self._find_closer(_with_plain_bars(marker)), arguments[: match.start()]
        if closer is None or _find_unclosed(_get_opener(closer), _with_plain_bars(before), 0, len(before)) > 0:
            return None
        return before + '"}'

    def _find_closer(self, marker: str) -> str | None:
        """Return the closer that a marker equals or begins; None if there is none."""
        marker = marker.rstrip()
        if marker in self._closers:
            return marker
        if len(marker) < _MIN_CHARS.get(marker[:2], 2):
            return None
        return next((closer for closer in self._closers if closer.startswith(marker)), None)


def _with_plain_bars(text: str) -> str:
    """Replace the bars and underscores of special tokens by ASCII characters."""
    return text.replace("｜", "|").replace("▁", "_")


def _get_opener(closer: str) -> str:
    """Return the opener of a closer; for a marker without a slash, the start of any opener."""
    return "<|" if closer.startswith("<|") else f"<{closer[2:-1]}"


def _find_unclosed(opener: str, text: str, start: int, end: int) -> int:
    """Count unmatched openers in a part of a text; with none, a marker closes something outside."""
    opened = text.count(opener, start, end)
    return opened if opener == "<|" else opened - text.count(f"</{opener[1:]}", start, end)


make_value_ends = lru_cache(maxsize=64)(ValueEnds)
"""Returns the cached `ValueEnds` of some dialects."""
