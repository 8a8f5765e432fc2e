"""Arguments as Gemma 4 writes them: `{city:<|"|>Paris<|"|>,days:2,opts:{a:[1,<|"|>x<|"|>]}}`.

JSON but for two things: keys stand bare, and strings between tokens of their own, raw, since nothing can be escaped in
them. FunctionGemma's token is `<escape>`. Each token is handed on as JSON to a `JsonBody`, which knows the rest of the
grammar. Strings in double quotes are JSON's, as fine-tuned models write them; so is a string that holds the token.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from vtc.dialects.arguments.json_object import JsonBody, dump_json

STRING_TOKEN = '<|"|>'
"""The token that Gemma 4 writes around a string."""

_IN_STRING = re.compile(
    r"""(?P<partial>\\(?:u[0-9a-fA-F]{0,3})?\Z)|(?P<run>[^"\\\x00-\x1f]+|[\x00-\x1f]|\\u[0-9a-fA-F]{4}|\\.)|(?P<close>")""",
    re.DOTALL,
)
_ANOTHER_KEY = re.compile(r"""[,}\]]\s*+[^\s{}\[\]:,<"]{1,400}+\s*+:""")
_BARE_KEY = re.compile(r"""[^\s{}\[\]:,<"]{1,400}""")


@cache
def _compile_outside(quote: str) -> re.Pattern[str]:
    """Find the next token outside of strings, which stand between `quote`."""
    bare = r"""[^\s{}\[\]:,<"]{1,400}+"""
    return re.compile(
        rf"""(?P<space>\s+)|(?P<quote>{re.escape(quote)})|(?P<partial>{_prefixes_of(quote)}\Z)"""
        rf"""|(?P<mark>[{{}}\[\]:,])|(?P<string>")|(?P<key>{bare}(?=\s{{0,256}}:))"""
        rf"""|(?P<word>{bare}(?=\s{{0,256}}+[^\s:]))|(?P<more>{bare}\s{{0,256}}\Z)|(?P<other>.)""",
        re.DOTALL,
    )


@cache
def _compile_inside(quote: str) -> re.Pattern[str]:
    """Find the next piece of a string between `quote`."""
    return re.compile(
        rf"(?P<run>[^<]+)|(?P<close>{re.escape(quote)})|(?P<partial>{_prefixes_of(quote)}\Z)|(?P<other><)"
    )


def _prefixes_of(quote: str) -> str:
    """Write the expression for what a text may end in that more could make a quote of."""
    return f"(?:{'|'.join(re.escape(quote[:end]) for end in range(len(quote)))})"


class GemmaBody:
    """One object in Gemma's writing, fed in pieces; the counterpart of `JsonBody`. Strings stand between `quote`."""

    def __init__(self, quote: str = STRING_TOKEN, *, lenient: bool = True) -> None:
        self.quote = quote
        self._outside, self._in_quotes = _compile_outside(quote), _compile_inside(quote)
        self._json = JsonBody(lenient=lenient)
        self._inside: re.Pattern[str] | None = None  # what a string goes on with
        self._error = ""

    @property
    def done(self) -> bool:
        return self._json.done

    @property
    def error(self) -> str:
        return self._error or self._json.error

    @property
    def repairs(self) -> dict[str, None]:
        return self._json.repairs

    @property
    def in_string(self) -> bool:
        """True if reading stopped inside of a string."""
        return self._inside is not None

    def text(self) -> str:
        """The object as strict JSON (once `done`)."""
        return self._json.text()

    def discard(self) -> None:
        """Forget the text so far: only the end is wanted."""
        self._json.discard()

    def close(self) -> bool:
        """Close what is open, if the text was cut off in or after a value."""
        return self._json.close()

    def feed(self, text: str, at: int, *, final: bool = False) -> int:
        """Read `text` from `at` on; returns where reading stopped, as `JsonBody.feed` does."""
        while not self.done and not self.error and at < len(text):
            match = (self._inside or self._outside).match(text, at)
            assert match is not None
            kind, piece = match.lastgroup or "", match[0]
            if kind in ("partial", "more") and not final:
                return at
            if self._inside is self._in_quotes:
                self._feed_string(kind, piece)
            else:
                self._feed_token(kind, piece)
            if not self.error:
                at = match.end()
        return at

    def _feed_string(self, kind: str, piece: str) -> None:
        """Part of a string between Gemma's quotes."""
        if kind == "close":
            self._inside = None
            self._forward('"')
        else:
            self._json.write(dump_json(piece)[1:-1])

    def _feed_token(self, kind: str, piece: str) -> None:
        if kind == "quote":
            self._inside = self._in_quotes
            self._forward('"')
        elif kind == "string":
            self._inside = _IN_STRING
            self._forward('"')
        elif kind == "close":
            self._inside = None
            self._forward('"')
        elif kind == "key":
            self._forward(dump_json(piece))
        elif kind in ("other", "partial") and self._inside is None:
            self._error = f"{piece!r} where a value, a key or their end is expected"
        else:
            self._forward(piece)

    def _forward(self, piece: str) -> None:
        self._json.feed(piece, 0, final=True)


def close_last_string(text: str, quote: str = STRING_TOKEN) -> str:
    """Close the last string if only the object's own brace follows it; else return the text unchanged.

    What looks like another key in it may be one.
    """
    before, token, last = text.rpartition(quote)
    value = last.removesuffix("}")
    unsure = value == last or value.count("{") != value.count("}") or _ANOTHER_KEY.search(value)
    if text.count(quote) % 2 == 0 or unsure:
        return text
    return f"{before}{token}{value}{quote}}}"


def write(value: Any, quote: str = STRING_TOKEN) -> str:
    """A JSON value in Gemma's writing; in plain JSON where a string holds the token that would end it."""
    if quote in json.dumps(value, ensure_ascii=False).replace('\\"', '"'):
        return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return "{" + ",".join(f"{_key(key, quote)}:{write(entry, quote)}" for key, entry in value.items()) + "}"
        case list():
            return "[" + ",".join(write(entry, quote) for entry in value) + "]"
    return json.dumps(value)


def _key(key: str, quote: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else write(key, quote)
