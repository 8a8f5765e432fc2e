"""Read which parts of a request a server's refusal names, and what corrects it.

    error of the server -> statements -> rows of words -> places in what was sent -> corrections

The words of servers stand in `named_fields.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vtc.apis.fields import at, raw_fields
from vtc.exchange.asking.corrections import (
    EVERY,
    Correction,
    CorrectionScope,
    Deed,
    Fields,
    RequestPart,
    RequestParts,
    Speaker,
    fold_name,
    limits,
)
from vtc.exchange.asking.outline import FieldPath as KeyPath
from vtc.exchange.asking.outline import RequestOutline, split_path
from vtc.exchange.asking.server_error import ServerError
from vtc.exchange.asking.words import read_number
from vtc.json_text import decode
from vtc.profiles.document import table

NO_BOUNDS = (None, None)
FIELDS_OF_THE_ERROR = ""
"""Stands for the row of what an error names in fields of its own."""


# The words


_NUMBER = r"-?[0-9]{1,19}(?:\.[0-9]{1,19})?"
"""A number of which no digit is left out: `words.read_number` takes no longer one."""
_LISTED = r"(?:⟨[^⟩]*⟩|'[^'\n]{1,80}'|(?<![⟨'\w=.-])[\w=.-]+\d)"
"""An entry of a list of names, of which some may be no field of the request."""
_HOLES = {
    **{name: rf"⟨(?P<{name}>[^⟩]*)⟩" for name in ("name", "at", "second")},
    "names": rf"(?P<names>{_LISTED}(?:(?:,\s?| )(?:and |or )?{_LISTED})*+)",
    "use": r"['⟨](?P<use>[A-Za-z_]\w*)['⟩]",
    **{name: rf"(?P<{name}>{_NUMBER})(?!\w|\.[0-9])" for name in ("least", "most")},
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


class NamedCorrection(NamedTuple):
    """A correction, and how an error names it."""

    correction: Correction
    row: str
    """The first expression of its row; of a row with places of its own the one that fits, which others may share."""
    places: tuple[str, ...] = ()
    """The names and paths in the words of the error."""


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
    unknown: bool = False
    """True if the words say that the server does not know the field."""

    def __post_init__(self) -> None:
        for words in self.words:
            _pattern(words)

    def corrections(
        self, text: str, marked: str, sent: Mapping[RequestPart, Any], outline: RequestOutline
    ) -> Iterator[NamedCorrection]:
        """List what an error, whose names are `marked`, teaches about the parts of the request that was `sent`."""
        if not self.is_fixed:
            for match in chain.from_iterable(_pattern(words).finditer(marked) for words in self.words):
                named = match.groupdict()
                places = tuple(filter(None, (named.get("name"), named.get("at"))))
                for correction in self._list_corrections(named, sent, outline):
                    yield NamedCorrection(correction, self.words[0], places)
        elif found := next((words for words in self.words if _pattern(words).search(text)), None):
            for part, path in self._fixed:
                correction = Correction(self.do, path, self.to, self.beside, self.where, kept=self.kept, of=part)
                yield NamedCorrection(correction, found)

    @property
    def is_fixed(self) -> bool:
        """True if its words name no place."""
        return bool(self.paths or self.headers)

    @property
    def _fixed(self) -> list[tuple[RequestPart, tuple[str, ...]]]:
        """List the places of such a row."""
        paths: dict[RequestPart, tuple[str, ...]] = {"body": self.paths, "headers": self.headers}
        return [(part, tuple(path.split("."))) for part in paths for path in paths[part]]

    def _list_corrections(
        self, named: Mapping[str, str | None], sent: Mapping[RequestPart, Any], outline: RequestOutline
    ) -> Iterator[Correction]:
        """List the corrections of the fields that a match names."""
        name, second = named.get("name"), named.get("second")
        if name and second:
            yield from _drop_one_of_two(outline, split_path(name), split_path(second))
            return
        to = self._new_value(named)
        for each in [name] if name else re.findall("⟨([^⟩]*)⟩", named.get("names") or ""):
            part, paths = outline.find(split_path(named.get("at") or "") + split_path(each))
            for path in paths:
                if self._is_allowed(path[-1], to):
                    values = (at(sent[part], ".".join(path)),) if self.value_alone else ()
                    if all(map(_is_no_secret, values)):
                        yield Correction(self.do, path, to, of=part, values=values)

    def _is_allowed(self, name: str, to: Any) -> bool:
        """False for a new name, a bound or words that no correction may set."""
        match self.do:
            case "rename":
                return limits().may_rename(name, str(to))
            case "keep_within":
                return tuple(to) != NO_BOUNDS
            case "spell":
                return bool(to)
        return True

    def _new_value(self, named: Mapping[str, str | None]) -> Any:
        """Return what the value or the name is to be, by what was named."""
        match self.do:
            case "rename":
                return named["use"]
            case "keep_within":
                least, most = read_number(named.get("least")), read_number(named.get("most"))
                return least, most - 1 if named.get("exclusive") and isinstance(most, int) else most
            case "spell":
                words = re.findall(r"[\w-]+", re.sub(r"\b(?:and|or)\b", " ", named["words"] or ""))
                return tuple(filter(limits().is_on_a_scale, words))
        return None


def _is_no_secret(value: Any) -> bool:
    """True for a value that may be logged and remembered: a number, true, false, or a word that says how much."""
    return isinstance(value, int | float) or limits().is_on_a_scale(value)


class NamedFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """`named_fields.yaml`."""

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


type Attempt = Mapping[str, Correction]
"""Corrections that are tried together, by their words for people."""


def find_attempts(error: ServerError, body: bytes, headers: Fields, scope: CorrectionScope) -> Sequence[Attempt]:
    """Read which parts of a request that was sent an error names; return what corrects it, in the order of trials.

    All that the error names in fields of its own (`param`, `loc`) is the first attempt; then what each row names is
    one. `headers` are the flags of the request (`corrections.flags_in`). Nothing that changes nothing is returned, one
    correction for each path, and none for what holds a part that is corrected.
    """
    sent: Mapping[RequestPart, Any] = {"body": decode(body), "headers": headers}
    parts, outline = RequestParts(raw_fields(body) or {}, headers), RequestOutline(sent)
    attempts: dict[str, dict[str, Correction]] = {FIELDS_OF_THE_ERROR: {}}
    seen: set[str] = set()
    corrected: set[tuple[str, ...]] = set()
    for correction, row, names in _list_named(error, sent, outline):
        if (line := str(correction)) in seen:  # many names may lead to one place
            continue
        seen.add(line)
        place = correction.of, *correction.path
        is_new = not any(other[: len(place)] == place for other in corrected)
        if is_new and (new := correction.apply(parts, scope)) is not parts:
            parts = new
            corrected.add(place)
            trial = FIELDS_OF_THE_ERROR if error.names_in_a_field(*names) else row
            attempts.setdefault(trial, {})[line] = correction
    return [attempt for attempt in attempts.values() if attempt]


def _list_named(
    error: ServerError, sent: Mapping[RequestPart, Any], outline: RequestOutline
) -> Iterator[NamedCorrection]:
    """List the corrections of all that an error names."""
    speakers: Mapping[Speaker, Sequence[str]] = {
        "server": [statement.text for statement in error.statements if statement.is_own],
        "provider": [statement.text for statement in error.statements if not statement.is_own],
    }
    for speaker, texts in speakers.items():
        text = "\n".join(texts)
        for name in sent["headers"]:  # which has no upper and lower case
            text = re.sub(re.escape(name), name, text, flags=re.IGNORECASE)
        marked = _mark_names(text, outline)
        for row in _named_fields().rows if text else ():
            for named in row.corrections(text, marked, sent, outline):
                of_speaker = msgspec.structs.replace(named.correction, unknown_to=speaker)
                yield named._replace(correction=of_speaker) if row.unknown else named


# Where in the body that is


_UNMARKED = str.maketrans({"⟨": "'", "⟩": "'"})
_PATH = re.compile(r"(')?(?<![\w$])([A-Za-z_$][\w$-]*+(?:[.\[][\w$*-]++\]?+)*+)(?(1)'?)")


def _mark_names(text: str, outline: RequestOutline) -> str:
    """Mark what may be the name of a field that was sent, or a path to one: `⟨name⟩` in the place of its quotes."""
    known, prose = outline.names, _named_fields().prose
    paths = chain.from_iterable(outline.paths.values())
    # Of messages and tools much is said in such words that names no field.
    text = _quote_spaced_names(text.translate(_UNMARKED), {path[-1] for path in paths if EVERY not in path})

    def mark(match: re.Match[str]) -> str:
        path = match[2]
        name = next((key for key in reversed(split_path(path)) if not key.isdigit() and key != EVERY), "")
        is_prose = not match[1] and (path in prose or path.removesuffix("s") in prose)
        return match[0] if is_prose or fold_name(name) not in known else f"⟨{path}⟩"

    return _PATH.sub(mark, text)


def _quote_spaced_names(text: str, names: Collection[str]) -> str:
    """Quote, as they are spelled, names that a text has in several words: `Thinking level` for `thinkingLevel`."""
    lower = text.lower()
    spelled = {_SEAM.sub(" ", name).lower(): name for name in names if _SEAM.search(name) and name.isascii()}
    spelled = {words: name for words, name in spelled.items() if words in lower}
    if not spelled:
        return text
    longest_first = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b", re.I | re.A)
    return pattern.sub(lambda match: f"'{spelled[match[0].lower()]}'", text)


_SEAM = re.compile(r"(?<=[a-z])(?:_|(?=[A-Z]))")
"""Where a name of several words is parted."""


def _drop_one_of_two(outline: RequestOutline, first: KeyPath, second: KeyPath) -> Iterator[Correction]:
    """Leave out one of two that stand side by side: the second, if it may be."""
    for name, kept in ((second, first), (first, second)):
        part, paths = outline.find(name)
        for path in paths if part == "body" else ():
            yield Correction("leave_out", path, beside=outline.find_sibling_spelling(path, kept[-1]))
