"""Python values, and the arguments of a Python call, in a stream: `city="Paris", days=2, opts={"a": [1]}`.

The end is found by counting brackets and skipping strings; then the text is parsed with a dedicated grammar. Models
write less than Python, because all values are literals, and more: parameter names that are keywords or contain dashes,
JSON's `true` and `null`, line breaks in strings. A number keeps its spelling if JSON accepts it.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any, Literal

from vtc.dialects.arguments.json_object import (
    JSON_NUMBER,
    MAX_JSON_DEPTH,
    JsonBody,
    dump_json,
    escape_surrogates,
    load_unique_keys,
    render_members,
    split_members,
)
from vtc.dialects.repair import Repair

NAME_EXPRESSION = r"[^\W\d][\w.$-]{0,127}"
"""The name of a parameter: APIs accept some that Python does not."""
PARAMETER_NAME = re.compile(NAME_EXPRESSION)
_CONSTANTS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_TRIPLE = ('"""', "'''")
_STRING_CONTENTS = {quote: rf"(?:[^{quote}\\]++|\\.)*+" for quote in "\"'"}
_STRING_CONTENTS |= {quote: rf"(?:[^{quote[0]}\\]++|\\.|{quote[0]}{{1,2}}+(?=[^{quote[0]}]))*+" for quote in _TRIPLE}
_STRINGS = "|".join(f"{quote}{_STRING_CONTENTS[quote]}{quote}" for quote in (*_TRIPLE, '"', "'"))
_TOKEN = re.compile(  # used with match
    r"(?:\s|\#[^\n]*+)*+(?:"
    rf"(?P<prefix>[A-Za-z]{{0,2}})(?P<string>{_STRINGS})"
    r"|(?P<number>\.?\d(?:[eE][-+](?=\d)|[\w.])*+)"
    rf"|(?P<name>{NAME_EXPRESSION})"
    r"|(?P<mark>\*\*|[-+()\[\]{},:]|=(?!=))"
    r"|(?P<end>\Z))",
    re.DOTALL,
)
_RAW_CHARACTER = re.compile(r"\\?[\n\r\x00]")
"""Finds a character that Python does not accept in a string; after a backslash it is ambiguous."""
_RAW_ESCAPED = re.compile(r"(?:\A|[^\\])(?:\\\\)*\\[\n\r\x00]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\0": "\\x00"}
_OTHER_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\[/0-7avN\n]")
_BRACES = re.compile(r"\{\{|\}\}|[{}]")


class PythonSyntaxError(ValueError):
    """The text is not Python as models write it; the message gives the reason."""


def read_literal(text: str, *, strict: bool = False) -> str | None:
    """Return a value as JSON; strings may contain line breaks. None if the text is not a literal.

    With `strict`, it must be written as both Python and JSON accept it. Adjacent strings are rejected then, because
    they lack a comma more often than they are one string.
    """
    parser = _Parser(text, lenient=not strict, joins=not strict)
    try:
        value = parser.parse_value()
        return value if parser.is_at_end and not (strict and parser.repairs) else None
    except (PythonSyntaxError, RecursionError):
        return None


class _Parser:
    """Parses values and renders them as JSON. All parsing methods raise `PythonSyntaxError`."""

    def __init__(self, text: str, *, lenient: bool = True, joins: bool = True) -> None:
        self.repairs: dict[str, None] = {}
        self._lenient = lenient
        self._joins = joins
        """Adjacent strings are joined."""
        self._text = text
        self._at = 0

    def _peek(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self._at)
        if token is None:
            raise PythonSyntaxError("no literal value")
        return token

    def _next(self) -> re.Match[str]:
        token = self._peek()
        self._at = token.end()
        return token

    def _accept(self, mark: str) -> bool:
        """Consume this mark if it is next."""
        token = self._peek()
        if token["mark"] == mark:
            self._at = token.end()
        return token["mark"] == mark

    @property
    def is_at_end(self) -> bool:
        return self._peek()["end"] is not None

    def parse_arguments(self) -> str:
        """Parse the arguments of a call, up to the end of the text."""
        if self._peek()["mark"] == "{":
            return self._parse_object()
        given: list[tuple[str, str]] = []
        while not self.is_at_end:
            if given and not self._accept(","):
                raise PythonSyntaxError("a comma is missing")
            if self._accept("**"):
                given += _list_members(self._parse_named_arguments())
            elif not self.is_at_end:
                token = self._next()
                if token["name"] is None or not (self._accept("=") or self._accept_colon()):
                    raise PythonSyntaxError("arguments without a name")
                given.append((token["name"], self.parse_value()))
        if len(arguments := dict(given)) < len(given):
            raise PythonSyntaxError("an argument is given twice")
        return escape_surrogates(render_members(arguments))

    def _accept_colon(self) -> bool:
        """Consume a colon in place of an equals sign, as in an object: `f(city: "Paris")`."""
        stands = self._lenient and self._accept(":")
        if stands:
            self.repairs[Repair.ARGUMENTS_OBJECT] = None
        return stands

    def _parse_object(self) -> str:
        """Parse a single object that holds all arguments: `f({"city": "Paris"})`."""
        value = self._parse_named_arguments()
        self._accept(",")
        if not (self.is_at_end and self._lenient):
            raise PythonSyntaxError("arguments without a name")
        self.repairs[Repair.ARGUMENTS_OBJECT] = None
        return value

    def _parse_named_arguments(self) -> str:
        """Parse an object of arguments, whose keys are names."""
        value = self._parse_braces(named=True) if self._accept("{") else ""
        if not value.startswith("{"):
            raise PythonSyntaxError("arguments without a name")
        return value

    def parse_value(self) -> str:
        """Parse a value."""
        token = self._next()
        if token["string"] is not None:
            return self._parse_strings(token)
        if token["number"] is not None:
            return _render_number(token["number"])
        if token["name"] in _CONSTANTS:
            return _CONSTANTS[token["name"]]
        match token["mark"]:
            case "-" | "+" as sign if (number := self._next()["number"]) is not None:
                return f"{sign.strip('+')}{_render_number(number)}"
            case "[":
                return f"[{', '.join(self._parse_items(']', []))}]"
            case "(":
                return self._parse_parentheses()
            case "{":
                return self._parse_braces()
        raise PythonSyntaxError("no literal value")

    def _parse_strings(self, token: re.Match[str]) -> str:
        """Parse a string, joined with those directly after it."""
        pieces = [self._parse_string(token)]
        while self._joins and self._peek()["string"] is not None:
            pieces.append(self._parse_string(self._next()))
        return escape_surrogates(dump_json("".join(pieces)))

    def _parse_string(self, token: re.Match[str]) -> str:
        prefix, text = token["prefix"].lower(), token["string"]
        quote = text[:3] if text.startswith(_TRIPLE) else text[0]
        inner = text[len(quote) : -len(quote)]
        if prefix not in ("", "r", "u", "f", "rf", "fr"):
            raise PythonSyntaxError("no literal value")
        if len(quote) == 1 and _RAW_CHARACTER.search(inner):
            if not self._lenient:
                raise PythonSyntaxError("a raw newline in a string")
            self.repairs[Repair.RAW_NEWLINE] = None
        if "f" in prefix:
            inner = _BRACES.sub(_undouble_brace, inner)
        return inner if "r" in prefix or "\\" not in inner else _unescape(inner, quote)

    def _parse_items(self, closer: str, items: list[str]) -> list[str]:
        """Parse the rest of a list, after the `items` so far."""
        while not self._accept(closer):
            if items and not self._accept(","):
                raise PythonSyntaxError("a comma is missing")
            if items and self._accept(closer):
                break
            items.append(self.parse_value())
        return items

    def _parse_parentheses(self) -> str:
        """Parse a tuple, or a value in parentheses."""
        if self._accept(")"):
            return "[]"
        first = self.parse_value()
        return first if self._accept(")") else f"[{', '.join(self._parse_items(')', [first]))}]"

    def _parse_braces(self, *, named: bool = False) -> str:
        """Parse an object (with text keys if `named`), or a set as a list, since JSON has no sets."""
        entries: list[str] = []
        while not self._accept("}"):
            if entries and not self._accept(","):
                raise PythonSyntaxError("a comma is missing")
            if entries and self._accept("}"):
                break
            key = self.parse_value()
            if not self._accept(":"):
                if entries:
                    raise PythonSyntaxError("a key has no value")
                self.repairs[Repair.PYTHON_LITERAL] = None
                return f"[{', '.join(self._parse_items('}', [key]))}]"
            if key.startswith(("[", "{")) or (named and not key.startswith('"')):
                raise PythonSyntaxError("arguments without a name" if named else "a key is not a string")
            entries.append(f"{key if key.startswith('"') else dump_json(key)}: {self.parse_value()}")
        return f"{{{', '.join(entries)}}}"


def _list_members(text: str) -> list[tuple[str, str]]:
    """List the members of an object."""
    try:
        load_unique_keys(text)
        return [*split_members(text).items()]
    except ValueError:
        raise PythonSyntaxError("arguments without a name") from None


def _render_number(text: str) -> str:
    """Render a number as JSON."""
    try:
        return text if JSON_NUMBER.match(text) else json.dumps(_evaluate_literal(text) + 0, allow_nan=False)
    except (ValueError, TypeError):
        raise PythonSyntaxError("a number that JSON cannot express") from None


def _undouble_brace(match: re.Match[str]) -> str:
    """Undouble a brace of an f-string. A single brace is a placeholder, which has no known value."""
    if len(match[0]) == 1:
        raise PythonSyntaxError("a placeholder in a string")
    return match[0][0]


def _unescape(inner: str, quote: str) -> str:
    """Decode the escapes of a string."""
    if _RAW_ESCAPED.search(inner):
        raise PythonSyntaxError("a backslash before a raw newline")
    text = _RAW_CHARACTER.sub(lambda match: _ESCAPES[match[0]], inner) if _RAW_CHARACTER.search(inner) else inner
    return str(_evaluate_literal(f"{quote}{text}{quote}"))


def _evaluate_literal(token: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes like `'\d'`, which models write
            return ast.literal_eval(token)
    except (ValueError, SyntaxError, MemoryError):
        raise PythonSyntaxError("no literal value") from None


_OUTSIDE_STRINGS = re.compile(
    r"""[^'"()\[\]{}\\#]++|(?P<quote>['"])|(?P<mark>[()\[\]{}])|(?P<comment>\#)|(?P<other>\\)"""
)
_STRING_REST = {quote: re.compile(inner, re.DOTALL) for quote, inner in _STRING_CONTENTS.items()} | {
    "#": re.compile(r"[^\n]*+")
}


class PythonBody:
    """The arguments of a call, up to its closing parenthesis, or one value in brackets; the counterpart of `JsonBody`.

    If the value is in place of `json`, escapes that JSON reads differently are ambiguous.
    """

    def __init__(self, of: Literal["arguments", "value", "json"] = "arguments", *, lenient: bool = True) -> None:
        self.kind = of
        self.lenient = lenient
        self.done = False
        self.error = ""
        self.repairs: dict[str, None] = {}
        self._depth = 0
        self._inside = ""
        """Quotes of the open string, or the mark of a comment."""
        self._pieces: list[str] = []
        self._text = ""

    def text(self) -> str:
        """Return the parsed text as JSON (once `done`)."""
        return self._text

    def discard(self) -> None:
        """Discard the text so far, because only the end is needed."""
        self._pieces.clear()

    def close(self) -> bool:
        """Return False: a call that was cut off is never closed, because half a Python value is ambiguous."""
        return False

    def feed(self, text: str, at: int, *, final: bool = False) -> int:
        """Parse `text` from `at` on; return the end of the parsed part, which is the end of the value when `done`."""
        while not self.done and not self.error and at < len(text):
            here = at
            at = self._skip_string(text, at) if self._inside else self._skip_outside(text, at, final)
            self._pieces.append(text[here:at])
            if at == here:
                break
        return at

    def _skip_string(self, text: str, at: int) -> int:
        """Skip more of a string or a comment."""
        match = _STRING_REST[self._inside].match(text, at)
        assert match is not None
        end = match.end()
        if self._inside == "#":
            self._inside = "" if end < len(text) else "#"
        elif text.startswith(self._inside, end):
            end += len(self._inside)
            self._inside = ""
        return end

    def _skip_outside(self, text: str, at: int, final: bool) -> int:
        """Skip more text outside strings."""
        match = _OUTSIDE_STRINGS.match(text, at)
        assert match is not None
        if quote := match["quote"]:
            if len(text) - at < len(_TRIPLE[0]) and not text[at:].strip(quote) and not final:
                return at  # it may be the first of three
            self._inside = quote * 3 if text.startswith(quote * 3, at) else quote
            return at + len(self._inside)
        if match["comment"]:
            self._inside = "#"
        elif match["other"]:
            self.error = "a backslash outside of a string"
        elif mark := match["mark"]:
            if mark == ")" and not self._depth and self.kind == "arguments":
                self._finish("")
                return at
            self._depth += 1 if mark in "([{" else -1
            if not 0 <= self._depth <= MAX_JSON_DEPTH:
                self.error = "brackets that do not match"
            elif not self._depth and self.kind != "arguments":
                self._finish(mark)
        return match.end()

    def _finish(self, last: str) -> None:
        self.done = True
        source = "".join(self._pieces) + last
        is_object = source.lstrip().startswith("{") and (self.lenient or self.kind != "arguments")
        if is_object and (json_text := _read_json_object(source.strip())):
            self._text = json_text
            self.repairs |= {Repair.ARGUMENTS_OBJECT: None} if self.kind == "arguments" else {}
            return
        if self.kind == "json":
            self.repairs[Repair.PYTHON_LITERAL] = None
            if _OTHER_IN_JSON.search(source):
                self.error = "not Python: an escape that JSON reads otherwise"
                return
        parser = _Parser(source, lenient=self.lenient, joins=self.kind != "json")
        try:
            self._text = parser.parse_arguments() if self.kind == "arguments" else parser.parse_value()
            self.repairs |= parser.repairs
        except PythonSyntaxError as error:
            self.error = f"not Python: {error}"
        except RecursionError:
            self.error = "not Python: nested too deep"


def _read_json_object(text: str) -> str:
    """Return an object that is JSON; empty if it is not. Some of its strings would differ in Python."""
    body = JsonBody(lenient=False)
    end = body.feed(text, 0, final=True)
    return body.text() if body.done and end == len(text) else ""
