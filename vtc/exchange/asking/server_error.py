"""Parse a server's error into statements: one per text in it.

Rules (`rejection_rules.py`) search the statements, and those about windows and limits the error's JSON as a whole, too.

A path in a separate field (`param`) is put before the text, as if the text named it:

{"error": {"message": "not permitted", "param": "seed"}}  ->  "seed: not permitted", "not permitted", "seed"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from vtc.exchange.asking.named_places import describe_places
from vtc.exchange.asking.quotations import QUOTED_TEXT, SentText
from vtc.json_text import decode_json, encode_json
from vtc.reporting import hints

MAX_ERROR_CHARACTERS = 4000
"""Characters of an error's statements that are parsed."""
MAX_STATEMENTS = 64
MAX_DEPTH_OF_ERROR = 12
MAX_MESSAGE_CHARACTERS = 2000
MAX_WHOLE_CHARACTERS = 8000
_MAX_WHOLE_DEPTH = 8

_FIELD_PAIRS = (("param", "message"), ("loc", "msg"), ("field", "description"), ("path", "message"), ("param", "code"))
"""Pairs of fields in errors of OpenAI, FastAPI, Google, Zod and OpenAI: the path, and its problem."""
_IGNORED_FIELDS = ("input", "ctx", "url", "type", "failed_generation", "flagged_input")
"""Fields of errors (Pydantic, Groq, OpenRouter) that repeat sent or generated text, or add no information."""
_ECHO_FIELDS = frozenset(
    ("input", "input_value", "body", "ctx", "messages", "contents", "prompt", "failed_generation", "url")
)
"""Fields in which errors repeat the request (FastAPI's `detail`); the error as a whole is searched without them."""
_QUOTING_FIELDS = ("metadata",)
"""Fields in which a gateway repeats the error of its provider (OpenRouter)."""
_ERROR_FIELDS = ("error", "message", "detail")
"""Names of fields that hold an error."""
_QUOTES = re.compile(r"[`'\"“”‘’\\]+")
_AROUND_NAMES = re.compile(r"(?<!\w)[`'\"“”‘’]+|[`'\"“”‘’]+(?!\w)")
"""Quotes around a name, which only some servers write."""
_PYTHON_LOC = re.compile(r"'loc': ?[\[(]([^()]{0,600}?)[\])], ?'msg': ?'")
"""Pydantic's list of errors in Python's notation."""
_POINTER = re.compile(r"(?<=')#?/((?!v\d|api\b)[A-Za-z_]\w*(?:/\w+)*)(?=')", re.A)
"""A JSON pointer in quotes."""
_QUOTED_NAME = re.compile(r"'[A-Za-z_$][\w$./\[\]-]{0,80}'")
_VAGUE_PATHS = ("messages", "input", "contents", "tools", "body")
"""Paths that name no part of a request."""
_RELAYED = re.compile(r"\w(?:Exception|Error) - |provider|upstream", re.I)
"""Text in which a gateway repeats the error of its provider (LiteLLM)."""
_ID = re.compile(r"\breq_\w+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{16,}\b|(?<=request id: )\w+")
_JSON = json.JSONDecoder(strict=False)


class Statement(NamedTuple):
    """One text of an error, with uniform quotes and dotted paths."""

    text: str
    is_own: bool
    """False for an error of a provider that a gateway quotes."""


@dataclass(frozen=True)
class ServerError:
    """A parsed error of a server."""

    status: int
    message: str
    """The error's message in one line."""
    statements: Sequence[Statement] = ()
    paths: frozenset[str] = frozenset()
    """Paths in the error's own fields: `param`, `loc` …"""
    whole: str = ""
    """The error's JSON, without fields that repeat the request."""
    api: str = ""
    """The API of the rejected request; empty if unknown."""
    places: Sequence[str] = ()
    """The places in the request that the error names (`named_places`)."""

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """The texts of the statements without request ids: equal for an error and its repetition."""
        return tuple(_ID.sub("#", statement.text) for statement in self.statements)

    def names_field(self, *names: str) -> bool:
        """Return True if the error has one of these paths in a separate field (`param`, `loc`), not only in a text."""
        return any(name in self.paths for name in names if name)

    @cached_property
    def names_cause(self) -> bool:
        """True if the error names something: a field in `param`, a name in quotes, a place, or text of the request."""
        return (
            any(path.split(".")[0] not in _VAGUE_PATHS or "." in path for path in self.paths if path)
            or any(_QUOTED_NAME.search(text) or QUOTED_TEXT.strip() in text for text, _ in self.statements)
            or any(place.count(".") > 1 for place in self.places)
        )

    @cached_property
    def whole_and_texts(self) -> Sequence[str]:
        """The error as a whole, its message, and its statements."""
        return [self.whole, *self._texts.values()]

    @cached_property
    def spellings(self) -> Sequence[str]:
        """The message and the statements, as sent and without quotes around names."""
        return [*dict.fromkeys((*self._texts.values(), *self._texts))]

    @cached_property
    def _texts(self) -> dict[str, str]:
        """The message and the statements, by their spelling without quotes around names."""
        texts: dict[str, str] = {}
        for text in (self.message, *(statement.text for statement in self.statements)):
            texts.setdefault(_AROUND_NAMES.sub("", " ".join(text.split())), text)
        return texts


def read_error(error: bytes, status: int, api: str = "", sent: SentText | None = None) -> ServerError:
    """Parse an error of a request in an API, without text repeated from the request that was `sent`.

    An error that is no JSON is one text.
    """
    sent = sent or SentText(None)
    try:
        value = decode_json(error, "replace")
        whole = value if isinstance(value, str) else encode_json(_without_echoes(value, _MAX_WHOLE_DEPTH)).decode()
    except ValueError:
        value = whole = error[: 2 * MAX_WHOLE_CHARACTERS].decode(errors="replace")
    reader = _ErrorReader()
    found = dict.fromkeys(islice(reader.read_statements(value), MAX_STATEMENTS))
    remaining, statements = MAX_ERROR_CHARACTERS, []
    for text, is_own in found:
        if remaining <= 0:
            break
        normalized = reader.normalize(sent.remove_from(text[: 2 * MAX_ERROR_CHARACTERS]))[:remaining]
        remaining -= len(normalized)
        if normalized:
            statements.append(Statement(normalized, is_own))
    return ServerError(
        status,
        sent.remove_from(hints.extract_message(error, MAX_MESSAGE_CHARACTERS)),
        statements,
        frozenset(reader.paths),
        sent.remove_from(whole[:MAX_WHOLE_CHARACTERS]),
        api,
        describe_places([statement.text for statement in statements], sent.body),
    )


def _without_echoes(value: Any, depth: int) -> Any:
    """Drop the fields of an error that repeat the request, because these may contain anything."""
    if not depth:
        return None
    if isinstance(value, list):
        return [_without_echoes(item, depth - 1) for item in value[:_MAX_WHOLE_DEPTH]]
    if isinstance(value, dict):
        return {key: _without_echoes(item, depth - 1) for key, item in value.items() if key not in _ECHO_FIELDS}
    return value


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
        text = _POINTER.sub(lambda match: match[1].replace("/", "."), text)
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
