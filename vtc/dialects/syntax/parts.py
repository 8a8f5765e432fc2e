"""The parts that markup is made of as it is read, and the expressions for a sequence of them.

A sequence gives two expressions: one for the whole of it, and one for every proper beginning of it that the text so far
may end in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

SPACE = r"(?:\s|\\n){0,256}+"
"""Loose white space, also as the two characters `\\n` that some models write between tags: bounded, so that holding it
back is; possessive, so that no run of it is tried twice."""
_SPACE_BEGINNING = SPACE + r"\\?"


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


def beginning(parts: Sequence[Part]) -> str:
    """The expression for every beginning of a sequence that more text could go on with, the empty one included."""
    if not parts:
        return "(?!)"
    tail = beginning_of(parts[-1])
    for part in reversed(parts[:-1]):
        tail = f"(?:{whole_of(part)}{tail}|{beginning_of(part)})"
    return tail


def beginning_of(part: Part) -> str:
    match part:
        case Lit(text):
            return _word_beginning(text)
        case Space():
            return _SPACE_BEGINNING
        case Chars(allowed, most, _):
            return rf"[{allowed}]{{0,{most}}}"
        case OneOf(words, _, any_case):
            return f"(?:{_cased('|'.join(map(_word_beginning, words)), any_case)})"
        case Maybe(parts) | Group(parts, _):
            return beginning(parts)
        case AnyOf(choices):
            return f"(?:{'|'.join(beginning(parts) for parts in choices)})"


def _word_beginning(word: str) -> str:
    nested = ""
    for char in reversed(word[:-1]):
        nested = f"(?:{re.escape(char)}{nested})?"
    return nested


def _cased(expression: str, any_case: bool) -> str:
    return f"(?i:{expression})" if any_case else expression
