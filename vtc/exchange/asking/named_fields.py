"""Read which parts of a request a server's refusal names, and what corrects it.

    error of the server -> statements -> rows of words -> places in what was sent -> corrections

The words of servers stand in `named_fields.yaml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from vtc.apis.fields import at, raw_fields
from vtc.exchange.asking.corrections import EVERY, Correction, CorrectionScope, Deed, Fields, Part, RequestParts, limits
from vtc.json_text import decode
from vtc.profiles.document import table

MOST_WORDS = 4000
"""Characters of a server's error that are looked at."""
MOST_STATEMENTS = 64
MOST_DEPTH = 12
"""Levels of a body, and of an error, in which a name is looked for."""
_QUOTES = re.compile(r"[`'\"“”‘’\\]+")


# The words


_NUMBER = r"-?\d+(?:\.\d+)?"
_LISTED = r"(?:⟨[^⟩]*⟩|'[^'\n]{1,80}'|(?<![⟨'\w=.-])[\w=.-]+\d)"
"""An entry of a list of names, of which some may be no field of the request."""
_HOLES = {
    **{name: rf"⟨(?P<{name}>[^⟩]*)⟩" for name in ("name", "at", "second")},
    "names": rf"(?P<names>{_LISTED}(?:(?:,\s?| )(?:and |or )?{_LISTED})*+)",
    "use": r"['⟨](?P<use>[A-Za-z_]\w*)['⟩]",
    **{name: rf"(?P<{name}>{_NUMBER})(?!\w)" for name in ("least", "most")},
    "words": r"(?P<words>'?[\w-]++'?(?:(?:,? (?:and|or) |, ?|\|)'?[\w-]++'?)*)",
}
"""What the holes of an expression find; names of fields are marked before (`_marked`)."""


@cache
def _pattern(words: str) -> re.Pattern[str]:
    """Compile an expression with holes. Raises ValueError."""
    try:
        return re.compile(re.sub(r"\{(\w+)\}", lambda hole: _HOLES.get(hole[1], hole[0]), words), re.I)
    except re.error as error:
        raise ValueError(f"{error}: {words}") from None


class CorrectionRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words by which servers name what they refuse, and what is done about it."""

    do: Deed
    words: tuple[str, ...]
    paths: tuple[str, ...] = ()
    """Dotted ones, where the words name none."""
    headers: tuple[str, ...] = ()
    """The same in headers: `header.flag`."""
    where: dict[str, tuple[Any, ...]] = {}
    beside: str = ""
    to: Any = None
    kept: bool = True
    """False for what lies in the conversation, where the words name no path."""
    value_alone: bool = False
    """True if the value that was sent is what is refused, and no other one of the field."""

    def __post_init__(self) -> None:
        for words in self.words:
            _pattern(words)

    def corrections(self, text: str, marked: str, sent: Mapping[Part, Any]) -> Iterator[Correction]:
        """List what an error, whose names are `marked`, teaches about the parts of the request that was `sent`."""
        if not self.is_fixed:
            for match in chain.from_iterable(_pattern(words).finditer(marked) for words in self.words):
                yield from self._named(match.groupdict(), sent)
        elif any(_pattern(words).search(text) for words in self.words):
            yield from (
                Correction(self.do, path, self.to, self.beside, self.where, kept=self.kept, of=part)
                for part, path in self._fixed
            )

    @property
    def is_fixed(self) -> bool:
        """True if its words name no place."""
        return bool(self.paths or self.headers)

    @property
    def _fixed(self) -> list[tuple[Part, tuple[str, ...]]]:
        """List the places of such a row."""
        paths: dict[Part, tuple[str, ...]] = {"body": self.paths, "headers": self.headers}
        return [(part, tuple(path.split("."))) for part in paths for path in paths[part]]

    def _named(self, named: Mapping[str, str | None], sent: Mapping[Part, Any]) -> Iterator[Correction]:
        """List the corrections of what was named."""
        name, second = named.get("name"), named.get("second")
        if name and second:
            yield from _one_of_two(sent["body"], _keys(name), _keys(second))
            return
        for each in [name] if name else re.findall("⟨([^⟩]*)⟩", named.get("names") or ""):
            part, paths = _places_in(sent, _keys(named.get("at") or "") + _keys(each))
            values = {path: (at(sent[part], ".".join(path)),) if self.value_alone else () for path in paths}
            yield from (Correction(self.do, path, self._to(named), of=part, values=values[path]) for path in paths)

    def _to(self, named: Mapping[str, str | None]) -> Any:
        """Return what the value or the name is to be, by what was named."""
        match self.do:
            case "rename":
                return named["use"]
            case "keep_within":
                bounds = (named.get("least"), named.get("most"))
                least, most = (decode(bound.encode()) if bound else None for bound in bounds)
                return least, most - 1 if named.get("exclusive") and isinstance(most, int) else most
            case "spell":
                return tuple(re.findall(r"[\w-]+", re.sub(r"\b(?:and|or)\b", " ", named["words"] or "")))
        return None


class NamedFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """`named_fields.yaml`."""

    pairs: tuple[tuple[str, str], ...]
    """Fields of an error: one that says where, and one that says what is wrong there."""
    rows: tuple[CorrectionRow, ...]

    @cached_property
    def prose(self) -> frozenset[str]:
        """The words of expressions with holes: where no quotes stand around it, such a word is prose and no name."""
        expressions = " ".join(words for row in self.rows if not row.is_fixed for words in row.words)
        return frozenset(re.findall("[a-z]+", re.sub(r"\{\w+\}", " ", expressions)))


@cache
def _named_fields() -> NamedFields:
    """Read `named_fields.yaml`: no request needs it, only a refusal."""
    return table(Path(__file__).with_suffix(".yaml"), NamedFields)


def taught(error: Sequence[str], body: bytes, headers: Fields, scope: CorrectionScope) -> Mapping[str, Correction]:
    """Read which parts of a request that was sent an error names; return what corrects it, by its words for people.

    `error` is what it says (`statements`), `headers` are the flags of the request (`corrections.flags_in`). Nothing
    that changes nothing is returned, one correction for each path, and none for what holds a part that is corrected.
    """
    text = "\n".join(error)
    for name in headers:  # which has no upper and lower case
        text = re.sub(re.escape(name), name, text, flags=re.IGNORECASE)
    sent: Mapping[Part, Any] = {"body": decode(body), "headers": headers}
    parts = RequestParts(raw_fields(body) or {}, headers)
    marked = _marked(text, sent)
    corrections: dict[str, Correction] = {}
    places: set[tuple[str, ...]] = set()
    for correction in chain.from_iterable(row.corrections(text, marked, sent) for row in _named_fields().rows):
        place = correction.of, *correction.path
        is_new = not any(corrected[: len(place)] == place for corrected in places)
        if is_new and (new := correction.applied(parts, scope)) is not parts:
            corrections[str(correction)], parts = correction, new
            places.add(place)
    return corrections


def statements(error: bytes) -> Sequence[str]:
    """List what an error says: its texts, and what it names in fields of their own, as if its text named that."""
    try:
        value = decode(error, "replace")
    except ValueError:
        value = error.decode(errors="replace")
    left, texts = MOST_WORDS, []
    for text in dict.fromkeys(islice(_statements(value), MOST_STATEMENTS)):
        texts.append(_plain(text)[:left])
        left -= len(texts[-1])
    return [*filter(None, texts)]


def _plain(text: str) -> str:
    """Write a text with quotes of one kind, and paths with dots."""
    text = _QUOTES.sub("'", text[: 2 * MOST_WORDS])
    text = _LOC.sub(lambda match: f"\n{_dotted(re.findall(r'[\w$-]+', match[1]))}: ", text)
    return re.sub(r"[ \t]+", " ", text.replace(" -> ", "."))


_LOC = re.compile(r"'loc': ?[\[(]([^()]{0,600}?)[\])], ?'msg': ?'")
"""Pydantic's list of errors, as Python prints it."""
_NO_WORDS = ("input", "ctx", "url", "type", "failed_generation", "flagged_input")
"""Fields of errors (Pydantic, Groq, OpenRouter) that hold what was sent or generated, which may be any text, or that
say nothing more."""


def _statements(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > MOST_DEPTH:
        return
    match value:
        case str():
            before, inner, after = _parted(value)
            yield from filter(None, (before, after))
            if inner is not None:
                yield from _statements(inner, depth + 1)
        case list():
            for part in value:
                yield from _statements(part, depth + 1)
        case dict():
            for where, says in _named_fields().pairs:
                place, words = value.get(where), value.get(says)
                if place and isinstance(words, str):
                    yield f"{_dotted(place)}: {words}"
            for name, part in value.items():
                if name not in _NO_WORDS:
                    yield from _statements(part, depth + 1)


def _parted(text: str) -> tuple[str, Any, str]:
    """Part a text from an error that it quotes as JSON, as gateways do; None if it quotes none."""
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


_JSON = json.JSONDecoder(strict=False)
_ERRORS = ("error", "message", "detail")
"""Names of fields in which an error stands."""


def _dotted(place: Any) -> str:
    """Write the place of a part as a path; what is no name in it, as the kinds of Pydantic, is left out."""
    parts = place if isinstance(place, list) else [place]
    return ".".join(str(part) for part in parts if re.fullmatch(r"[\w$.\[\]-]+", str(part)))


# Where in the body that is


_UNMARKED = str.maketrans({"⟨": "'", "⟩": "'"})
_PATH = re.compile(r"(')?(?<![\w$])([A-Za-z_$][\w$-]*+(?:[.\[][\w$*-]++\]?+)*+)(?(1)'?)")


def _marked(text: str, sent: Mapping[Part, Any]) -> str:
    """Mark what may be the name of a field that was sent, or a path to one: `⟨name⟩` in the place of its quotes."""
    paths = [path for part in sent.values() for path in _below(part, ())]
    known, prose = {name for path in paths for name in _names_of(path)}, _named_fields().prose
    # Of messages and tools much is said in such words that names no field.
    text = _with_spaced(text.translate(_UNMARKED), {path[-1] for path in paths if EVERY not in path})

    def mark(match: re.Match[str]) -> str:
        path = match[2]
        name = next((key for key in reversed(_keys(path)) if not key.isdigit() and key != EVERY), "")
        is_prose = not match[1] and (path in prose or path.removesuffix("s") in prose)
        return match[0] if is_prose or _folded(name) not in known else f"⟨{path}⟩"

    return _PATH.sub(mark, text)


def _with_spaced(text: str, names: Collection[str]) -> str:
    """Quote, as they are spelled, names that a text has in several words: `Thinking level` for `thinkingLevel`."""
    spelled = {_SEAM.sub(" ", name).lower(): name for name in names if _SEAM.search(name)}
    if not spelled:
        return text
    longest_first = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b", re.I)
    return pattern.sub(lambda match: f"'{spelled[match[0].lower()]}'", text)


_SEAM = re.compile(r"(?<=[a-z])(?:_|(?=[A-Z]))")
"""Where a name of several words is parted."""


def _keys(path: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[\w$*-]+", path))


def _one_of_two(sent: Any, first: tuple[str, ...], second: tuple[str, ...]) -> Iterator[Correction]:
    """Leave out one of two that stand side by side: the second, if it may be."""
    for name, kept in ((second, first), (first, second)):
        for path in _places(sent, name):
            yield Correction("leave_out", path, beside=_spelling(sent, path, kept[-1]))


def _spelling(sent: Any, path: Sequence[str], name: str) -> str:
    """Spell a field as it is spelled beside what a path leads to."""
    return next((place[-1] for place in _places(sent, (*path[:-1], name)) if place[:-1] == path[:-1]), name)


def _places_in(sent: Mapping[Part, Any], names: Sequence[str]) -> tuple[Part, Sequence[tuple[str, ...]]]:
    """Find the part of a request that has what is named, and where it stands there: the body, else the headers."""
    places = {part: [*_places(value, names)] for part, value in sent.items()}
    return ("body", places["body"]) if places["body"] else ("headers", places["headers"])


def _places(sent: Any, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Find where in a body that was sent a part stands, by its name or by its path in the server's words."""
    if place := _place(sent, names):
        yield place
    elif names:
        # A server behind the one that is asked may name a path that is not in this body: look for its end.
        paths = [*_below(sent, ())]
        known = {_folded(path[-1]) for path in paths}
        *above, last = map(_folded, names)
        first = next(filter(known.__contains__, above), None)
        ends = (path for path in paths if last in _names_of(path))
        yield from dict.fromkeys(path for path in ends if first is None or first in map(_folded, path[:-1]))


def _names_of(path: Sequence[str]) -> Iterator[str]:
    """List how the field at a path may be named: by its name, or with that of its object (`reasoningEffort`)."""
    yield _folded(path[-1])
    if len(path) > 1:
        yield _folded("_".join(path[-2:]))


def _place(node: Any, names: Sequence[str]) -> tuple[str, ...] | None:
    """Follow a path, whose server may name what no body has: a kind of message or of tool, `body`; any index is all."""
    if not names:
        return ()
    head, *rest = names
    if isinstance(node, list):
        rest = rest if head == EVERY or head.isdigit() else [*names]
        places = (_place(item, rest) for item in node)
        return next(((EVERY, *place) for place in places if place is not None), None)
    if not isinstance(node, dict):
        return None
    key = _key(node, head)
    below = _place(node[key], rest) if key is not None else None
    if key is not None and below is not None:
        return (key, *below)
    return _place(node, rest) if rest else None


def _below(node: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """List the paths of all fields of a body."""
    if len(above) >= MOST_DEPTH:
        return
    if isinstance(node, list):
        for item in node:
            yield from _below(item, (*above, EVERY))
    if isinstance(node, dict):
        for key, part in node.items():
            yield (*above, key)
            if not (above and key in limits().free_names):
                yield from _below(part, (*above, key))


def _key(fields: Mapping[str, Any], name: str) -> str | None:
    """Find the field of a name, also in the other spelling (`top_k`, `topK`)."""
    if name in fields:
        return name
    return next((key for key in fields if _folded(key) == _folded(name)), None)


@lru_cache(1024)
def _folded(name: str) -> str:
    return name[:1] + name[1:].replace("_", "").lower()
