"""What is left of a model's special tokens at the end of a value, where its server read the call.

    {"city": "Paris</｜DSML｜parameter"}         the marker that closes the value, whole or cut

Only special tokens count, which no file ends with by chance: a plain tag (`</parameter>`) may be the value's own. One
that pairs with an opener in the value is a part of it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache

from vtc.dialects.syntax.description import Description

_BARS = str.maketrans({"｜": "|", "▁": "_"})
_MARKER = re.compile(r"</?\|[^<>\n]{1,60}>")
_SLOT = re.compile(r"\{(?:value|arguments|params|calls)\}")
_LEAST = {"</": 3, "<|": 6}
"""Characters of a marker that is cut by which it is known, by how it begins."""
_BEGUN = re.compile(r"""</?(?:[|｜]|\\uff5c)[^"{}]*\Z""", re.IGNORECASE)
HERE = re.compile(r"</?(?:[|｜]|\\uff5c)", re.IGNORECASE)
"""Finds where a marker may begin in JSON."""
MAY_BEGIN = re.compile(r"</?(?:\\(?:u[f5]{0,3})?)?\Z", re.IGNORECASE)
"""Finds at the end of a piece of JSON what may be the beginning of one."""


class ValueEnds:
    """The markers that close values and calls in some dialects, where they are special tokens."""

    __slots__ = ("_closers",)

    def __init__(self, dialects: Sequence[Description] = ()) -> None:
        texts = [text for dialect in dialects for text in (*dialect.calls, *dialect.params, *dialect.sections)]
        behind = [_SLOT.split(text)[-1].translate(_BARS) for text in texts if _SLOT.search(text)]
        self._closers = sorted({closer for text in behind for closer in _MARKER.findall(text)})

    def __bool__(self) -> bool:
        return bool(self._closers)

    def stripped(self, value: str) -> str:
        """Return a value without the markers at its end."""
        left = value
        while self._closers and (at := left.rfind("<")) >= 0 and self._closes(left[at:], left[:at]):
            left = left[:at]
            if (bare := left.rstrip()).endswith(">") and self._closes(bare[bare.rfind("<") :], ""):
                left = bare
        return left

    def ended(self, arguments: str) -> str | None:
        """End an object that stops in a text value at such a marker; None if it does not."""
        match = _BEGUN.search(arguments)
        if not match:
            return None
        try:
            marker = json.loads(f'"{match[0].strip()}"')
        except ValueError:
            return None
        return arguments[: match.start()] + '"}' if self._closes(marker, arguments[: match.start()]) else None

    def _closes(self, marker: str, before: str) -> bool:
        """True for a marker, whole or cut, that closes what it stands in: all that was opened `before` is closed."""
        marker, before = marker.rstrip().translate(_BARS), before.translate(_BARS)
        closer = next((closer for closer in self._closers if closer.startswith(marker)), None)
        if closer is None or len(marker) < _LEAST.get(marker[:2], 2):
            return False
        if marker.startswith("<|"):
            return "<|" not in before
        name = closer[2:-1]
        return before.count(f"<{name}") <= before.count(f"</{name}")


ends_in = lru_cache(maxsize=64)(ValueEnds)
"""Finds the markers of dialects, or knows them."""
