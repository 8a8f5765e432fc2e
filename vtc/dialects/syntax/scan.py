"""Find the tokens of a reader state in a text that is still arriving.

    <tool_call>\\n{"name": …    a token
    <tool_c                     the beginning of a token: it is held back until more text arrives
    <b>                         neither

All tokens of a state are matched together, at each position where one may begin. They form a trie, which is built
lazily along the paths that real text takes, so that a model adds little if others already used its dialects. Only when
a token was found, a regular expression matches it again, for its groups. That expression is compiled once for all
states and models.

The end of the text is held back only if it is a proper prefix of a token, so the result does not depend on how the text
was cut into chunks.
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
    has_group,
    make_expression,
)

OFFERED_GROUP = "offered"
"""Group of a name that must belong to an offered tool. The expressions contain no tool names, because compiling them
for every set of tools would take too long."""
type Found = re.Match[str]

INDENT = 8
"""Deepest indentation at which markup still counts as the start of its line."""
BYTES_PER_TOKEN = 1 << 10
"""Estimated size of a scan, in bytes per token."""
MAX_TRIE_ENTRIES = 1 << 15
"""Maximum number of characters cached by the nodes of all tries. Each takes at most one kilobyte, including the next
node and its steps.

All built-in models need about 10,000. When the limit is exceeded, all tries are dropped and built again as needed."""
MAX_DEAD_ENDS = 64
"""Maximum number of characters per trie node that are cached as leading nowhere."""

_SPACE = re.compile(LOOSE_SPACE)
_LINE_START = re.compile(rf"^[ \t>]{{0,{INDENT}}}\Z", re.MULTILINE)
_HOLD_REST = re.compile(r"(?P<hold>(?s:.*))")
"""Matches all the text that is held back."""

type Offers = Callable[[str], bool]
"""Predicate on a name in markup: True if a tool of this name is offered. The default `bool` accepts every name."""


class Token(msgspec.Struct, eq=False, gc=False):
    """Markup that a state looks for."""

    name: str
    """The token's kind, with a number if the state has several of that kind."""
    parts: tuple[Part, ...]
    """The markup; in a state that searches for tokens, it starts with a literal."""
    line_start: bool = False
    """The token counts only at the start of a line."""
    at_end: bool = False
    """The token counts only at the end of the text, except for white space."""
    offered_group: str = ""
    """The group with the name of a tool that must be offered; empty if the token has none."""
    _steps: _ScanStep | None = None

    def __post_init__(self) -> None:
        if has_group(self.parts, OFFERED_GROUP):
            self.offered_group = f"{OFFERED_GROUP}_{self.name}"

    @property
    def first(self) -> str:
        """First character; empty if it may be one of many."""
        first = self.parts[0]
        return first.text[0] if isinstance(first, Lit) else ""

    @property
    def first_of_line(self) -> str:
        """Second character if the first is a line break; otherwise empty."""
        first = self.parts[0]
        return first.text[1:2] if isinstance(first, Lit) and first.text[0] == "\n" else ""

    @property
    def steps(self) -> _ScanStep:
        """Steps that lead to the end of the token, built on first use."""
        if self._steps is None:
            self._steps = _make_steps(self.parts, _ScanStep(self.name))
        return self._steps

    def make_expression(self) -> str:
        """Return the regular expression that finds the groups."""
        name, end = f"?P<{self.name}>" if self.name else "?:", r"\s*\Z" if self.at_end else ""
        return f"({name}{make_expression(self.parts, self.name)}{end})"


class _ScanStep(msgspec.Struct, eq=False, gc=False):
    """A part, or the name of a token at its end, and the steps that may follow.

    Scans that share a token share its steps. There are tens of thousands of steps without cycles, so Python's garbage
    collector need not track them.
    """

    part: Part | str
    after: tuple[_ScanStep, ...] = ()
    _following: tuple[_ScanStep, ...] | None = None

    @property
    def following(self) -> tuple[_ScanStep, ...]:
        """Steps after the first character of the text, or the alternatives of the part."""
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
    """Build the steps through a sequence of parts that is followed by `after`."""
    for part in reversed(parts):
        if not (isinstance(part, Space) and isinstance(after.part, Space)):  # consecutive white space is one step
            after = _ScanStep(part, (after,))
    return after


def _make_word_steps(word: str, after: _ScanStep, *, any_case: bool) -> _ScanStep:
    """Build the steps through a word."""
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
    """Counts the entries of all tries, and drops the tries when there are too many."""

    def __init__(self) -> None:
        self.entries = 0
        self._scans: list[ref[TokenScan]] = []

    def register(self, scan: TokenScan) -> None:
        """Register a scan that has begun its tries."""
        self._scans.append(ref(scan))

    def count_entry(self) -> None:
        """Count one more cached character; drop all tries if there are too many."""
        self.entries += 1
        if self.entries > MAX_TRIE_ENTRIES:
            self.drop_all()

    def drop_all(self) -> None:
        """Drop all tries, including those of scans that are no longer used."""
        planted, self._scans, self.entries = self._scans, [], 0
        for scan in filter(None, (planted_ref() for planted_ref in planted)):
            scan.drop_tries()


TRIE_BUDGET = TrieBudget()


class _TrieNode(msgspec.Struct, eq=False, gc=False):
    """A node of a trie: the continuations after the same beginning of tokens. It is built when text gets there.

    Two threads may build the same entry at the same time; both results are equal. Like steps, nodes are not tracked by
    the garbage collector.
    """

    ends: tuple[str, ...]
    """Names of the tokens that end here."""
    may_continue: bool
    """True if a token may continue here."""
    texts: dict[str, tuple[_ScanStep, ...]]
    """Literal steps by their first character."""
    runs: dict[re.Pattern[str], tuple[_ScanStep, ...] | _TrieNode]
    """The steps, or the node once it was built, after a run of characters of a class."""
    after_space: _TrieNode | None
    """The node after loose white space; None if none is allowed here."""
    known: dict[str, tuple[_NextNode, ...]] = {}

    def find(self, character: str) -> tuple[_NextNode, ...]:
        """Return the ways to consume a character, each with the next node; the run is None for a literal character."""
        if character in self.known:
            return self.known[character]
        found = list[_NextNode]()
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
        """Return expressions for the starts of the continuations, each up to the first non-blank character."""
        if self.ends:
            return [""]
        ways = [re.escape(character) for character in self.texts if not character.isspace()]
        for blank in filter(str.isspace, self.texts):
            after = _make_node(following for step in self.texts[blank] for following in step.following)
            ways.append(rf"{re.escape(blank)}(?:{'|'.join(after.list_beginnings())}|\Z)")
        ways += [_make_character_class(run) for run in self.runs]
        if self.after_space:
            ways.append(rf"{LOOSE_SPACE}(?:{'|'.join(self.after_space.list_beginnings())}|\\?\Z)")
        return ways


def _make_character_class(run: re.Pattern[str]) -> str:
    return run.pattern.rpartition("{")[0]


def _make_node(steps: Iterable[_ScanStep]) -> _TrieNode:
    """Build the node at which these steps may be taken."""
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


type _NextNode = tuple[re.Pattern[str] | None, _TrieNode]


class PlainRule(NamedTuple):
    """Characters that a text must not contain if it is to be forwarded without being parsed.

    White space at the end of the text is buffered. Before the reader parses the next text, it must learn of the
    forwarded one (`Reader.record_forwarded`).
    """

    stop: str
    """Characters that could open markup."""
    starts: str = ""
    """Characters that could open markup at the start of a line, after blanks or `>`."""
    lines: str = ""
    """Characters that could begin a line of code or a quotation: text must be parsed if a line may begin with one."""
    later: str = ""
    """Characters of markup that is text itself, but changes which markup counts after it, for example backticks. Text
    with one of them may be forwarded, but must be recorded at once, because the rule may change."""


def make_plain_rule(tokens: Iterable[Token], later: Collection[Token] = ()) -> PlainRule | None:
    """Return the rule for text in which no token begins, except those in `later`; None if any text could begin one."""
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
    later_characters = {token.first for token in later} - {*stop}
    return PlainRule("".join(stop), "".join(starts.keys() - stop), "".join(lines), "".join(later_characters))


class Scan:
    """Finds the tokens of one state.

    If `final` is False, the beginning of a token at the end of the text is found as the group `hold`. A token that
    contains the name of a tool counts only if `offers` returns True for the name.
    """

    plain: PlainRule | None = None
    """Rule for text in which no token begins, if its characters alone can show that."""
    first: re.Pattern[str]
    """Finds positions where a token may begin, for scans that search."""

    def search(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        """Find the first token at or after a position."""
        raise NotImplementedError

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        """Match a token at a position."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the estimated size in bytes."""
        raise NotImplementedError


class TokenScan(Scan):
    """Finds tokens; if two match at one position, the first one wins.

    With a `space` expression, a token must follow at once, after that white space. If `end` is given, the end of the
    text counts as a token of this name.
    """

    def __init__(self, tokens: Iterable[Token], space: str | None = None, end: str = "") -> None:
        # A token that may begin with any of many characters is never searched for, and yields to all others.
        self.tokens = sorted(tokens, key=lambda token: not token.first)
        self._ranks = {token.name: rank for rank, token in enumerate(self.tokens)}
        self._space = space
        self._match_space = _compile(space).match if space is not None else None
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
        if self._match_space:
            white = self._match_space(text, at)
            start = white.end() if white else at
            if not final and len(text) - start <= 1 and text[start:] in ("", "\\"):  # `_is_blank`, inlined for speed
                return _HOLD_REST.match(text, at)
        # Step 1: Follow the tries, to find candidates or to hold back the text.
        names = self._find_begun_tokens(text, start, final=final)
        if names is None:
            return _HOLD_REST.match(text, at)
        # Step 2: Match the candidates in order of precedence.
        for rank in sorted({self._ranks[name] for name in names}):
            token = self.tokens[rank]
            if token.at_end and not final:
                continue
            token_match = (self._patterns.get(token.name) or self._compile(token)).match(text, at)
            if token_match and not (token.offered_group and not offers(token_match[token.offered_group])):
                return token_match
        if self.end and final and start == len(text):
            return _compile(f"{self._space}(?P<{self.end}>)").match(text, at)
        return None

    def _find_begun_tokens(self, text: str, at: int, *, final: bool) -> list[str] | None:
        """Return the names of the tokens that match at a position; None if more text is needed to decide."""
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
                # Loose white space is consumed as a whole; of any other run, a part may belong to the continuation.
                places += [(following, after)] if run is _SPACE else [(following, i) for i in range(at + 1, after + 1)]
        return names

    def _compile(self, token: Token) -> re.Pattern[str]:
        pattern = self._patterns[token.name] = _compile((self._space or "") + token.make_expression())
        return pattern

    def _make_tries(self) -> tuple[_TrieNode, _TrieNode | None]:
        """Build the roots of the tries: for tokens that count anywhere, and for those at the start of a line."""
        steps = [token.steps for token in self.tokens if token.line_start]
        anywhere = _make_node(token.steps for token in self.tokens if not token.line_start)
        tries = self._tries = anywhere, _make_node(steps) if steps else None
        TRIE_BUDGET.register(self)
        return tries

    def drop_tries(self) -> None:
        """Drop the tries; they are built again when they are needed."""
        self._tries = None

    @cached_property
    def first(self) -> re.Pattern[str]:  # type: ignore[override]  # as above
        if not self.tokens:
            return _compile("(?!)")
        firsts = dict.fromkeys(token.first for token in self.tokens)
        if "" in firsts:
            return _compile("(?s:.)")
        # A single character class comes first, because Python searches for it fast.
        return _compile(f"[{''.join(map(re.escape, firsts))}](?:{'|'.join(map(self._lookahead_after, firsts))})")

    def _lookahead_after(self, first: str) -> str:
        """Return an expression for the text after the first character of a token: a continuation, or the end."""
        anywhere, line_start = self._tries or self._make_tries()
        places = [place for trie in (anywhere, line_start) if trie for _, place in trie.find(first)]
        ways = [way for place in places for way in place.list_beginnings()]
        character = re.escape(first)
        before = rf"(?<={character})"
        if not anywhere.find(first):  # only at the start of a line; a lookbehind has a fixed length
            indented = (rf"(?<=^[ \t>]{{{depth}}}{character})" for depth in range(INDENT + 1))
            before = f"(?:{'|'.join(indented)})"
        return rf"{before}(?={'|'.join(ways)}|\Z)"

    @cached_property
    def plain(self) -> PlainRule | None:  # type: ignore[override]  # other scans have none
        return make_plain_rule(self.tokens)

    def size(self) -> int:
        return BYTES_PER_TOKEN * len(self.tokens)


class FollowingScan(Scan):
    """Expects, after white space, a token of another scan if it has one of `kinds`, otherwise one of `others`."""

    def __init__(self, scan: Scan, kinds: Collection[str], others: Iterable[Token], space: str = LOOSE_SPACE) -> None:
        self.scan, self.others = scan, TokenScan(others)
        self.kinds = kinds
        self._match_space = _compile(space).match

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        white = self._match_space(text, at)
        start = white.end() if white else at
        if _is_undecided_space(text, start):
            return None if final else _HOLD_REST.match(text, at)
        token_match = self.scan.match(text, start, final=final, offers=offers)
        if token_match and get_token_kind(token_match.lastgroup) in ("hold", *self.kinds):
            return token_match
        return self.others.match(text, start, final=final, offers=offers)

    def size(self) -> int:
        return self.others.size()


class ExpressionScan(Scan):
    """Expects a match of an expression (`at_end` once the text is final), otherwise a token of another scan."""

    def __init__(self, while_open: str, at_end: str, otherwise: Scan | None = None) -> None:
        self.while_open, self.at_end, self.otherwise = while_open, at_end, otherwise

    def match(self, text: str, at: int = 0, *, final: bool = False, offers: Offers = bool) -> Found | None:
        token_match = _compile(self.at_end if final else self.while_open).match(text, at)
        return token_match or (self.otherwise.match(text, at, final=final, offers=offers) if self.otherwise else None)

    def size(self) -> int:
        characters = len(self.while_open) + len(self.at_end)
        return BYTES_PER_PATTERN_CHARACTER * characters + (self.otherwise.size() if self.otherwise else 0)


def make_search_scan(tokens: Iterable[Token]) -> TokenScan:
    """Make the scan of a state in which text flows until a token begins."""
    return TokenScan(tokens)


def make_expecting_scan(tokens: Iterable[Token], space: str = LOOSE_SPACE, end: str = "") -> TokenScan:
    """Make the scan of a state in which a token must follow after white space."""
    return TokenScan(tokens, space, end)


def get_token_kind(name: str | None) -> str:
    """Return the kind in the name of a token; empty if there is no token."""
    return name.rstrip("0123456789") if name else ""


def _is_undecided_space(text: str, at: int) -> bool:
    """Return True if the rest is empty or a backslash: half of the `\\n` that some models write for a line break."""
    return len(text) - at <= 1 and text[at:] in ("", "\\")


_patterns: WeakValueDictionary[str, re.Pattern[str]] = WeakValueDictionary()


def _compile(expression: str) -> re.Pattern[str]:
    """Compile an expression, or reuse the one of another scan."""
    pattern = _patterns.get(expression)
    if pattern is None:
        pattern = _patterns[expression] = re.compile(expression, re.MULTILINE)  # used as recorded
    return pattern


MAX_PREFIXES = 8
"""Maximum number of literal prefixes that are listed for one token."""


def list_prefixes(parts: Iterable[Part]) -> list[str]:
    """List the literal texts that a sequence can begin with, as long as they are few."""
    texts = [""]
    for part in parts:
        words = _list_words(part)
        if words is None or len(texts) * len(words) > MAX_PREFIXES:
            break
        texts = ["".join(pair) for pair in itertools.product(texts, words)]
    return list(dict.fromkeys(texts))


def _list_words(part: Part) -> list[str] | None:
    """List all texts that a part can match; None if they are not a finite list."""
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
