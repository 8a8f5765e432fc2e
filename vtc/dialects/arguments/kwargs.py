"""The arguments of a Python call read from a stream: `city="Paris", days=2, opts={"a": [1, "x"]}`.

Ends before the bracket that closes the call, which only Python's own grammar of strings and brackets can tell. Values
are Python literals; JSON's `true`, `false` and `null` are taken too.
"""

from __future__ import annotations

import ast
import json
import re
import warnings

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
            found = _TOKEN.match(text, at)
            assert found is not None
            mark = found["mark"]
            if mark == ")" and not self._depth:
                self._finish()
                return at
            at = found.end()
            self._pieces.append(found[0])
            if mark in _INSIDE:
                self._quote = mark
            elif mark:
                self._depth += 1 if mark in "([{" else -1
                if not 0 <= self._depth <= MOST_DEPTH:
                    self.error = "brackets that do not match"
            elif found["other"]:
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
    return _RAW.sub(lambda found: _ESCAPES[found[0]], text) if _RAW.search(text) else text


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
