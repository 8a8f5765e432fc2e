"""Find the parts of a request that a rejection names, and the corrections for them.

error of the server -> statements -> rules -> places in the request -> corrections
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from vtc.apis.fields import get_at, split_raw_object
from vtc.exchange.asking.corrections import (
    EVERY,
    Correction,
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
from vtc.exchange.asking.rejection_rules import RejectionRule, RuleMatch, load_rules, read_number, select_rules
from vtc.exchange.asking.server_error import ServerError
from vtc.json_text import decode_json

NO_BOUNDS = (None, None)
FIELDS_OF_THE_ERROR = ""
"""Key of the attempt with all names in the error's own fields."""


class NamedCorrection(NamedTuple):
    """A correction, and how the error named its field."""

    correction: Correction
    rule: RejectionRule
    match: RuleMatch

    @property
    def attempt(self) -> str:
        """Identifies the corrections that are tried together: of one rule or, at listed paths, of one expression."""
        return self.match.expression if self.rule.has_paths else str(self.rule.priority)

    @property
    def places(self) -> Sequence[str]:
        """The name and the path in the error's words."""
        named = self.match.found.groupdict()
        return [named[key] for key in ("name", "at") if named.get(key)]


type Attempt = Mapping[str, Correction]
"""Corrections that are tried together, by their description."""


def find_attempts(
    error: ServerError, known: Mapping[str, Any], body: bytes, headers: Fields, scope: CorrectionScope
) -> Sequence[Attempt]:
    """Find the parts of a request that an error names; return the corrections in the order in which to try them.

    The first attempt corrects all fields that the error names in separate fields (`param`, `loc`); then follows one
    attempt for each matching rule. `known` are the steps of the request, `headers` its flags
    (`corrections.read_flags`). Corrections without effect are omitted, as are those of a path that is corrected
    already, or of which a part is.
    """
    sent: Mapping[RequestPart, Any] = {"body": decode_json(body), "headers": headers}
    parts, outline = RequestParts(split_raw_object(body) or {}, headers), RequestOutline(sent)
    attempts: dict[str, dict[str, Correction]] = {FIELDS_OF_THE_ERROR: {}}
    seen: set[str] = set()
    corrected: set[tuple[str, ...]] = set()
    for named in list_named(error, known, sent, outline):
        correction = named.correction
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
            attempt = FIELDS_OF_THE_ERROR if error.names_field(*named.places) else named.attempt
            attempts.setdefault(attempt, {})[line] = correction
    return [attempt for attempt in attempts.values() if attempt]


def list_named(
    error: ServerError, known: Mapping[str, Any], sent: Mapping[RequestPart, Any], outline: RequestOutline
) -> Iterator[NamedCorrection]:
    """Yield the corrections of all rules that match an error."""
    marked = mark_statements(error, sent["headers"], outline)
    for rule in select_rules(error, known):
        if not rule.correction:
            continue
        if rule.has_paths:
            if match := next(rule.match(error), None):
                yield from _list_fixed(rule, match)
        else:
            for speaker, text in marked.items():
                for match in rule.find([text]):
                    for correction in _list_for_match(rule, match.found.groupdict(), sent, outline):
                        of_speaker = msgspec.structs.replace(correction, unknown_to=speaker if rule.unknown else "")
                        yield NamedCorrection(of_speaker, rule, match)


def _list_fixed(rule: RejectionRule, match: RuleMatch) -> Iterator[NamedCorrection]:
    """Yield the corrections at the paths that a rule lists."""
    paths: dict[RequestPart, tuple[str, ...]] = {"body": rule.paths, "headers": rule.headers}
    for part in paths:
        for path in paths[part]:
            yield NamedCorrection(_make_correction(rule, (*path.split("."),), rule.to, part), rule, match)


def _make_correction(
    rule: RejectionRule, path: KeyPath, to: Any, part: RequestPart, values: tuple[Any, ...] = ()
) -> Correction:
    assert rule.correction
    return Correction(rule.correction, path, to, rule.beside, rule.where, is_general=rule.kept, values=values, of=part)


def _list_for_match(
    rule: RejectionRule, named: Mapping[str, str | None], sent: Mapping[RequestPart, Any], outline: RequestOutline
) -> Iterator[Correction]:
    """Yield the corrections of the fields in the groups of one match."""
    name, second = named.get("name"), named.get("second")
    if name and second:
        yield from _drop_one_of_two(outline, split_path(name), split_path(second))
        return
    to = _read_new_value(rule, named)
    for each in [name] if name else re.findall("⟨([^⟩]*)⟩", named.get("names") or ""):
        part, paths = outline.find(split_path(named.get("at") or "") + split_path(each))
        for path in paths:
            if _is_allowed(rule, path[-1], to) and not (rule.value_alone and EVERY in path):
                values = (get_at(sent[part], ".".join(path)),) if rule.value_alone else ()
                if all(map(_is_no_secret, values)):
                    yield _make_correction(rule, path, to, part, values)


def _is_allowed(rule: RejectionRule, name: str, to: Any) -> bool:
    """Return False for a new name, bound or word that no correction may set."""
    match rule.do:
        case "rename":
            return load_limits().may_rename(name, str(to))
        case "keep_within":
            return tuple(to) != NO_BOUNDS
        case "spell":
            return bool(to)
    return True


def _read_new_value(rule: RejectionRule, named: Mapping[str, str | None]) -> Any:
    """Return the new value or name from the groups of a match."""
    match rule.do:
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
    """Return True for a value that may be logged and stored: a number, a boolean, null, or a word on a scale."""
    return isinstance(value, int | float | None) or load_limits().is_on_a_scale(value)


def mark_statements(error: ServerError, headers: Iterable[str], outline: RequestOutline) -> Mapping[Speaker, str]:
    """Return the statements of each speaker as one text, in which names of fields are marked by ⟨⟩."""
    marked: dict[Speaker, str] = {}
    speakers: Sequence[Speaker] = ("server", "provider")
    for speaker in speakers:
        is_own = speaker == "server"
        text = "\n".join(statement.text for statement in error.statements if statement.is_own is is_own)
        for name in headers:  # headers ignore case
            text = re.sub(re.escape(name), name, text, flags=re.IGNORECASE)
        marked[speaker] = _mark_names(text, outline)
    return marked


_UNMARKED = str.maketrans({"⟨": "'", "⟩": "'"})
_PATH = re.compile(r"(')?(?<![\w$])([A-Za-z_$][\w$-]*+(?:[.\[][\w$*-]++\]?+)*+)(?(1)'?)", re.A)


def _mark_names(text: str, outline: RequestOutline) -> str:
    """Mark possible names of fields, or paths to them, in a text: `⟨name⟩` replaces the quotes."""
    known, prose = outline.names, load_rules().prose
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
