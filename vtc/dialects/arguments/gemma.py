"""Arguments in the format of Gemma 4: `{city:<|"|>Paris<|"|>,days:2,opts:{a:[1,<|"|>x<|"|>]}}`.

This is JSON with two differences: keys have no quotes, and strings are raw between special tokens, without any escapes.
FunctionGemma's token is `<escape>`. Each token is converted to JSON and fed to a `JsonBody`, which checks the rest of
the grammar. Strings in double quotes are JSON: fine-tuned models write them, and they are needed for strings that
contain the token.
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
    """Compile an expression for the next token outside strings, which are delimited by `quote`."""
    bare = r"""[^\s{}\[\]:,<"]{1,400}+"""
    return re.compile(
        rf"""(?P<space>\s+)|(?P<quote>{re.escape(quote)})|(?P<partial>{_make_prefix_expression(quote)}\Z)"""
        rf"""|(?P<mark>[{{}}\[\]:,])|(?P<string>")|(?P<key>{bare}(?=\s{{0,256}}:))"""
        rf"""|(?P<word>{bare}(?=\s{{0,256}}+[^\s:]))|(?P<more>{bare}\s{{0,256}}\Z)|(?P<other>.)""",
        re.DOTALL,
    )


@cache
def _compile_inside(quote: str) -> re.Pattern[str]:
    """Compile an expression for the next piece of a string that is delimited by `quote`."""
    return re.compile(
        rf"(?P<run>[^<]+)|(?P<close>{re.escape(quote)})|(?P<partial>{_make_prefix_expression(quote)}\Z)|(?P<other><)"
    )


def _make_prefix_expression(quote: str) -> str:
    """Return an expression for the proper prefixes of a quote."""
    return f"(?:{'|'.join(re.escape(quote[:end]) for end in range(len(quote)))})"


class GemmaBody:
    """One object in Gemma's format, fed in pieces; the counterpart of `JsonBody`. `quote` delimits strings."""

    def __init__(self, quote: str = STRING_TOKEN, *, lenient: bool = True) -> None:
        self.quote = quote
        self._outside, self._in_quotes = _compile_outside(quote), _compile_inside(quote)
        self._json = JsonBody(lenient=lenient)
        self._inside: re.Pattern[str] | None = None  # pattern for the rest of the open string
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
        """True if the text so far ends inside a string."""
        return self._inside is not None

    def text(self) -> str:
        """Return the object as strict JSON (once `done`)."""
        return self._json.text()

    def discard(self) -> None:
        """Discard the text so far, because only the end is needed."""
        self._json.discard()

    def close(self) -> bool:
        """Close everything that is open, if the text was cut off in or after a value."""
        return self._json.close()

    def feed(self, text: str, at: int, *, final: bool = False) -> int:
        """Parse `text` from `at` on; return the end of the parsed part, as `JsonBody.feed` does."""
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
        """Feed a piece of a string between Gemma's quotes."""
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
            self._error = f"{piece!r} in place of a value, a key or their end"
        else:
            self._forward(piece)

    def _forward(self, piece: str) -> None:
        self._json.feed(piece, 0, final=True)


def close_last_string(text: str, quote: str = STRING_TOKEN) -> str:
    """Close the last string if only the brace of the object follows; otherwise return the text unchanged.

    This fails if text in the string looks like another key.
    """
    before, token, last = text.rpartition(quote)
    value = last.removesuffix("}")
    unsure = value == last or value.count("{") != value.count("}") or _ANOTHER_KEY.search(value)
    if text.count(quote) % 2 == 0 or unsure:
        return text
    return f"{before}{token}{value}{quote}}}"


def write(value: Any, quote: str = STRING_TOKEN) -> str:
    """Render a JSON value in Gemma's format, or as plain JSON if a string contains the delimiter."""
    if quote in json.dumps(value, ensure_ascii=False).replace('\\"', '"'):
        return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return (
                "{" + ",".join(f"{_render_key(key, quote)}:{write(entry, quote)}" for key, entry in value.items()) + "}"
            )
        case list():
            return "[" + ",".join(write(entry, quote) for entry in value) + "]"
    return json.dumps(value)


def _render_key(key: str, quote: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else write(key, quote)
