"""Find the parts of a request that a rejection names, and the corrections for them.

    error of the server -> statements -> rows of expressions -> places in the request -> corrections

The servers' words are in `named_fields.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vtc.apis.fields import get_at, split_raw_object
from vtc.exchange.asking.corrections import (
    EVERY,
    Correction,
    CorrectionKind,
    CorrectionScope,
    Fields,
    RequestPart,
    RequestParts,
    Speaker,
    fold_name,
    load_limits,
)
from vtc.exchange.asking.outline import FieldPath as KeyPath
from vtc.exchange.asking.outline import RequestOutline, split_path
from vtc.exchange.asking.server_error import ServerError
from vtc.exchange.asking.words import read_number
from vtc.json_text import decode_json
from vtc.profiles.document import load_table

NO_BOUNDS = (None, None)
FIELDS_OF_THE_ERROR = ""
"""Key of the attempt with all names in the error's own fields."""


_NUMBER = r"-?[0-9]{1,19}(?:\.[0-9]{1,19})?"
"""A complete number: `words.read_number` accepts no longer one."""
_LISTED = r"(?:⟨[^⟩]*⟩|'[^'\n]{1,80}'|(?<![⟨'\w=.-])[\w=.-]+\d)"
"""Matches an entry in a list of names, some of which may be no fields of the request."""
_HOLES = {
    **{name: rf"⟨(?P<{name}>[^⟩]*)⟩" for name in ("name", "at", "second")},
    "names": rf"(?P<names>{_LISTED}(?:(?:,\s?| )(?:and |or )?{_LISTED})*+)",
    "use": r"['⟨](?P<use>[A-Za-z_]\w*)['⟩]",
    **{name: rf"(?P<{name}>{_NUMBER})(?!\w|\.[0-9])" for name in ("least", "most")},
    "words": r"(?P<words>'?[\w-]++'?(?:(?:,? (?:and|or) |, ?|\|)'?[\w-]++'?)*)",
}
"""Expressions for the placeholders `{name}`, `{most}` … of a row. Names of fields are marked by ⟨⟩ before matching
(`_mark_names`)."""


@cache
def _compile_row(words: str) -> re.Pattern[str]:
    """Compile an expression with placeholders. Raises ValueError."""
    try:
        return re.compile(re.sub(r"\{(\w+)\}", lambda hole: _HOLES.get(hole[1], hole[0]), words), re.I)
    except re.error as error:
        raise ValueError(f"{error}: {words}") from None


class NamedCorrection(NamedTuple):
    """A correction, and how the error named its field."""

    correction: Correction
    row: str
    """Identifies the row that matched, by its first expression; a row with fixed paths by the matching one, because
    corrections of different rows with the same expression are tried together."""
    places: tuple[str, ...] = ()
    """The name and the path in the error's words."""


class CorrectionRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Expressions for parts that servers reject, and the correction."""

    do: CorrectionKind
    words: tuple[str, ...]
    paths: tuple[str, ...] = ()
    """Dotted paths, if the expressions name none."""
    headers: tuple[str, ...] = ()
    """Paths in headers, if the expressions name none: `header.flag`."""
    where: dict[str, tuple[Any, ...]] = {}
    beside: str = ""
    to: Any = None
    kept: bool = True
    """False if the cause lies in the conversation, for expressions that name no path."""
    value_alone: bool = False
    """True if only the value that was sent is rejected, not the field."""
    unknown: bool = False
    """True if the expressions say that the server does not know the field."""

    def __post_init__(self) -> None:
        for words in self.words:
            _compile_row(words)

    def list_corrections(
        self, text: str, marked: str, sent: Mapping[RequestPart, Any], outline: RequestOutline
    ) -> Iterator[NamedCorrection]:
        """Yield the corrections of the fields that an error names; `marked` is its text with names in ⟨⟩."""
        if not self.is_fixed:
            for match in chain.from_iterable(_compile_row(words).finditer(marked) for words in self.words):
                named = match.groupdict()
                places = tuple(filter(None, (named.get("name"), named.get("at"))))
                for correction in self._list_for_match(named, sent, outline):
                    yield NamedCorrection(correction, self.words[0], places)
            return
        found = next((words for words in self.words if _compile_row(words).search(text)), None)
        if found:
            for part, path in self._fixed_paths:
                correction = Correction(self.do, path, self.to, self.beside, self.where, is_general=self.kept, of=part)
                yield NamedCorrection(correction, found)

    @property
    def is_fixed(self) -> bool:
        """True if the row lists the paths itself; False if they are taken from the error."""
        return bool(self.paths or self.headers)

    @property
    def _fixed_paths(self) -> list[tuple[RequestPart, tuple[str, ...]]]:
        """The listed paths, with their part of the request."""
        paths: dict[RequestPart, tuple[str, ...]] = {"body": self.paths, "headers": self.headers}
        return [(part, tuple(path.split("."))) for part in paths for path in paths[part]]

    def _list_for_match(
        self, named: Mapping[str, str | None], sent: Mapping[RequestPart, Any], outline: RequestOutline
    ) -> Iterator[Correction]:
        """Yield the corrections of the fields in the groups of one match."""
        name, second = named.get("name"), named.get("second")
        if name and second:
            yield from _drop_one_of_two(outline, split_path(name), split_path(second))
            return
        to = self._read_new_value(named)
        for each in [name] if name else re.findall("⟨([^⟩]*)⟩", named.get("names") or ""):
            part, paths = outline.find(split_path(named.get("at") or "") + split_path(each))
            for path in paths:
                if self._is_allowed(path[-1], to):
                    values = (get_at(sent[part], ".".join(path)),) if self.value_alone else ()
                    if all(map(_is_no_secret, values)):
                        yield Correction(self.do, path, to, of=part, values=values)

    def _is_allowed(self, name: str, to: Any) -> bool:
        """Return False for a new name, bound or word that no correction may set."""
        match self.do:
            case "rename":
                return load_limits().may_rename(name, str(to))
            case "keep_within":
                return tuple(to) != NO_BOUNDS
            case "spell":
                return bool(to)
        return True

    def _read_new_value(self, named: Mapping[str, str | None]) -> Any:
        """Return the new value or name from the groups of a match."""
        match self.do:
            case "rename":
                return named["use"]
            case "keep_within":
                least, most = read_number(named.get("least")), read_number(named.get("most"))
                return least, most - 1 if named.get("exclusive") and isinstance(most, int) else most
            case "spell":
                words = re.findall(r"[\w-]+", re.sub(r"\b(?:and|or)\b", " ", named["words"] or ""))
                return tuple(filter(load_limits().is_on_a_scale, words))
        return None


def _is_no_secret(value: Any) -> bool:
    """Return True for a value that may be logged and stored: a number, a boolean, or a word on a scale."""
    return isinstance(value, int | float) or load_limits().is_on_a_scale(value)


class NamedFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The contents of `named_fields.yaml`."""

    rows: tuple[CorrectionRow, ...]

    @cached_property
    def prose(self) -> frozenset[str]:
        """Words of the expressions with placeholders: without quotes around it, such a word is prose and no name."""
        expressions = " ".join(words for row in self.rows if not row.is_fixed for words in row.words)
        return frozenset(re.findall("[a-z]+", re.sub(r"\{\w+\}", " ", expressions)))


@cache
def _load_named_fields() -> NamedFields:
    """Load `named_fields.yaml`, on the first rejection only."""
    return load_table(Path(__file__).with_suffix(".yaml"), NamedFields)


type Attempt = Mapping[str, Correction]
"""Corrections that are tried together, by their description."""


def find_attempts(error: ServerError, body: bytes, headers: Fields, scope: CorrectionScope) -> Sequence[Attempt]:
    """Find the parts of a request that an error names; return the corrections in the order in which to try them.

    The first attempt corrects all fields that the error names in separate fields (`param`, `loc`); then follows one
    attempt for each matching row. `headers` are the flags of the request (`corrections.read_flags`). Corrections
    without effect are omitted, as are those of a path that is corrected already, or of which a part is.
    """
    sent: Mapping[RequestPart, Any] = {"body": decode_json(body), "headers": headers}
    parts, outline = RequestParts(split_raw_object(body) or {}, headers), RequestOutline(sent)
    attempts: dict[str, dict[str, Correction]] = {FIELDS_OF_THE_ERROR: {}}
    seen: set[str] = set()
    corrected: set[tuple[str, ...]] = set()
    for correction, row, names in _list_named(error, sent, outline):
        line = str(correction)
        if line in seen:  # several names may lead to one path
            continue
        seen.add(line)
        path = correction.of, *correction.path
        if any(other[: len(path)] == path for other in corrected):
            continue
        corrected_parts = correction.apply(parts, scope)
        if corrected_parts is not parts:
            parts = corrected_parts
            corrected.add(path)
            attempt = FIELDS_OF_THE_ERROR if error.names_field(*names) else row
            attempts.setdefault(attempt, {})[line] = correction
    return [attempt for attempt in attempts.values() if attempt]


def _list_named(
    error: ServerError, sent: Mapping[RequestPart, Any], outline: RequestOutline
) -> Iterator[NamedCorrection]:
    """Yield the corrections for all names in an error."""
    speakers: Mapping[Speaker, Sequence[str]] = {
        "server": [statement.text for statement in error.statements if statement.is_own],
        "provider": [statement.text for statement in error.statements if not statement.is_own],
    }
    for speaker, texts in speakers.items():
        text = "\n".join(texts)
        for name in sent["headers"]:  # headers ignore case
            text = re.sub(re.escape(name), name, text, flags=re.IGNORECASE)
        marked = _mark_names(text, outline)
        for row in _load_named_fields().rows if text else ():
            for named in row.list_corrections(text, marked, sent, outline):
                of_speaker = msgspec.structs.replace(named.correction, unknown_to=speaker)
                yield named._replace(correction=of_speaker) if row.unknown else named


_UNMARKED = str.maketrans({"⟨": "'", "⟩": "'"})
_PATH = re.compile(r"(')?(?<![\w$])([A-Za-z_$][\w$-]*+(?:[.\[][\w$*-]++\]?+)*+)(?(1)'?)")


def _mark_names(text: str, outline: RequestOutline) -> str:
    """Mark possible names of fields, or paths to them, in a text: `⟨name⟩` replaces the quotes."""
    known, prose = outline.names, _load_named_fields().prose
    paths = chain.from_iterable(outline.paths.values())
    # Only names outside of lists: errors use spaced words for much in messages and tools without naming a field.
    text = _quote_spaced_names(text.translate(_UNMARKED), {path[-1] for path in paths if EVERY not in path})

    def mark(match: re.Match[str]) -> str:
        path = match[2]
        name = next((key for key in reversed(split_path(path)) if not key.isdigit() and key != EVERY), "")
        is_prose = not match[1] and (path in prose or path.removesuffix("s") in prose)
        return match[0] if is_prose or fold_name(name) not in known else f"⟨{path}⟩"

    return _PATH.sub(mark, text)


def _quote_spaced_names(text: str, names: Collection[str]) -> str:
    """Quote names that a text spells as separate words: `Thinking level` for `thinkingLevel`."""
    lower = text.lower()
    spelled = {
        _WORD_BOUNDARY.sub(" ", name).lower(): name for name in names if _WORD_BOUNDARY.search(name) and name.isascii()
    }
    spelled = {words: name for words, name in spelled.items() if words in lower}
    if not spelled:
        return text
    longest_first = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b", re.I | re.A)
    return pattern.sub(lambda match: f"'{spelled[match[0].lower()]}'", text)


_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?:_|(?=[A-Z]))")
"""Boundary between the words of a name."""


def _drop_one_of_two(outline: RequestOutline, first: KeyPath, second: KeyPath) -> Iterator[Correction]:
    """Drop one of two sibling fields: the second one if possible."""
    for name, kept in ((second, first), (first, second)):
        part, paths = outline.find(name)
        for path in paths if part == "body" else ():
            yield Correction("leave_out", path, beside=outline.find_sibling_spelling(path, kept[-1]))
