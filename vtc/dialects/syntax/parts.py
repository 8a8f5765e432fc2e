"""The parts that markup is made of as it is read, and the expressions for a sequence of them.

A sequence gives two expressions: one for the whole of it, and one for every proper beginning of it that the text so far
may end in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

SPACE = r"(?:\s|\\n){0,256}+"
"""Loose white space, also as the two characters `\\n` that some models write between tags: bounded, so that holding it
back is; possessive, so that no run of it is tried twice."""


class Lit(msgspec.Struct, frozen=True):
    """Exactly this text, of at least one character."""

    text: str


class Space(msgspec.Struct, frozen=True):
    """Any run of white space, also none."""


class Chars(msgspec.Struct, frozen=True):
    """A bounded run of characters of a class, e.g. a tool's name."""

    allowed: str
    most: int
    group: str = ""


class OneOf(msgspec.Struct, frozen=True):
    """One of some words."""

    words: tuple[str, ...]
    group: str = ""
    any_case: bool = False


class Maybe(msgspec.Struct, frozen=True):
    """A sequence that may be missing."""

    parts: tuple[Part, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """One of some sequences."""

    choices: tuple[tuple[Part, ...], ...]


class Group(msgspec.Struct, frozen=True):
    """A sequence whose place in the text is asked for by name."""

    parts: tuple[Part, ...]
    group: str


Part = Lit | Space | Chars | OneOf | Maybe | AnyOf | Group


def whole(parts: Sequence[Part], token: str = "") -> str:
    """The expression for a complete sequence; with the name of a `token`, its groups are `GROUP_TOKEN`."""
    return "".join(whole_of(part, token) for part in parts)


def whole_of(part: Part, token: str = "") -> str:
    match part:
        case Lit(text):
            return re.escape(text)
        case Space():
            return SPACE
        case Chars(allowed, most, group):
            return _grouped(rf"[{allowed}]{{1,{most}}}", group, token)
        case OneOf(words, group, any_case):
            # Longest first: of `read` and `read_file` the longer one is tried first.
            choice = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
            return _grouped(_cased(choice, any_case), group, token)
        case Maybe(parts):
            return f"(?:{whole(parts, token)})?"
        case AnyOf(choices):
            return f"(?:{'|'.join(whole(parts, token) for parts in choices)})"
        case Group(parts, group):
            return _grouped(whole(parts, token), group, token)


def _grouped(expression: str, group: str, token: str) -> str:
    return f"(?P<{group}_{token}>{expression})" if group and token else f"(?:{expression})"


def holds(parts: Sequence[Part], group: str) -> bool:
    """Tell whether a sequence has a group of this name."""
    return any(
        (isinstance(part, Group) and part.group == group)
        or (isinstance(part, Group | Maybe) and holds(part.parts, group))
        for part in parts
    )


# Dozens of dialects begin alike (`<tool_call>`, `<|`). What is alike at the beginning of some sequences is there once,
# as in a trie, so that an expression grows with what is different about them.

type _Trie = dict[str | Part, _Trie]


def atoms(parts: Sequence[Part]) -> tuple[str | Part, ...]:
    """A sequence with its literals as single characters, and white space behind white space as one."""
    found: list[str | Part] = []
    for part in parts:
        if not (isinstance(part, Space) and found and found[-1] == part):
            found += part.text if isinstance(part, Lit) else (part,)
    return tuple(found)


def beginning(*sequences: Sequence[Part]) -> str:
    """The expression for every beginning of these sequences that more text could go on with, the empty one included."""
    trie = _trie(sequences)
    return _optional(_begun(trie)) if trie else "(?!)"


def _trie(sequences: Iterable[Sequence[Part]]) -> _Trie:
    trie: _Trie = {}
    for parts in sequences:
        node = trie
        for atom in atoms(_without_groups(parts)):
            node = node.setdefault(atom, {})
    return trie


def _without_groups(parts: Iterable[Part]) -> list[Part]:
    return [one for part in parts for one in (_without_groups(part.parts) if isinstance(part, Group) else [part])]


def _begun(trie: _Trie) -> list[str]:
    """The choices for what ends before a leaf of the trie, without the empty one."""
    return [choice for atom, inner in trie.items() for choice in _begun_with(atom, inner)]


def _begun_with(atom: str | Part, inner: _Trie) -> list[str]:
    following = _begun(inner)
    match atom:
        case str():
            return [re.escape(atom) + _optional(following)] if inner else []
        case Space():  # possessive, so there is one way to go on behind it
            return [SPACE + _optional([*following, r"\\"])]
        case Chars(allowed, most, _):
            return [rf"[{allowed}]{{1,{most}}}{_optional(following)}"]
        case OneOf(words, _, any_case):
            partial = _cased("|".join(_begun(_trie((Lit(word),) for word in words))), any_case)
            begun = [partial] if partial else []
        case Maybe(parts):
            begun = _begun(_trie((parts,)))
        case AnyOf(choices):
            begun = _begun(_trie(choices))
        case Lit() | Group():
            raise AssertionError("no atom")
    return [whole_of(atom) + _optional(following), *begun] if inner else begun


def _optional(choices: Sequence[str]) -> str:
    return f"(?:{'|'.join(choices)})?" if choices else ""


def _cased(expression: str, any_case: bool) -> str:
    return f"(?i:{expression})" if any_case and expression else expression
