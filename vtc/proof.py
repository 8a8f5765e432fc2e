"""Prove that the values of calls are characters of the text that they were read from.

    proof = prove(text, calls)
    proof.holds, proof.slices, proof.faults

This check shares no code with the readers. For each value it finds one contiguous slice of the text, and the decoding
that yields the value. The slices are in the order of the calls, do not overlap, and are bounded by quotes or markup.
Outside of them only the tool's name, keys and markup may be; any other word shows that a value was cut short. White
space around a value without quotes is not covered, and neither is the choice of the cut: a value that contains markup
of its own call is `wide`.

The time is linear: each decoding is applied once, and each value is searched only in the next `MAX_GAP` characters.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from html import unescape
from typing import Any, NamedTuple

from vtc.events import Call, Evidence

MAX_GAP = 2_000
"""Maximum number of characters between two values."""
MAX_CANDIDATES = 64
"""Number of places that are tried for a value, in each decoding."""
MARGIN = 64
"""Number of characters next to a slice that are examined for its bounds."""


class Slice(NamedTuple):
    """The characters of a text that yield a value of a parameter."""

    parameter: str
    start: int
    end: int
    decoding: str


class Proof(NamedTuple):
    """The proof of the calls that were read from one text."""

    slices: tuple[Slice, ...] = ()
    repairs: tuple[str, ...] = ()
    """The repairs that explain the escapes of a value, a missing key, or text outside of the slices."""
    wide: tuple[str, ...] = ()
    """Parameters whose value contains markup that is also outside of the slices."""
    faults: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if there is no fault."""
        return not self.faults


# Decodings

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}


def _decode_escape(found: re.Match[str]) -> str:
    escape = found[0]
    if len(escape) == 2:
        return _ESCAPES.get(escape[1], escape[1])
    units = escape.encode().decode("unicode_escape")
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


class Substitution(NamedTuple):
    """Texts that a decoding replaces, and their replacement."""

    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]


_JSON = Substitution(
    re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\s\S])"),
    _decode_escape,
)
_PYTHON = Substitution(
    re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|[\\'\"abfnrtv0\n])"),
    _decode_escape,
)
_XML = Substitution(re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{1,16});"), lambda found: unescape(found[0]))
_CDATA = Substitution(re.compile(r"\]\]\]\]><!\[CDATA\[>"), lambda _: "]]>")
_LINE_ENDS = Substitution(re.compile(r"\r\n?"), lambda _: "\n")
_JOINS = Substitution(re.compile(r"[\"']\s+[\"']"), lambda _: "")
_BRACES = Substitution(re.compile(r"\{\{|\}\}"), lambda found: found[0][0])
_NO_ESCAPES = Substitution(re.compile(r"\\+[nrtbf]?|[\n\r\t\b\f]"), lambda _: "")

VERBATIM = "verbatim"
DECODINGS: Mapping[str, tuple[Substitution, ...]] = {
    VERBATIM: (),
    "json": (_JSON,),
    "python": (_PYTHON,),
    "xml": (_XML,),
    "cdata": (_CDATA,),
    "line-ends": (_LINE_ENDS,),
    "f-string": (_BRACES,),
    "json-twice": (_JSON, _JSON),
    "python-joined": (_PYTHON, _JOINS),
}
"""Decodings of strings, the simplest first."""
REPAIRED = "repaired"
"""The decoding of strings whose escapes were repaired: they are equal except for these."""
LITERAL = "literal"
"""The decoding of numbers, booleans and null."""


class _Members(tuple[tuple[str, Any], ...]):
    """The members of an object; a key may be repeated."""


_decode_json = partial(json.loads, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_Members)

# Markup

_LITERAL = re.compile(
    r'\bstring="(?:true|false)"|[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)|[^\W\d_]+'
)
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
"""Opening quotes, and their closing ones."""
_FOLLOWERS = "<[]|｜`,})>"
"""Characters that may follow a value without quotes."""
_TAG_FOLLOWERS = "<[]|｜`"
"""Characters that may follow it after a tag."""
_MARKUP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "action analysis antml api arg args argument arguments assistant assistantcommentary call calling calls "
        "cdata code commentary default dots end escape function functools input invoke json key kwargs minimax name "
        "null observation parameter parameters params print section seed sep start string to tool toolcall toolcalls "
        "tools type use value with",
    )
)
"""Words of the formats of calls. Words of other tags must recur, as in an opening and a closing tag."""
_OUTSIDE = re.compile(
    r'["\']?(?:tool_)?(?:call_)?(?:id|index)["\']?\s*[:=]\s*(?:\d+|["\'][^"\'\s]*["\'])'
    r'|:\d+\b|["\']\d+["\']'  # ids and indexes
    r'|\btype=["\']\w+["\']|\bstring="(?:true|false)"'
    r'|\\[a-z]|(?:```|~~~)\w*|(?<![\w"\'])[rbfu]{1,2}(?=["\'])'  # escaped line breaks, code fences, prefixes of Python
    r"|<[|｜<]/?[^<>|｜\s]{1,80}[|｜>]>|\[/?[A-Z_]{3,40}\]"  # special tokens
    r"|(?P<word>[^\W_]+)"
)
"""Parts of the text outside of the slices: markup, or a word that must be accounted for."""
_OUTSIDE_WITH_COMMENTS = re.compile(r"(?://|#)[^\n]*|/\*[^*]*\*/|" + _OUTSIDE.pattern)
_WORD = re.compile(r"[^\W_]+")
_NEXT_WORD = re.compile(r"[.:/]([^\W_]+)")  # used with match
_TAG = re.compile(r"<[/|｜]?[\w:.▁-]{1,64}|\[/?[A-Z_]{3,40}\]")
_TAG_STARTS = frozenset("<[/|｜_▁:")
_BROKEN_TAG = re.compile(r"\s*/?[\w:.-]{1,40}\s*(?:>|\Z)")  # used with match
_SPACE_BEFORE = re.compile(r"(?:\s|\\[nrt])+\Z")  # for at most 64 characters
_SPACE_AFTER = re.compile(r"(?:\s|\\[nrt])*")  # used with match

# Repairs (docs/repairs.md), by their effects

_CHANGED_ESCAPES = frozenset(
    ("json-bad-escape", "escaped-text", "json-inner-quotes", "broken-value", "python-literal", "string-markers")
)
_CHANGED_PUNCTUATION = frozenset(
    (
        "json-missing-quote",
        "json-missing-comma",
        "json-missing-colon",
        "string-markers",
        "json-cut",
        "broken-value",
        "escaped-text",
    )
)
_CHANGED_SEPARATORS = frozenset(("json-missing-comma", "json-comment"))
_BROKEN_CLOSER = frozenset(
    ("corrupt-closer", "wrong-closer", "corrupt-parameter-closer", "wrong-parameter-closer", "missing-parameter-closer")
)
_MISSING_TAG = frozenset((*_BROKEN_CLOSER, "missing-closer", "tool-by-arguments"))
_MISSING_KEY = frozenset(("sole-parameter", "only-parameter"))
_CHANGED_NAME = frozenset(("tool-name", "tool-by-arguments"))
_REPEATED_VALUES = frozenset(("repeated", "written-twice"))
_COMMENTS = frozenset(("json-comment",))


class DecodedText:
    """A text in one decoding, and the places of its characters in the original text."""

    def __init__(self, text: str, decoding: Sequence[Substitution]) -> None:
        self.text = text
        self._ends: list[tuple[list[int], list[int]]] = []
        """The ends of the replaced texts and of their replacements, for each substitution."""
        for substitution in decoding:
            self._substitute(substitution)

    def _substitute(self, substitution: Substitution) -> None:
        pieces: list[str] = []
        encoded, decoded, length = [0], [0], 0
        for found in substitution.pattern.finditer(self.text):
            pieces += (self.text[encoded[-1] : found.start()], substitution.replace(found))
            length += len(pieces[-2]) + len(pieces[-1])
            encoded.append(found.end())
            decoded.append(length)
        self.text = "".join([*pieces, self.text[encoded[-1] :]])
        self._ends.append((encoded, decoded))

    def find_decoded(self, place: int) -> int:
        """Return the decoded place of a place in the original text."""
        for encoded, decoded in self._ends:
            at = bisect_right(encoded, place) - 1
            place = decoded[at] + place - encoded[at]
        return place

    def find_original(self, place: int) -> int:
        """Return the place in the original text of a decoded place."""
        for encoded, decoded in reversed(self._ends):
            at = bisect_right(decoded, place) - 1
            place = encoded[at] + place - decoded[at]
        return place


class Item(NamedTuple):
    """A key or a value of a call."""

    parameter: str
    value: Any
    is_key: bool = False


def list_items(arguments: _Members) -> Iterator[Item]:
    """Yield the keys and values of a call in order; lists and objects have no characters of their own."""
    pending = [Item("", arguments)]
    while pending:
        item = pending.pop()
        if isinstance(item.value, _Members):
            for key, entry in reversed(item.value):
                parameter = item.parameter or key
                pending += (Item(parameter, entry), Item(parameter, key, is_key=True))
        elif isinstance(item.value, list):
            pending += (Item(item.parameter, entry) for entry in reversed(item.value))
        else:
            yield item


def split_words(text: str) -> list[str]:
    """Split a text into words, in lower case."""
    return _WORD.findall(text.lower())


_ATTRIBUTE_STARTS = ('="', "='")


class _Prover:
    """Finds the slices of calls in a text, from its beginning to its end."""

    def __init__(self, text: str, *, skips_attributes: bool = False) -> None:
        """Set up the search; `skips_attributes` of tags, whose values can be those of arguments (`string="true"`)."""
        self._text = text
        self._skips_attributes = skips_attributes
        decoded = {name: DecodedText(text, decoding) for name, decoding in DECODINGS.items()}
        self._decoded = {name: one for name, one in decoded.items() if name == VERBATIM or one.text != text}
        self._cursor = 0
        """The end of the last slice or key."""
        self._known = {*_MARKUP_WORDS}
        """Words that may be outside of the slices."""
        self._beginnings: set[str] = set()
        """The first three letters of these words."""
        self._tag_words: Counter[str] = Counter()
        """Other words of tags outside of the slices."""
        self._name_words: set[str] = set()
        self._name = ""
        """The tool of the current call."""
        self._repairs: frozenset[str] = frozenset()
        """The repairs of the current call, without parameters."""
        self._explained: dict[str, None] = {}
        self._slices: list[Slice] = []
        self._tags: dict[str, set[str]] = {}
        """The tags in the values, by parameter."""
        self._outside: list[str] = []
        """The texts outside of the slices."""

    def prove(self, calls: Sequence[Call]) -> Proof:
        try:
            arguments = [_decode_json(call.arguments) for call in calls]
        except (ValueError, RecursionError):
            arguments = [None]
        if not all(isinstance(given, _Members) for given in arguments):
            return Proof(faults=("the arguments are not an object",))
        for call, given in zip(calls, arguments, strict=True):
            self._name_words.update(split_words(call.name))
            self._known.update(split_words(call.id or ""))
            for item in list_items(given):
                self._known.update(split_words(item.value) if item.is_key else ())
        self._known |= self._name_words
        self._beginnings = {word[:3] for word in self._known}
        fault = ""
        for call, given in zip(calls, arguments, strict=True):
            fault = fault or self._prove_call(call, given)
        fault = fault or self._account_for(len(self._text))
        if not fault and 1 in self._tag_words.values():
            fault = "a tag outside of the values does not recur"
        around = set(_TAG.findall("\n".join(self._outside)))
        wide = tuple(parameter for parameter, tags in self._tags.items() if tags & around)
        return Proof(tuple(self._slices), tuple(self._explained), wide, (fault,) if fault else ())

    def _prove_call(self, call: Call, arguments: _Members) -> str:
        """Find the slices of one call; return the fault, empty if there is none."""
        self._name = call.name
        self._repairs = frozenset(repair.partition(":")[0] for repair in call.repairs)
        for repair in call.repairs:
            self._known.update(split_words(repair.partition(":")[2]))
        items = [*list_items(arguments)]
        if self._explain(_REPEATED_VALUES):
            for item in items:
                self._known.update(split_words(str(item.value)))
        for item in items:
            found = self._find_text(item) if isinstance(item.value, str) else self._find_literal(item)
            if found is None:
                if item.is_key and self._explain(_MISSING_KEY):
                    continue
                kind = "the key" if item.is_key else "a value"
                return f"{kind} of {item.parameter!r} is not a slice of the text"
            if fault := self._account_for(found.start):
                return fault
            self._cursor = found.end
            if not item.is_key:
                self._slices.append(found)
                self._tags.setdefault(item.parameter, set()).update(_TAG.findall(str(item.value)))
        return ""

    def _explain(self, effect: frozenset[str]) -> bool:
        """Return True if the call has repairs with this effect, and record them."""
        repairs = self._repairs & effect
        self._explained.update(dict.fromkeys(sorted(repairs)))
        return bool(repairs)

    def _find_text(self, item: Item) -> Slice | None:
        """Find the nearest slice that yields a string or a key."""
        nearest: Slice | None = None
        for decoding, decoded in self._decoded.items():
            nearest = self._search(item, decoding, decoded, nearest) or nearest
        if nearest is None and not item.is_key and self._explain(_CHANGED_ESCAPES):
            if REPAIRED not in self._decoded:
                self._decoded[REPAIRED] = DecodedText(self._text, (_NO_ESCAPES,))
            bare = item._replace(value=DecodedText(item.value, (_NO_ESCAPES,)).text)
            nearest = self._search(bare, REPAIRED, self._decoded[REPAIRED], None)
        return nearest

    def _search(self, item: Item, decoding: str, decoded: DecodedText, nearest: Slice | None) -> Slice | None:
        """Find the first bounded slice in one decoding; None if the nearest one so far precedes it."""
        value = item.value
        place = decoded.find_decoded(self._cursor)
        end = (decoded.find_decoded(nearest.start) if nearest else place + MAX_GAP) + len(value)
        for _ in range(MAX_CANDIDATES):
            place = decoded.text.find(value, place, end)
            if place < 0:
                return None
            start, stop = decoded.find_original(place), decoded.find_original(place + len(value))
            if nearest and start >= nearest.start:
                return None
            skips = self._skips_attributes and not item.is_key
            is_skipped = skips and self._text[max(0, start - 2) : start] in _ATTRIBUTE_STARTS
            if start >= self._cursor and not is_skipped and self._is_bounded(start, stop, is_key=item.is_key):
                return Slice(item.parameter, start, stop, decoding)
            place += 1
        return None

    def _find_literal(self, item: Item) -> Slice | None:
        """Find the nearest slice that yields a number, a boolean or null."""
        for found in _LITERAL.finditer(self._text, self._cursor, self._cursor + MAX_GAP):
            with suppress(ValueError, ArithmeticError):
                value = _decode_literal(found[0].lower())
                if (
                    type(value) is type(item.value)
                    and value == item.value
                    and self._is_bounded(*found.span(), is_literal=True)
                ):
                    return Slice(item.parameter, *found.span(), LITERAL)
        return self._find_text(item._replace(value="")) if item.value is None else None

    def _is_bounded(self, start: int, end: int, *, is_key: bool = False, is_literal: bool = False) -> bool:
        """Return True if quotes or markup bound a slice; a key may also follow the tool's name."""
        before, after = self._text[max(0, start - MARGIN) : start], self._text[end : end + MARGIN]
        if is_literal and self._repairs & _CHANGED_SEPARATORS:
            return not (before[-1:].isalnum() or after[:1].isalnum())
        if is_key:
            return not after[:1].isalnum() and (not before[-1:].isalnum() or before.endswith(self._name))
        quote = before[-1:]
        escape = "\\" * (len(before) - 1 - len(before[:-1].rstrip("\\")))
        if quote in _QUOTES and after.startswith(escape + _QUOTES[quote]):
            return True
        has_broken_closer = bool(self._repairs & _BROKEN_CLOSER)
        if has_broken_closer and _BROKEN_TAG.match(after):
            return True
        has_changed_punctuation = bool(self._repairs & _CHANGED_PUNCTUATION)
        if quote in _QUOTES and not has_changed_punctuation:
            return False
        before = _SPACE_BEFORE.sub("", before)
        if before[-1:].isalnum():
            return False
        follows_tag = before.endswith(">") and not (has_broken_closer or has_changed_punctuation)
        space = _SPACE_AFTER.match(after)
        follower = after[space.end() if space else 0 :][:1]
        if has_changed_punctuation and follower in _QUOTES:
            return True
        return follower in (_TAG_FOLLOWERS if follows_tag else _FOLLOWERS)

    def _account_for(self, end: int) -> str:
        """Account for the text before the next slice; return the fault, empty if there is none."""
        start = self._cursor
        self._outside.append(self._text[start:end])
        if self._repairs & _BROKEN_CLOSER and (tag := _BROKEN_TAG.match(self._text, start, end)):
            start = tag.end()
        pattern = _OUTSIDE_WITH_COMMENTS if self._explain(_COMMENTS) else _OUTSIDE
        for found in pattern.finditer(self._text, start, end):
            if found["word"] and not self._is_known(found):
                return f"the word at character {found.start()} is neither in a value nor markup"
        return ""

    def _is_known(self, found: re.Match[str]) -> bool:
        """Return True if a word outside of the slices is a part of the name, a key or markup."""
        word = found[0].lower()
        if word in self._known:
            return True
        following = _NEXT_WORD.match(self._text, found.end())
        if following and following[1].lower() in self._name_words:
            return True
        if self._text[max(0, found.start() - 1) : found.start()] in _TAG_STARTS:
            if not self._explain(_MISSING_TAG):
                self._tag_words[word] += 1
            return True
        tag = _BROKEN_TAG.match(self._text, found.start())
        if tag and tag.end() == len(self._text) and word[:3] in self._beginnings:
            return True  # an incomplete or corrupt tag: `funtool_call>`
        return self._explain(_CHANGED_NAME)


def _decode_literal(text: str) -> Decimal | bool | None:
    """Decode a number, a boolean or null; raise ValueError or ArithmeticError if it is none of these."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    with suppress(ValueError):
        return Decimal(int(text, 0))
    return Decimal(text)


def prove(text: str, calls: Sequence[Call]) -> Proof:
    """Prove that the values of calls are slices of the text that these calls, in this order, were read from."""
    proof = _Prover(text).prove(calls)
    if proof.holds:
        return proof
    further = _Prover(text, skips_attributes=True).prove(calls)
    return further if further.holds else proof


class CallProver:
    """Proves calls one by one; all calls that were read from one text share its proof."""

    def __init__(self) -> None:
        self._evidence: Evidence | None = None
        self._proof = Proof()

    def prove(self, call: Call) -> Proof:
        """Prove a call by its evidence."""
        evidence = call.evidence
        if evidence is not self._evidence:
            self._evidence, self._proof = evidence, prove(evidence.text, evidence.calls)
        return self._proof
