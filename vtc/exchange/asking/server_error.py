"""Parse a server's error into statements: its texts, and the paths in its fields, as if the text named them.

{"error": {"message": "not permitted", "param": "seed"}}  ->  "seed: not permitted", "not permitted", "seed"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from vtc.exchange.asking.quotations import SentText
from vtc.json_text import decode

MAX_ERROR_CHARACTERS = 4000
"""Characters of an error's statements that are parsed."""
MAX_STATEMENTS = 64
MAX_DEPTH_OF_ERROR = 12

_PLACES = (("param", "message"), ("loc", "msg"), ("field", "description"), ("path", "message"), ("param", "code"))
"""Pairs of fields in errors of OpenAI, FastAPI, Google, Zod and OpenAI: the path, and its problem."""
_NO_STATEMENTS = ("input", "ctx", "url", "type", "failed_generation", "flagged_input")
"""Fields of errors (Pydantic, Groq, OpenRouter) that repeat sent or generated text, or add no information."""
_QUOTED_IN = ("metadata",)
"""Fields in which a gateway quotes the error of its provider (OpenRouter)."""
_ERRORS = ("error", "message", "detail")
"""Names of fields that hold an error."""
_QUOTES = re.compile(r"[`'\"“”‘’\\]+")
_LOC = re.compile(r"'loc': ?[\[(]([^()]{0,600}?)[\])], ?'msg': ?'")
"""Pydantic's list of errors in Python's notation."""
_RELAYED = re.compile(r"\w(?:Exception|Error) - |provider|upstream", re.I)
"""Text in which a gateway repeats the error of its provider (LiteLLM)."""
_ID = re.compile(r"\breq_\w+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{16,}\b|(?<=request id: )\w+")
_JSON = json.JSONDecoder(strict=False)


class Statement(NamedTuple):
    """One text of an error, with uniform quotes and dotted paths."""

    text: str
    is_own: bool
    """False for an error of a provider that a gateway quotes."""


class ServerError(NamedTuple):
    """A parsed error of a server."""

    statements: Sequence[Statement]
    places: frozenset[str]
    """Paths in the error's own fields: `param`, `loc` …"""

    @property
    def words(self) -> tuple[str, ...]:
        """The texts without request ids, so that a repeated error is recognized."""
        return tuple(_ID.sub("#", text) for text in self.texts)

    def names_in_a_field(self, *names: str) -> bool:
        """Return True if one of these paths is in a field of the error: `param`, `loc`."""
        return any(name in self.places for name in names if name)

    @property
    def texts(self) -> Sequence[str]:
        """The texts of all statements."""
        return [statement.text for statement in self.statements]


def read_error(error: bytes, sent: SentText | None = None) -> ServerError:
    """Parse an error into statements, without text repeated from the request that was `sent`.

    An error that is no JSON is one text.
    """
    try:
        value = decode(error, "replace")
    except ValueError:
        value = error.decode(errors="replace")
    reader = _ErrorReader()
    found = dict.fromkeys(islice(reader.statements(value), MAX_STATEMENTS))
    left, statements = MAX_ERROR_CHARACTERS, []
    for text, is_own in found:
        if left <= 0:
            break
        said = text[: 2 * MAX_ERROR_CHARACTERS]
        plain = reader.plain(sent.remove_from(said) if sent else said)[:left]
        left -= len(plain)
        if plain:
            statements.append(Statement(plain, is_own))
    return ServerError(statements, frozenset(reader.places))


class _ErrorReader:
    """Parses one error."""

    def __init__(self) -> None:
        self.places: set[str] = set()

    def statements(self, value: Any, depth: int = 0, *, is_own: bool = True) -> Iterator[tuple[str, bool]]:
        """Yield the texts of a value, and whether the server itself wrote them."""
        if depth > MAX_DEPTH_OF_ERROR:
            return
        match value:
            case str():
                before, inner, after = _split_quoted(value)
                own = is_own and not _RELAYED.search(before)
                yield from ((text, own) for text in (before, after) if text)
                if inner is not None:
                    yield from self.statements(inner, depth + 1, is_own=False)
            case list():
                for part in value:
                    yield from self.statements(part, depth + 1, is_own=is_own)
            case dict():
                for where, says in _PLACES:
                    place, words = value.get(where), value.get(says)
                    if place and isinstance(words, str) and (path := self._format_path(place)):
                        yield f"{path}: {words}", is_own
                for name, part in value.items():
                    if name not in _NO_STATEMENTS:
                        yield from self.statements(part, depth + 1, is_own=is_own and name not in _QUOTED_IN)

    def plain(self, text: str) -> str:
        """Return a text with uniform quotes and dotted paths."""
        text = _QUOTES.sub("'", text)
        text = _LOC.sub(lambda match: f"\n{self._format_path(re.findall(r'[\w$-]+', match[1]))}: ", text)
        return re.sub(r"[ \t]+", " ", text.replace(" -> ", "."))

    def _format_path(self, place: Any) -> str:
        """Join the parts of a path with dots; skip parts that are no names, for example Pydantic's kinds."""
        parts = place if isinstance(place, list) else [place]
        path = ".".join(str(part) for part in parts if re.fullmatch(r"[\w$.\[\]-]{1,200}", str(part)))
        self.places.add(path)
        return path


def _split_quoted(text: str) -> tuple[str, Any, str]:
    """Split a text around an error that it quotes as JSON, as gateways do; the middle is None if it quotes none."""
    for bracket in "[{":
        begin = text.find(bracket)
        try:
            inner, end = _JSON.raw_decode(text, begin) if begin >= 0 else (None, 0)
        except (ValueError, RecursionError):
            continue
        after = text[end:].strip()
        fields = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(fields, dict) and (not after or any(name in fields for name in _ERRORS)):
            return text[:begin].strip(), inner, after
    return text, None, ""
