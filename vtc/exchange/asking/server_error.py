"""Parse a server's error into statements: one per text in it.

A path in a separate field (`param`) is put before the text, as if the text named it:

{"error": {"message": "not permitted", "param": "seed"}}  ->  "seed: not permitted", "not permitted", "seed"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from vtc.exchange.asking.quotations import SentText
from vtc.json_text import decode_json

MAX_ERROR_CHARACTERS = 4000
"""Characters of an error's statements that are parsed."""
MAX_STATEMENTS = 64
MAX_DEPTH_OF_ERROR = 12

_FIELD_PAIRS = (("param", "message"), ("loc", "msg"), ("field", "description"), ("path", "message"), ("param", "code"))
"""Pairs of fields in errors of OpenAI, FastAPI, Google, Zod and OpenAI: the path, and its problem."""
_IGNORED_FIELDS = ("input", "ctx", "url", "type", "failed_generation", "flagged_input")
"""Fields of errors (Pydantic, Groq, OpenRouter) that repeat sent or generated text, or add no information."""
_QUOTING_FIELDS = ("metadata",)
"""Fields in which a gateway repeats the error of its provider (OpenRouter)."""
_ERROR_FIELDS = ("error", "message", "detail")
"""Names of fields that hold an error."""
_QUOTES = re.compile(r"[`'\"“”‘’\\]+")
_PYTHON_LOC = re.compile(r"'loc': ?[\[(]([^()]{0,600}?)[\])], ?'msg': ?'")
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
    paths: frozenset[str]
    """Paths in the error's own fields: `param`, `loc` …"""

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """The texts without request ids: equal for an error and its repetition."""
        return tuple(_ID.sub("#", text) for text in self.texts)

    def names_field(self, *names: str) -> bool:
        """Return True if the error has one of these paths in a separate field (`param`, `loc`), not only in a text."""
        return any(name in self.paths for name in names if name)

    @property
    def texts(self) -> Sequence[str]:
        """The texts of all statements."""
        return [statement.text for statement in self.statements]


def read_error(error: bytes, sent: SentText | None = None) -> ServerError:
    """Parse an error into statements, without text repeated from the request that was `sent`.

    An error that is no JSON is one text.
    """
    try:
        value = decode_json(error, "replace")
    except ValueError:
        value = error.decode(errors="replace")
    reader = _ErrorReader()
    found = dict.fromkeys(islice(reader.read_statements(value), MAX_STATEMENTS))
    remaining, statements = MAX_ERROR_CHARACTERS, []
    for text, is_own in found:
        if remaining <= 0:
            break
        start = text[: 2 * MAX_ERROR_CHARACTERS]
        normalized = reader.normalize(sent.remove_from(start) if sent else start)[:remaining]
        remaining -= len(normalized)
        if normalized:
            statements.append(Statement(normalized, is_own))
    return ServerError(statements, frozenset(reader.paths))


class _ErrorReader:
    """Parses one error."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def read_statements(self, value: Any, depth: int = 0, *, is_own: bool = True) -> Iterator[tuple[str, bool]]:
        """Yield each text of a value, and False if the server repeats it from its provider, else True."""
        if depth > MAX_DEPTH_OF_ERROR:
            return
        match value:
            case str():
                before, inner, after = _split_quoted(value)
                own = is_own and not _RELAYED.search(before)
                yield from ((text, own) for text in (before, after) if text)
                if inner is not None:
                    yield from self.read_statements(inner, depth + 1, is_own=False)
            case list():
                for part in value:
                    yield from self.read_statements(part, depth + 1, is_own=is_own)
            case dict():
                for path_key, text_key in _FIELD_PAIRS:
                    place, text = value.get(path_key), value.get(text_key)
                    path = self._format_path(place) if place and isinstance(text, str) else ""
                    if path:
                        yield f"{path}: {text}", is_own
                for name, part in value.items():
                    if name not in _IGNORED_FIELDS:
                        yield from self.read_statements(part, depth + 1, is_own=is_own and name not in _QUOTING_FIELDS)

    def normalize(self, text: str) -> str:
        """Return a text with uniform quotes and dotted paths."""
        text = _QUOTES.sub("'", text)
        text = _PYTHON_LOC.sub(lambda match: f"\n{self._format_path(re.findall(r'[\w$-]+', match[1]))}: ", text)
        return re.sub(r"[ \t]+", " ", text.replace(" -> ", "."))

    def _format_path(self, place: Any) -> str:
        """Join the parts of a path with dots; skip parts that are no names, for example Pydantic's kinds."""
        parts = place if isinstance(place, list) else [place]
        path = ".".join(str(part) for part in parts if re.fullmatch(r"[\w$.\[\]-]{1,200}", str(part)))
        self.paths.add(path)
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
        if isinstance(fields, dict) and (not after or any(name in fields for name in _ERROR_FIELDS)):
            return text[:begin].strip(), inner, after
    return text, None, ""
