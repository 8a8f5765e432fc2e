"""The arguments of a Python call read from a stream: `city="Paris", days=2, opts={"a": [1, "x"]}`.

Ends before the bracket that closes the call, which only Python's own grammar of strings and brackets can tell. Values
are Python literals; JSON's `true`, `false` and `null` are taken too.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from vtc.dialects.arguments.json_object import MOST_DEPTH, encodable
from vtc.dialects.repair import Repair

_TOKEN = re.compile(r"""[^'"()\[\]{}\\]+|(?P<mark>['"()\[\]{}])|(?P<other>\\)""")
_INSIDE = {quote: re.compile(rf"(?:[^{quote}\\]+|\\.)*", re.DOTALL) for quote in ("'", '"')}
_RAW = re.compile(r"\\?[\n\r\x00]")
"""Finds a character that Python takes for none of a string; after a backslash it can be read in two ways."""
_RAW_ESCAPED = re.compile(r"(?:\A|[^\\])(?:\\\\)*\\[\n\r\x00]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\0": "\\x00"}
_CONSTANTS = {"true": True, "false": False, "null": None}


class KwargsBody:
    """Keyword arguments, fed in pieces; the counterpart of `JsonBody`."""

    def __init__(self, *, lenient: bool = True) -> None:
        self.lenient = lenient
        self.done = False
        self.error = ""
        self.repairs: dict[str, None] = {}
        self._depth = 0
        self._quote = ""
        self._pieces: list[str] = []
        self._arguments = "{}"

    def text(self) -> str:
        """The arguments as a JSON object (once `done`)."""
        return self._arguments

    def discard(self) -> None:
        """Forget the text so far: only the end is wanted."""
        self._pieces.clear()

    def close(self) -> bool:
        """A cut off call is not closed: Python has no telling half values."""
        return False

    def _failed(self) -> bool:
        return bool(self.error)

    def feed(self, text: str, at: int, *, final: bool = False) -> int:
        """Read `text` from `at` on; returns where reading stopped: before the closing bracket when `done`."""
        while not self.done and not self.error and at < len(text):
            if self._quote:
                inside = _INSIDE[self._quote].match(text, at)
                assert inside is not None
                at = self._string(text, at, inside.end())
                if self._failed():
                    break
                if at < len(text) and text[at] == "\\" and not final:
                    break  # half an escape
                if at < len(text):
                    self._pieces.append(text[at])
                    self._quote = ""
                    at += 1
                continue
            match = _TOKEN.match(text, at)
            assert match is not None
            mark = match["mark"]
            if mark == ")" and not self._depth:
                self._finish()
                return at
            at = match.end()
            self._pieces.append(match[0])
            if mark in _INSIDE:
                self._quote = mark
            elif mark:
                self._depth += 1 if mark in "([{" else -1
                if not 0 <= self._depth <= MOST_DEPTH:
                    self.error = "brackets that do not match"
            elif match["other"]:
                self.error = "a backslash outside of a string"
        return at

    def _string(self, text: str, at: int, end: int) -> int:
        """Part of a string, up to `end` or a fault; Python has no raw newlines there, models do."""
        raw = _RAW.search(text, at, end)
        if raw and (not self.lenient or len(raw[0]) > 1):
            self.error = "a raw newline in a string" if len(raw[0]) == 1 else "a backslash before a raw newline"
            return raw.start()
        if raw:
            self.repairs[Repair.RAW_NEWLINE] = None
        self._pieces.append(_escaped(text[at:end]))
        return end

    def _finish(self) -> None:
        self.done = True
        source = "".join(self._pieces)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the likes of `'\d'`, which is how models write them
                call = ast.parse(f"f({source.strip()})", mode="eval").body
            assert isinstance(call, ast.Call)
            named = all(keyword.arg or isinstance(keyword.value, ast.Dict) for keyword in call.keywords)
            pairs = [pair for keyword in call.keywords for pair in _pairs(keyword)] if named else []
            if any(isinstance(node, ast.Set) for node in ast.walk(call)):
                self.repairs[Repair.PYTHON_LITERAL] = None
            if call.args or not named or not all(isinstance(name, str) for name, _ in pairs):
                self.error = "arguments without a name"
                return
            if len(values := dict(pairs)) < len(pairs):
                self.error = "an argument is given twice"
                return
            self._arguments = encodable(json.dumps(values, ensure_ascii=False))
        except SyntaxError as error:
            self.error = f"not Python: {error.msg}"
        except (ValueError, TypeError, RecursionError, MemoryError):
            self.error = "not Python: no plain values"


def literal(text: str) -> str | None:
    """The JSON of a Python literal as models write it, with line breaks in strings; None if it is none."""
    if _RAW_ESCAPED.search(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = ast.parse(_escaped(text), mode="eval").body
        return json.dumps(ast.literal_eval(_constants(node)), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _escaped(text: str) -> str:
    """Text of a string with escapes for the characters that Python has none of there."""
    return _RAW.sub(lambda match: _ESCAPES[match[0]], text) if _RAW.search(text) else text


def _pairs(keyword: ast.keyword) -> list[tuple[object, object]]:
    """The arguments that a keyword gives: one, or those of `**{"city": "Paris"}`."""
    value = ast.literal_eval(_constants(keyword.value))
    return [(keyword.arg, value)] if keyword.arg else [*value.items()]


def _constants(node: ast.expr) -> ast.expr:
    """JSON's constants as Python's, and a set, which JSON has none of, as a list."""

    class Constants(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return ast.Constant(_CONSTANTS[name.id]) if name.id in _CONSTANTS else name

        def visit_Set(self, items: ast.Set) -> ast.expr:
            return ast.List([self.visit(item) for item in items.elts], ast.Load())

    replaced: ast.expr = Constants().visit(node)
    return replaced


# The arguments of a Python call in which quotes in a string are not escaped, or a comma is missing.
#
# bash(command="python -c 'print("hi")'", timeout=5)
#
# A string ends only where structure follows: another argument, or the end of the call. Of two readings none is taken.


MOST_STEPS = 10_000
"""Places at which a value may begin or end that are tried; a value counts for one more for each `PER_STEP` of it."""
PER_STEP = 50
"""Characters of a value: each is looked at anew for each of the places at which the value may end."""
_KEY = re.compile(r"\s*([A-Za-z_]\w{0,127})\s*=\s*(?!=)")
_NEXT = re.compile(r"\s*(,)?\s*(?:(?=[A-Za-z_]\w{0,127}\s*=(?!=))|\Z)")
_BARE = re.compile(r"[^'\"\s][^'\"]*?(?=\s*(?:,\s*[A-Za-z_]\w{0,127}\s*=(?!=)|,?\s*\Z))")


class KwargsState(NamedTuple):
    """The state of the search: what was read so far."""

    values: tuple[tuple[str, str], ...] = ()
    """Keys, each with its value as JSON."""
    repairs: frozenset[Repair] = frozenset()


def read(text: str) -> KwargsState | None:
    """The arguments between the brackets of a call; None if they can be read in no way, or in two."""
    search = _KwargsSearch(text)
    readings = list(islice(search.readings(0, KwargsState()), 2))
    return readings[0] if len(readings) == 1 and search.steps >= 0 and readings[0].repairs else None


class _KwargsSearch:
    """A search for all the ways to read some arguments."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = MOST_STEPS

    def readings(self, at: int, before: KwargsState) -> Iterator[KwargsState]:
        """Read the arguments from `at` on in every way, after those `before`."""
        self.steps -= 1
        key = _KEY.match(self.text, at)
        if self.steps < 0 or key is None or key[1] in dict(before.values):
            return
        for value, end, repairs in self._values(key.end()):
            following = _NEXT.match(self.text, end)
            assert following is not None
            ends = following.end() == len(self.text)
            comma = frozenset() if following[1] or ends else frozenset({Repair.JSON_MISSING_COMMA})
            more = KwargsState((*before.values, (key[1], value)), before.repairs | repairs | comma)
            if ends:
                yield more
            else:
                yield from self.readings(following.end(), more)

    def _values(self, at: int) -> Iterator[tuple[str, int, frozenset[Repair]]]:
        """Find the values that may stand here, as JSON, where each ends, and the repairs that took."""
        quote = self.text[at : at + 1]
        if quote not in ("'", '"'):
            bare = _BARE.match(self.text, at)
            value = literal(bare[0]) if bare else None
            if bare and value is not None:
                yield value, bare.end(), frozenset()
            return
        for match in re.finditer(rf"\\.|{quote}", self.text[at + 1 :], re.DOTALL):
            self.steps -= 1
            end = at + 1 + match.start()
            if self.steps < 0:
                return
            if match[0] != quote or not _NEXT.match(self.text, end + 1):
                continue
            inner = self.text[at + 1 : end]
            self.steps -= len(inner) // PER_STEP
            value = literal(f"{quote}{_escaped_quotes(inner, quote)}{quote}")
            if value is not None:
                held = _quotes(inner, quote)
                repairs = frozenset({Repair.JSON_INNER_QUOTES} if held else {})
                yield value, end + 1, repairs
                if held and re.search(rf"{quote}\s*[,+]|\w\s*=\s*{quote}", inner):
                    yield value, end + 1, repairs  # it may have ended there: a second reading


def _quotes(text: str, quote: str) -> bool:
    """True if a text holds such a quote that is not escaped."""
    return any(match[0] == quote for match in re.finditer(rf"\\.|{quote}", text, re.DOTALL))


def _escaped_quotes(text: str, quote: str) -> str:
    """The text of a string with each quote of its kind escaped."""
    return re.sub(rf"\\.|{quote}", lambda match: f"\\{quote}" if match[0] == quote else match[0], text, flags=re.DOTALL)
