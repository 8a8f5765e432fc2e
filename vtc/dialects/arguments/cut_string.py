"""A string cut out of broken JSON: what it holds that may be structure, and how JSON writes it."""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import JsonBody, dumped
from vtc.dialects.repair import Repair

QUOTE = re.compile(r"\\.|[\"']", re.DOTALL)
"""Finds quotes and escapes."""
_NAMED = re.compile(r"""["',]\s{0,99}+([\w.$-]{1,128}+)["']?\s{0,99}+:""")
"""Finds keys in a string that holds quotes."""
_PLAIN = re.compile(r"[^\"'\\\x00-\x1f]*+")
_UNSURE = frozenset("/01234567avN\n")
"""Escapes that Python reads, and JSON otherwise."""
_PYTHON = frozenset("xU")
"""Escapes that only Python has."""


_NEXT_STRING = re.compile(r"'\s*,\s*'")


class CutString(NamedTuple):
    """A string as it stands in the text, from its quotes on either side."""

    start: int
    end: int
    quote: str
    """Its quote, empty if it has none."""
    known: frozenset[str] = frozenset()
    """Keys that end it where they follow a quote of its own."""
    listed: bool = False
    """It stands in a list, where any string may follow."""


def quotes_in(text: str, quote: str) -> int:
    """How many quotes of a kind a text holds that are not escaped."""
    return sum(found[0] == quote for found in QUOTE.finditer(text)) if quote in text else 0


def holds_structure(text: str, cut: CutString) -> bool | None:
    """True if a string with quotes in it must have ended before its end, None if it may have.

    What looks like a key is the string's own only between braces and quotes that are all in pairs.
    """
    quotes = quotes_in(text, cut.quote) if cut.quote else 0
    if not quotes:
        return False
    if cut.quote == "'" and _NEXT_STRING.search(text):
        return None  # as Python writes several
    depth = lowest = place = 0
    strange = cut.listed
    for found in _NAMED.finditer(text):
        depth += text.count("{", place, found.start()) - text.count("}", place, found.start())
        place = found.start()
        if depth <= 0 and found[1] in cut.known:
            return True
        strange = True
    if strange and quotes % 2 == 0:
        depth = 0
        for brace in re.findall("[{}]", text):
            depth += 1 if brace == "{" else -1
            lowest = min(lowest, depth)
    return None if strange and (quotes % 2 or depth or lowest) else False


def as_json(text: str, quote: str, *, python: bool) -> tuple[str, list[str]] | None:
    """Write a string as JSON, with the repairs that took; None if it could be read in two ways.

    `python` if the object has strings in single quotes: then escapes are Python's.
    """
    if _PLAIN.fullmatch(text):
        return f'"{text}"', []
    held = bool(quote) and quotes_in(text, quote) > 0
    escapes = {found[0][1] for found in QUOTE.finditer(text) if len(found[0]) > 1}
    if python and escapes & _UNSURE:
        return None
    if python and not held:
        with contextlib.suppress(ValueError):
            return dumped(values.python_literal(f"{quote}{text}{quote}")), []
    if python and escapes & _PYTHON:
        return None
    body = JsonBody()
    escaped = QUOTE.sub(lambda found: '\\"' if found[0] == '"' else found[0], text)
    body.feed(f'["{escaped}"]', 0, final=True)
    repairs = [*([Repair.JSON_INNER_QUOTES] if held else []), *body.repairs]
    return (body.text()[1:-1], repairs) if body.done else None
