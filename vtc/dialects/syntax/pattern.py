"""Pattern strings, and the regular expressions that find them in a stream.

A pattern such as `<function={name}>\\n{params}</function>` is parsed into literals and slots. For reading, its markup
becomes a sequence of `Part`s (`parts.py`), and what the text so far ends in is held back if it is a proper beginning of
one. Nothing else is; that is what makes the result independent of how the text was cut.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from vtc.dialects.bounded_cache import PER_CHARACTER
from vtc.dialects.syntax.parts import (
    SPACE,
    Lit,
    Part,
    atoms,
    beginning,
    holds,
    whole_of,
)

BODIES = ("json", "args", "params", "kwargs")
SLOTS = {
    "call": {"name", "id", "index", "number", "noise", *BODIES},
    "param": {"key", "value", "string", "type"},
    "section": {"calls"},
    "result": {"name", "id", "result"},
    "markers": {"name"},
}

INDENT = 8
"""Deepest indentation at which a line still counts as starting with its markup."""


class PatternError(ValueError):
    """A pattern makes no sense; `key` is the key of the description that holds it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Slot(msgspec.Struct, frozen=True):
    name: str


def parse(text: str, key: str) -> list[str | Slot]:
    """Literals and slots of a pattern, in order; raises `PatternError`."""
    return [*_parsed(text, key)]


@lru_cache(maxsize=1024)
def _parsed(text: str, key: str) -> tuple[str | Slot, ...]:
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError as error:
        raise PatternError(key, f"{text!r}: {error}; write {{{{ and }}}} for braces") from None
    parts: list[str | Slot] = []
    for literal, name, spec, conversion in fields:
        if literal:
            parts.append(literal)
        if name is None:
            continue
        if name not in SLOTS[key] or spec or conversion:
            known = ", ".join("{" + slot + "}" for slot in sorted(SLOTS[key]))
            raise PatternError(key, f"{text!r}: {{{name}}} is no placeholder here; there are {known}")
        parts.append(Slot(name))
    needed = {"param": ("key", "value"), "section": ("calls",), "result": ("result",)}.get(key, ())
    for name in needed:
        if Slot(name) not in parts:
            raise PatternError(key, f"{text!r}: {{{name}}} is missing")
    if key == "call":
        body(text)
    return tuple(parts)


def check_findable(text: str, key: str, *, enclosed: bool) -> None:
    """Markup is found by its literal text: it must open with some, unless something else that does encloses it, and
    what has an end that only literal text can tell must be followed by some. Raises `PatternError`.
    """
    parts = parse(text, key)
    holder, before, behind = _around(parts)
    for slot in before:
        if before.count(slot) > 1:
            raise PatternError(
                key, f"{text!r}: {{{slot}}} stands there twice before {{{holder}}}; remove one of the two"
            )
    first = "key" if key == "param" else "name" if holder in ("args", "params", "kwargs") else holder
    if first not in (*before, holder):
        raise PatternError(key, f"{text!r}: {{{first}}} must stand before {{{holder}}}")
    for slot in behind:
        if slot == holder or (key == "param" and slot != "key"):
            raise PatternError(key, f"{text!r}: {{{slot}}} cannot stand behind {{{holder}}}; remove it")
    if not enclosed and isinstance(parts[0], Slot) and parts[0].name != "json":
        raise PatternError(key, f"{text!r} must begin with literal text, so that it can be found in a reply")
    for at, part in enumerate(parts):
        if isinstance(part, Slot) and part.name in ("params", "value", "kwargs"):
            after = parts[at + 1] if at + 1 < len(parts) else ""
            if isinstance(after, Slot) or not after.strip():
                message = f"literal text must follow {{{part.name}}}, so that its end can be found"
                raise PatternError(key, f"{text!r}: {message}")


def _around(parts: Sequence[str | Slot]) -> tuple[str, list[str], list[str]]:
    """The slot that a pattern is there for, and those before and after it."""
    slots = [part.name for part in parts if isinstance(part, Slot)]
    at = next(i for i, slot in enumerate(slots) if slot in (*BODIES, "value", "calls"))
    return slots[at], slots[:at], slots[at + 1 :]


@lru_cache(maxsize=1024)
def body(call: str) -> str:
    """Which slot of a call pattern holds the arguments: `json`, `args` or `params`."""
    found = [field for _, field, _, _ in string.Formatter().parse(call) if field in BODIES]
    if len(found) != 1:
        raise PatternError("call", f"{call!r}: exactly one of {{json}}, {{args}}, {{params}}, {{kwargs}} is needed")
    if found[0] != "json" and "{name}" not in call:
        raise PatternError("call", f"{call!r}: {{name}} is missing")
    return found[0]


def filled(text: str, key: str, slots: Mapping[str, str]) -> str:
    """A pattern with something in each of its slots; raises `PatternError`."""
    parse(text, key)
    return text.format_map(slots)


def split(parts: Sequence[str | Slot], slots: Iterable[str]) -> tuple[list[str | Slot], list[str | Slot]]:
    """What stands before and after the first of `slots`."""
    at = next(i for i, part in enumerate(parts) if isinstance(part, Slot) and part.name in slots)
    return list(parts[:at]), list(parts[at + 1 :])


# Expressions for the states of a reader

OFFERED = "offered"
"""The group of a name that must be an offered tool's. Names stand in no expression: compiling them would take long, and
once for every set of tools."""

LINE_START = "(?:" + "|".join(rf"(?<=^[ \t>]{{{n}}}%s)" for n in range(INDENT + 1)) + ")"
"""Says that the character just read is the first of its line, up to an indentation (or `>` quoting)."""


class Token(msgspec.Struct, frozen=True):
    """Something that leaves a state, and the name it goes by, if any; what is searched for starts with a literal."""

    name: str
    parts: tuple[Part, ...]
    line_start: bool = False

    @property
    def named(self) -> bool:
        """True if it is one only with the name of an offered tool in it, in the group `OFFERED`."""
        return holds(self.parts, OFFERED)

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
    def rest(self) -> tuple[Part, ...]:
        """What follows `first`."""
        first = self.parts[0]
        if not isinstance(first, Lit):
            return self.parts
        return (Lit(first.text[1:]), *self.parts[1:]) if len(first.text) > 1 else self.parts[1:]


class Finder(Protocol):
    """What a state's expression is asked; patterns of `re` are the simplest."""

    def search(self, text: str, at: int = 0, /) -> re.Match[str] | None: ...

    def match(self, text: str, at: int = 0, /) -> re.Match[str] | None: ...


_patterns: WeakValueDictionary[str, re.Pattern[str]] = WeakValueDictionary()


def _compiled(expression: str) -> re.Pattern[str]:
    """Compile an expression, or get what another scan has of it: grammars that share a dialect share its states."""
    pattern = _patterns.get(expression)
    if pattern is None:
        pattern = _patterns[expression] = re.compile(expression, re.MULTILINE)
    return pattern


class Scan:
    """One state's expressions: `while_open` knows a group `hold` for what may still become a token.

    They are compiled when they are first needed, as most replies never get into most states. `firsts` are the
    characters that a token begins with, if that is all there is to know about where to look for one; `lines` are those
    that a token begins with directly after a line break.
    """

    def __init__(
        self,
        while_open: str,
        at_end: str,
        firsts: str = "",
        unnamed: Callable[[], Scan] | None = None,
        lines: str = "",
    ) -> None:
        self._while_open = while_open
        self._at_end = at_end
        self.firsts = firsts
        self.lines = lines
        self._unnamed = unnamed

    def size(self) -> int:
        """Measure both expressions, compiled, in bytes."""
        return (len(self._while_open) + len(self._at_end)) * PER_CHARACTER

    def or_else(self, other: Scan) -> Scan:
        """Make a scan that finds a token of the other one where it finds none; neither is searched with."""
        unnamed = other._unnamed
        return Scan(
            f"{self._while_open}|{other._while_open}",
            f"{self._at_end}|{other._at_end}",
            unnamed=(lambda: self.or_else(unnamed())) if unnamed else None,
        )

    @cached_property
    def while_open(self) -> Finder:
        return _compiled(self._while_open)

    @cached_property
    def at_end(self) -> Finder:
        return _compiled(self._at_end)

    @cached_property
    def unnamed(self) -> Scan | None:
        """The same without the tokens that need the name of an offered tool; None if it has none of them."""
        return self._unnamed() if self._unnamed else None

    @cached_property
    def first(self) -> re.Pattern[str]:
        """Finds where a token may begin."""
        if not (self.firsts and self.lines) or "\n" in self.firsts:
            return re.compile(f"[{re.escape(self.firsts)}]" if self.firsts else "")
        # One set of characters first, which is what Python finds fast.
        return re.compile(rf"[{re.escape(self.firsts)}\n](?:(?<!\n)|(?=[{re.escape(self.lines)}])|\Z)")


def searching(tokens: Sequence[Token], at_end: Sequence[Token] = ()) -> Scan:
    """For a state in which text flows until one of `tokens`; those `at_end` count only as the last thing."""
    firsts = [token.first for token in (*tokens, *at_end) if not token.first_of_line]
    lines = [token.first_of_line for token in tokens]
    return Scan(
        _search(tokens, (), hold=True),
        _search(tokens, at_end, hold=False),
        "".join(dict.fromkeys(firsts)) if all(firsts) else "",
        _unnamed(tokens, lambda others: searching(others, at_end)),
        "".join(dict.fromkeys(lines)),
    )


def expecting(tokens: Sequence[Token], space: str = SPACE, end: str = "") -> Scan:
    """For a state in which, after white space, one of `tokens` must follow (used with `match`), or the end of the reply
    if that has the name `end`.
    """
    while_open, final = _search(tokens, (), hold=True), _search(tokens, (), hold=False)
    final += rf"|(?P<{end}>\Z)" if end else ""
    unnamed = _unnamed(tokens, lambda others: expecting(others, space, end))
    return Scan(rf"{space}(?:{while_open}|(?P<hold_>\\?\Z))", rf"{space}(?:{final})", unnamed=unnamed)


def _unnamed(tokens: Sequence[Token], make: Callable[[Sequence[Token]], Scan]) -> Callable[[], Scan] | None:
    others = [token for token in tokens if not token.named]
    return None if len(others) == len(tokens) else lambda: make(others)


def _search(tokens: Sequence[Token], at_end: Sequence[Token], *, hold: bool) -> str:
    # Grouped by first character, so that the expression starts with a character class, which
    # is what lets `re` skip through plain text at full speed.
    by_first: dict[str, list[_Sought]] = {}
    for token, end in [*((token, "") for token in tokens), *((token, r"\s*\Z") for token in at_end)]:
        start = LINE_START.replace("%s", re.escape(token.first)) if token.line_start else ""
        by_first.setdefault(token.first, []).append(_Sought(token.name, token.rest, atoms(token.rest), start, end))
    choices: list[str] = []
    for first, group in by_first.items():
        ahead = [rf"(?P<hold{len(choices)}>{_held(group)}\Z)"] if hold else []
        choice = "|".join([*ahead, *_found(group)])
        choices.append(f"(?<={re.escape(first)})(?:{choice})" if first else choice)
    if not choices:
        return r"(?!)"
    # What may begin with any of many characters is only ever expected, never searched for.
    unanchored = choices.pop(list(by_first).index("")) if "" in by_first else ""
    firsts = "".join(re.escape(first) for first in by_first if first)
    anchored = f"[{firsts}](?:{'|'.join(choices)})" if choices else ""
    return "|".join(filter(None, (anchored, unanchored)))


class _Sought(msgspec.Struct, frozen=True):
    """A token after its first character, as a sequence and as its atoms; `start` and `end` are asserted there."""

    name: str
    parts: tuple[Part, ...]
    atoms: tuple[str | Part, ...]
    start: str
    end: str

    def behind(self, count: int) -> str:
        """The expression for what follows the first `count` atoms."""
        atoms = self.atoms[count:]
        rest = "".join(re.escape(one) if isinstance(one, str) else whole_of(one, self.name) for one in atoms)
        return f"({f'?P<{self.name}>' if self.name else '?:'}{self.start}{rest}{self.end})"


def _found(group: Sequence[_Sought], depth: int = 0) -> list[str]:
    """The choices for whole tokens that are alike up to `depth`; where two would match, the first is meant to."""
    choices: list[str] = []
    run: dict[str, list[_Sought]] = {}  # by next character: only one can match, so their order does not matter
    for sought in group:
        atom = sought.atoms[depth] if depth < len(sought.atoms) else None
        if isinstance(atom, str) and not sought.start:
            run.setdefault(atom, []).append(sought)
        else:
            choices += [*_characters(run, depth), sought.behind(depth)]
            run.clear()
    return [*choices, *_characters(run, depth)]


def _characters(run: dict[str, list[_Sought]], depth: int) -> list[str]:
    choices = []
    for character, group in run.items():
        found = _found(group, depth + 1) if len(group) > 1 else [group[0].behind(depth + 1)]
        choices.append(re.escape(character) + (found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"))
    return choices


def _held(group: Sequence[_Sought]) -> str:
    """The expression for every beginning of these tokens."""
    sequences: dict[str, list[tuple[Part, ...]]] = {}
    for sought in group:
        if sought.parts:
            sequences.setdefault(sought.start, []).append(sought.parts)
    choices = [start + beginning(*parts) for start, parts in sequences.items()]
    return f"(?:{'|'.join(choices)})" if choices else "(?!)"
