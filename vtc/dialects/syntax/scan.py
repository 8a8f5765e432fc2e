"""Finds what a state of the reader looks for: tokens, and the text that may still become one.

    <tool_call>\\n{"name": …    a token
    <tool_c                     may become one: it is held back
    <b>                         neither

All tokens of a state are read at once, from each place where one may begin: they are a trie, which grows where text
goes into it, so that a model which brings dialects that others have read before adds little. Only a token that was
found is given to an expression, for the groups in it; that is compiled once for all states and models.

What the text so far ends in is held back if it is a proper beginning of a token. Nothing else is; that is what makes
the result independent of how the text was cut.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple
from weakref import WeakValueDictionary, ref

import msgspec

from vtc.dialects.bounded_cache import BYTES_PER_PATTERN_CHARACTER
from vtc.dialects.syntax.pattern import (
    LOOSE_SPACE,
    AnyOf,
    Chars,
    Group,
    Lit,
    Maybe,
    OneOf,
    Part,
    Space,
    expression_of,
    has_group,
)

OFFERED_GROUP = "offered"
"""The group of a name that must be an offered tool's. Names stand in no expression: compiling them would take long, and
once for every set of tools."""
type Found = re.Match[str]

INDENT = 8
"""Deepest indentation at which a line still counts as starting with its markup."""
BYTES_PER_TOKEN = 1 << 10
"""Bytes that a scan takes for each of its tokens."""
MAX_TRIE_ENTRIES = 1 << 15
"""Characters that the places of all tries keep, each of a kilobyte at most with the place after it and the steps to it.

All built-in models need some 10,000. If texts have gone to more, all tries begin to grow anew.
"""
MAX_DEAD_ENDS = 64
"""Characters that begin nothing for which a place in the trie keeps that."""

_SPACE = re.compile(LOOSE_SPACE)
_LINE_START = re.compile(rf"^[ \t>]{{0,{INDENT}}}\Z", re.MULTILINE)
_HELD = re.compile(r"(?P<hold>(?s:.*))")
"""Matches all the text that is held back."""

type Offers = Callable[[str], bool]
"""Tells whether a tool is offered by the name that makes the markup."""


class Token(msgspec.Struct, eq=False, gc=False):
    """Something that leaves a state, and the name it goes by, if any; what is searched for starts with a literal."""

    name: str
    parts: tuple[Part, ...]
    line_start: bool = False
    at_end: bool = False
    """It is one only as the last thing of a text, white space aside."""
    named: str = ""
    """The group that holds the name of a tool, which must be offered; empty if there is none."""
    _steps: _ScanStep | None = None

    def __post_init__(self) -> None:
        if has_group(self.parts, OFFERED_GROUP):
            self.named = f"{OFFERED_GROUP}_{self.name}"

    @property
    def first(self) -> str:
        """Its first character; empty if that may be one of many."""
        first = self.parts[0]
        return first.text[0] if isinstance(first, Lit) else ""

    @property
    def first_of_line(self) -> str:
        """Its second character, if the first is a line break; else empty."""
        first = self.parts[0]
        return first.text[1:2] if isinstance(first, Lit) and first.text[0] == "\n" else ""

    @property
    def steps(self) -> _ScanStep:
        """The steps that lead to its end, made when they are first asked for."""
        if self._steps is None:
            self._steps = _make_steps(self.parts, _ScanStep(self.name))
        return self._steps

    def expression(self) -> str:
        """Write the expression that finds its groups."""
        name, end = f"?P<{self.name}>" if self.name else "?:", r"\s*\Z" if self.at_end else ""
        return f"({name}{expression_of(self.parts, self.name)}{end})"


class _ScanStep(msgspec.Struct, eq=False, gc=False):
    """A part, or the end of the token of a name, and the steps that may follow it.

    Scans share the steps of a token that they share. There are ten thousands of them, of which none leads back:
    Python's collector need not go through them.
    """

    part: Part | str
    after: tuple[_ScanStep, ...] = ()
    _following: tuple[_ScanStep, ...] | None = None

    @property
    def following(self) -> tuple[_ScanStep, ...]:
        """The steps that follow the first character of its text, or the ways that it may be read in."""
        if self._following is None:
            self._following = tuple(self._follow())
        return self._following

    def _follow(self) -> Iterable[_ScanStep]:
        match self.part:
            case Lit(text):
                return [_ScanStep(Lit(text[1:]), self.after)] if len(text) > 1 else self.after
            case OneOf(words, _, any_case):
                return [_make_word_steps(word, *self.after, any_case=any_case) for word in words]
            case Maybe(parts):
                return [_make_steps(parts, *self.after), *self.after]
            case AnyOf(choices):
                return [_make_steps(choice, *self.after) for choice in choices]
            case Group(parts, _):
                return [_make_steps(parts, *self.after)]
            case _:
                return self.after


def _make_steps(parts: Sequence[Part], after: _ScanStep) -> _ScanStep:
    """Get the steps through a sequence of parts, before another."""
    for part in reversed(parts):
        if not (isinstance(part, Space) and isinstance(after.part, Space)):  # white space after white space is one
            after = _ScanStep(part, (after,))
    return after


def _make_word_steps(word: str, after: _ScanStep, *, any_case: bool) -> _ScanStep:
    """Get the steps through a word."""
    if not any_case:
        return _ScanStep(Lit(word), (after,)) if word else after
    for character in reversed(word):
        cases = {character, character.lower(), character.upper()}
        after = _ScanStep(OneOf(tuple(case for case in cases if len(case) == 1)), (after,))
    return after


@lru_cache(maxsize=64)
def _compile_run(allowed: str, most: int) -> re.Pattern[str]:
    return re.compile(f"[{allowed}]{{1,{most}}}")


class TrieBudget:
    """Counts what the tries of all scans keep since they began to grow."""

    def __init__(self) -> None:
        self.entries = 0
        self._scans: list[ref[TokenScan]] = []

    def register(self, scan: TokenScan) -> None:
        """Note a scan that has begun tries."""
        self._scans.append(ref(scan))

    def count_entry(self) -> None:
        """Count one more character that a place keeps; with too many, all tries begin to grow anew."""
        self.entries += 1
        if self.entries > MAX_TRIE_ENTRIES:
            self.drop_all()

    def drop_all(self) -> None:
        """Drop all tries, those of scans that are not used any more, too."""
        planted, self._scans, self.entries = self._scans, [], 0
        for scan in filter(None, (planted_ref() for planted_ref in planted)):
            scan.drop_tries()


TRIE_BUDGET = TrieBudget()


class _TrieNode(msgspec.Struct, eq=False, gc=False):
    """A place in the trie: what may follow there. It is made when text gets there.

    Two threads may read the same; what they make of it at the same time is the same. As of steps, there are many.
    """

    ends: tuple[str, ...]
    """The names of the tokens that have come to their end."""
    may_continue: bool
    """True if a token may go on."""
    texts: dict[str, tuple[_ScanStep, ...]]
    """By their first characters."""
    runs: dict[re.Pattern[str], tuple[_ScanStep, ...] | _TrieNode]
    after_space: _TrieNode | None
    known: dict[str, tuple[_Way, ...]] = {}

    def find(self, character: str) -> tuple[_Way, ...]:
        """Find what may begin with a character, each with the place after it; None stands for the character alone."""
        if character in self.known:
            return self.known[character]
        found = list[_Way]()
        if texts := self.texts.get(character):
            found.append((None, _make_node(following for step in texts for following in step.following)))
        for run, after in self.runs.items():
            if run.match(character):
                if isinstance(after, tuple):
                    after = self.runs[run] = _make_node(after)
                found.append((run, after))
        if space := self.after_space:
            found += [(_SPACE, space)] if character.isspace() or character == "\\" else space.find(character)
        ways = tuple(found)
        if ways or len(self.known) < MAX_DEAD_ENDS:
            self.known[character] = ways
            TRIE_BUDGET.count_entry()
        return ways

    def list_beginnings(self) -> list[str]:
        """Write how what follows may begin, as expressions, each up to something that is no white space."""
        if self.ends:
            return [""]
        ways = [re.escape(character) for character in self.texts if not character.isspace()]
        for blank in filter(str.isspace, self.texts):
            after = _make_node(following for step in self.texts[blank] for following in step.following)
            ways.append(rf"{re.escape(blank)}(?:{'|'.join(after.list_beginnings())}|\Z)")
        ways += [_character_class(run) for run in self.runs]
        if self.after_space:
            ways.append(rf"{LOOSE_SPACE}(?:{'|'.join(self.after_space.list_beginnings())}|\\?\Z)")
        return ways


def _character_class(run: re.Pattern[str]) -> str:
    return run.pattern.rpartition("{")[0]


def _make_node(steps: Iterable[_ScanStep]) -> _TrieNode:
    """Make the place where some steps may be taken."""
    texts, runs = defaultdict[str, list[_ScanStep]](list), defaultdict[re.Pattern[str], list[_ScanStep]](list)
    ends, todo, spaces = list[str](), [*steps], list[_ScanStep]()
    for step in todo:
        match step.part:
            case str(name):
                ends.append(name)
            case Lit(text):
                texts[text[0]].append(step)
            case Space():
                spaces += step.after
            case Chars(allowed, most, _):
                runs[_compile_run(allowed, most)] += step.after
            case _:
                todo += step.following
    after_space = _make_node(spaces) if spaces else None
    if after_space:
        ends += after_space.ends
    return _TrieNode(
        tuple(ends),
        bool(texts or runs or spaces),
        {first: tuple(steps) for first, steps in texts.items()},
        {run: tuple(after) for run, after in runs.items()},
        after_space,
    )


type _Way = tuple[re.Pattern[str] | None, _TrieNode]


class PlainRule(NamedTuple):
    """The rule for text that needs no reading in a state that flows: it leaves as it is.

    White space at its end waits, and so does `later`. What left must be told before the next text is read (`passed`).
    """

    stop: str
    """Characters that could open markup."""
    starts: str = ""
    """Those that could open it where a line begins, after blanks or `>`."""
    lines: str = ""
    """A text in which a line begins with one of these as code or a quotation does, or may begin so, must be read."""
    later: str = ""
    """The character of markup that is text itself, but changes what is markup after it: a text with it must be told at
    once, and the rule may then be another."""


def make_plain_rule(tokens: Iterable[Token], later: Collection[Token] = ()) -> PlainRule | None:
    """Tell which text holds the beginning of no token but of those for `later`; None if that may be any text."""
    stop, starts, lines = dict[str, None](), dict[str, None](), dict[str, None]()
    for token in tokens:
        if not token.first:
            return None
        if token.first_of_line:
            lines[token.first_of_line] = None
        elif token not in later:
            (starts if token.line_start else stop)[token.first] = None
    if not (stop or starts):
        return None
    put_off = {token.first for token in later} - {*stop}
    return PlainRule("".join(stop), "".join(starts.keys() - stop), "".join(lines), "".join(put_off))


class Scan:
    """The tokens that a state looks for.

    `final` says that no more text comes: until then what may still become a token is found, as `hold`. A token that
    has the name of a tool in it is none if the tool is not offered.
    """

    plain: PlainRule | None = None
    """Tells text in which no token begins, if its characters show that."""
    first: re.Pattern[str]
    """Finds where a token may begin, if text is searched for tokens."""

    def search(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        """Find the first token from a place on."""
        raise NotImplementedError

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        """Find the token that stands at a place."""
        raise NotImplementedError

    def size(self) -> int:
        """Measure it in bytes."""
        raise NotImplementedError


class TokenScan(Scan):
    """Looks for tokens; where two stand at one place, for the first of them.

    With a `space` tokens are expected: after that, one must stand, or the end of the text if that has a name, `end`.
    """

    def __init__(self, tokens: Iterable[Token], space: str | None = None, end: str = "") -> None:
        # What may begin with any of many characters is only ever expected, and yields to all others.
        self.tokens = sorted(tokens, key=lambda token: not token.first)
        self._ranks = {token.name: rank for rank, token in enumerate(self.tokens)}
        self._space = space
        self._white = _compile(space).match if space is not None else None
        self.end = end
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._tries: tuple[_TrieNode, _TrieNode | None] | None = None

    def search(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        first = self.first.search
        while candidate := first(text, at):
            at = candidate.start()
            if token_match := self.match(text, at, final=final, offers=offers):
                return token_match
            at += 1
        return None

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        start = at
        if self._white:
            white = self._white(text, at)
            start = white.end() if white else at
            if not final and len(text) - start <= 1 and text[start:] in ("", "\\"):  # as `_is_blank`, without a call
                return _HELD.match(text, at)
        names = self._find_begun_tokens(text, start, final=final)
        if names is None:
            return _HELD.match(text, at)
        for rank in sorted({self._ranks[name] for name in names}):
            token = self.tokens[rank]
            if token.at_end and not final:
                continue
            token_match = (self._patterns.get(token.name) or self._compile(token)).match(text, at)
            if token_match and not (token.named and not offers(token_match[token.named])):
                return token_match
        if self.end and final and start == len(text):
            return _compile(f"{self._space}(?P<{self.end}>)").match(text, at)
        return None

    def _find_begun_tokens(self, text: str, at: int, *, final: bool) -> list[str] | None:
        """Find the tokens that stand at a place, by name; None if the text may end within one, and more is to come."""
        end, (anywhere, line_start) = len(text), self._tries or self._make_tries()
        names, places = list[str](), [(anywhere, at)]
        if line_start and _LINE_START.search(text[max(0, at - INDENT - 1) : at]):
            places.append((line_start, at))
        while places:
            node, at = places.pop()
            names += node.ends
            if at == end:
                if node.may_continue and not final:
                    return None
                continue
            character = text[at]
            for run, following in node.known[character] if character in node.known else node.find(character):
                if run is None:
                    places.append((following, at + 1))
                    continue
                match = run.match(text, at)
                after = match.end() if match else at
                if not final and (after == end or (run is _SPACE and after == end - 1 and text[after] == "\\")):
                    return None
                # All white space belongs together; of another run some may belong to what follows.
                places += [(following, after)] if run is _SPACE else [(following, i) for i in range(at + 1, after + 1)]
        return names

    def _compile(self, token: Token) -> re.Pattern[str]:
        pattern = self._patterns[token.name] = _compile((self._space or "") + token.expression())
        return pattern

    def _make_tries(self) -> tuple[_TrieNode, _TrieNode | None]:
        """Begin the trie of the tokens that count anywhere, and that of those that must be the first of a line."""
        steps = [token.steps for token in self.tokens if token.line_start]
        anywhere = _make_node(token.steps for token in self.tokens if not token.line_start)
        tries = self._tries = anywhere, _make_node(steps) if steps else None
        TRIE_BUDGET.register(self)
        return tries

    def drop_tries(self) -> None:
        """Drop the tries, which grow anew when they are asked for."""
        self._tries = None

    @cached_property
    def first(self) -> re.Pattern[str]:  # type: ignore[override]  # as above
        if not self.tokens:
            return _compile("(?!)")
        firsts = dict.fromkeys(token.first for token in self.tokens)
        if "" in firsts:
            return _compile("(?s:.)")
        # One set of characters first, which is what Python finds fast.
        return _compile(f"[{''.join(map(re.escape, firsts))}](?:{'|'.join(map(self._lookahead_after, firsts))})")

    def _lookahead_after(self, first: str) -> str:
        """Write what must follow the first character of a token: what does in one of them, or nothing yet."""
        places = [place for trie in self._tries or self._make_tries() if trie for _, place in trie.find(first)]
        ways = [way for place in places for way in place.list_beginnings()]
        return rf"(?<={re.escape(first)})(?={'|'.join(ways)}|\Z)"

    @cached_property
    def plain(self) -> PlainRule | None:  # type: ignore[override]  # other scans have none
        return make_plain_rule(self.tokens)

    def size(self) -> int:
        return BYTES_PER_TOKEN * len(self.tokens)


class FollowingScan(Scan):
    """Expects, after white space, what another scan looks for, of some `kinds`, or else one of other tokens."""

    def __init__(self, scan: Scan, kinds: Collection[str], others: Iterable[Token], space: str = LOOSE_SPACE) -> None:
        self.scan, self.others = scan, TokenScan(others)
        self.kinds = kinds
        self._white = _compile(space).match

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        white = self._white(text, at)
        start = white.end() if white else at
        if _is_blank(text, start):
            return None if final else _HELD.match(text, at)
        token_match = self.scan.match(text, start, final=final, offers=offers)
        if token_match and kind_of(token_match.lastgroup) in ("hold", *self.kinds):
            return token_match
        return self.others.match(text, start, final=final, offers=offers)

    def size(self) -> int:
        return self.others.size()


class ExpressionScan(Scan):
    """Expects what an expression describes, another one at the end of the text, or else what another scan does."""

    def __init__(self, while_open: str, at_end: str, otherwise: Scan | None = None) -> None:
        self.while_open, self.at_end, self.otherwise = while_open, at_end, otherwise

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        token_match = _compile(self.at_end if final else self.while_open).match(text, at)
        return token_match or (self.otherwise.match(text, at, final=final, offers=offers) if self.otherwise else None)

    def size(self) -> int:
        characters = len(self.while_open) + len(self.at_end)
        return BYTES_PER_PATTERN_CHARACTER * characters + (self.otherwise.size() if self.otherwise else 0)


def make_search_scan(tokens: Iterable[Token]) -> TokenScan:
    """Make the scan of a state in which text flows until one of some tokens."""
    return TokenScan(tokens)


def make_expecting_scan(tokens: Iterable[Token], space: str = LOOSE_SPACE, end: str = "") -> TokenScan:
    """Make the scan of a state in which after white space one of some tokens must follow."""
    return TokenScan(tokens, space, end)


def kind_of(name: str | None) -> str:
    """Return the kind in the name of a token; empty if there is no token."""
    return name.rstrip("0123456789") if name else ""


def _is_blank(text: str, at: int) -> bool:
    """True if nothing is left of a text, or half of the line break that some models write."""
    return len(text) - at <= 1 and text[at:] in ("", "\\")


_patterns: WeakValueDictionary[str, re.Pattern[str]] = WeakValueDictionary()


def _compile(expression: str) -> re.Pattern[str]:
    """Compile an expression, or get what another scan has of it."""
    pattern = _patterns.get(expression)
    if pattern is None:
        pattern = _patterns[expression] = re.compile(expression, re.MULTILINE)  # used as recorded
    return pattern


MAX_PREFIXES = 8
"""Texts that one token may begin with, and that are told apart."""


def list_prefixes(parts: Iterable[Part]) -> list[str]:
    """List the literal texts that a sequence can begin with, as far as they are few."""
    texts = [""]
    for part in parts:
        words = _list_words(part)
        if words is None or len(texts) * len(words) > MAX_PREFIXES:
            break
        texts = ["".join(pair) for pair in itertools.product(texts, words)]
    return list(dict.fromkeys(texts))


def _list_words(part: Part) -> list[str] | None:
    """List all that a part can be, if that is some texts."""
    match part:
        case Lit(text):
            return [text]
        case OneOf(words, _, any_case=False):
            return list(words)
        case Maybe(inner):
            options = [_list_words(part) for part in inner]
            known = [words for words in options if words is not None]
            return None if len(known) < len(options) else ["", *map("".join, itertools.product(*known))]
    return None
