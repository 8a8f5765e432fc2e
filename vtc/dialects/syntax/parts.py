"""The parts that markup is made of as it is read, and the expressions for a sequence of them.

A sequence gives an expression for the whole of it; `partial.py` finds its beginnings. Grammars hold them by the ten
thousand: as they never refer to themselves, Python's collector need not go through them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

MOST_SPACE = 256
SPACE = rf"(?:\s|\\n){{0,{MOST_SPACE}}}+"
"""Loose white space, also as the two characters `\\n` that some models write between tags: bounded, so that holding it
back is; possessive, so that no run of it is tried twice."""


class Lit(msgspec.Struct, frozen=True, gc=False):
    """Exactly this text, of at least one character."""

    text: str


class Space(msgspec.Struct, frozen=True, gc=False):
    """Any run of white space, also none."""


class Chars(msgspec.Struct, frozen=True, gc=False):
    """A bounded run of characters of a class, e.g. a tool's name."""

    allowed: str
    most: int
    group: str = ""


class OneOf(msgspec.Struct, frozen=True, gc=False):
    """One of some words."""

    words: tuple[str, ...]
    group: str = ""
    any_case: bool = False


class Maybe(msgspec.Struct, frozen=True, gc=False):
    """A sequence that may be missing."""

    parts: tuple[Part, ...]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """One of some sequences."""

    choices: tuple[tuple[Part, ...], ...]


class Group(msgspec.Struct, frozen=True, gc=False):
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


def atoms(parts: Sequence[Part]) -> tuple[str | Part, ...]:
    """A sequence with its literals as single characters, and white space behind white space as one."""
    found: list[str | Part] = []
    for part in parts:
        if not (isinstance(part, Space) and found and found[-1] == part):
            found += part.text if isinstance(part, Lit) else (part,)
    return tuple(found)


def _cased(expression: str, any_case: bool) -> str:
    return f"(?i:{expression})" if any_case and expression else expression
